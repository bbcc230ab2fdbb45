// One function per family of methods; each adds its members where they are right.
#include "plan/catalog.h"

#include <algorithm>
#include <numeric>

#include "plan/steps.h"

namespace perdure::plan {
namespace {

using Steps = std::vector<RequesterStep>;
using Reactions = std::vector<std::vector<ResponderAction>>;

/// What of the profile the families ask, decided once.
struct Facts {
  bool responder_must_flush = false;  // only its CPU brings data into the domain
  bool visible_is_not_enough = false;
  bool arrival_is_enough = false;     // and the completion of a posted operation tells
  bool buffers_persist = false;       // receive buffers are in PM
  bool messages_survive = false;      // a receive buffer keeps a whole message like data
  bool flush_takes_messages = false;  // behind a message alone
  bool atomic_write = false;
  bool written_in_order = false;   // a WRITE becomes visible after the ones before it
  bool flush_persists = false;     // a native FLUSH brings what it names into the domain by itself
  bool persists_in_order = false;  // PWRITE
  bool sflush_persists = false;    // SFLUSH brings messages and what it names into the domain
};

/// Whether a method is right over queue pairs that lose what is posted: each message brings all
/// that it is answered for, and has a number, so that the responder misses the one before it. A
/// WRITE may be lost in front of the message that vouches for it, and a WRITE_WITH_IMM has no
/// number.
bool bears_loss(const Method& method, QpType type) {
  if (fetches(method)) return false;
  if (type == QpType::Ud && writes_acks(method)) return false;
  return std::all_of(
      method.requester.begin(), method.requester.end(), [&](const RequesterStep& step) {
        if (step.kind != RequesterStep::Kind::Post) return true;
        return step.verb == Verb::Send || (type == QpType::Uc && step.verb == Verb::WritePolled);
      });
}

class Catalog {
 public:
  Catalog(const ServerProfile& server, const Request& request) : request_(request) {
    const bool durable = request.level == Level::Durable || request.level == Level::Committed;
    const bool page = server.domain == PersistenceDomain::Page;
    const bool dmp = server.domain == PersistenceDomain::Dmp;
    const bool early = completes_early(server.transport);
    facts_.responder_must_flush = durable && (page || (dmp && !dma_bypasses_caches(server)));
    facts_.visible_is_not_enough = durable && (page || dmp);
    const bool delivery_keeps =
        durable ? server.domain == PersistenceDomain::Wsp : request.level == Level::Received;
    facts_.arrival_is_enough = delivery_keeps && !early && server.qp_type == QpType::Rc;
    facts_.messages_survive =
        durable && server.receive_buffers == ReceiveBuffers::Pm && !facts_.responder_must_flush;
    facts_.flush_persists =
        dmp && server.capabilities.native_flush && server.capabilities.persistent_flush;
    // A READ in place of a FLUSH has to lie inside what was written, and no requester reaches a
    // receive buffer. Its answer still says that all before it has arrived.
    facts_.flush_takes_messages =
        server.domain == PersistenceDomain::Wsp ||
        (server.capabilities.native_flush && !flushes_no_messages(server));
    facts_.atomic_write = server.capabilities.atomic_write;
    facts_.written_in_order = keeps_write_order(server);
    const bool by_rnic = durable && server.domain >= PersistenceDomain::Dmp;
    facts_.persists_in_order = by_rnic && server.capabilities.ordered_persist;
    facts_.sflush_persists = by_rnic && server.capabilities.send_flush;
    facts_.buffers_persist = server.receive_buffers == ReceiveBuffers::Pm;
    std::size_t first = 0;
    for (const std::uint8_t count : request.shape.items_per_epoch) {
      std::vector<Item> items(count);
      std::iota(items.begin(), items.end(), static_cast<Item>(first));
      epochs_.push_back(items);
      all_.insert(all_.end(), items.begin(), items.end());
      first += count;
    }
    if (durable && server.domain == PersistenceDomain::None) return;
    if (!has_qp_type(server.transport, server.qp_type)) return;
    add_all();
    std::erase_if(known_, [&](const Known& each) { return is_refused(each.method, server); });
    if (server.qp_type == QpType::Rc) return;
    std::erase_if(known_,
                  [&](const Known& each) { return !bears_loss(each.method, server.qp_type); });
  }

  std::vector<Known> take() && { return std::move(known_); }

 private:
  void add_all() {
    one_message();
    if (request_.polled) one_polled_message();
    if (request_.responder_posts) answered_by_write();
    if (request_.polled) polled_writes();
    if (request_.responder_posts) read_by_responder();
    persisted_in_order();
    flushed_by_lookup();
    one_sided(Primary::Write);
    one_sided(Primary::WriteImm);
    one_sided_message();
    acknowledged_writes(Primary::Write);
    acknowledged_writes(Primary::WriteImm);
    mixed(Primary::Write);
    mixed(Primary::WriteImm);
    immediate_first();
    message_first();
  }

  void add(std::string name, Primary primary, Steps steps, Reactions reactions, std::string reason,
           bool later_any_size = true) {
    Method method;
    method.name = std::move(name);
    method.primary = primary;
    method.shape = request_.shape;
    method.requester = std::move(steps);
    method.responder = std::move(reactions);
    method.later_any_size = later_any_size;
    known_.push_back({std::move(method), std::move(reason)});
  }

  void apply(const std::vector<Item>& items, std::vector<ResponderAction>& reaction) const {
    for (const Item item : items) reaction.push_back(copy_item(item));
    flush_all(items, reaction);
  }

  void flush_all(const std::vector<Item>& items, std::vector<ResponderAction>& reaction) const {
    if (!facts_.visible_is_not_enough) return;
    for (const Item item : items) reaction.push_back(flush_item(item));
  }

  /// Posts one WRITE per item; with WriteImm the last one of `items` carries the immediate.
  void write_all(Primary primary, const std::vector<Item>& items, Steps& steps) const {
    for (const Item item : items) {
      const bool announces = primary == Primary::WriteImm && item == items.back();
      steps.push_back(announces ? write_imm({item}) : write({item}));
    }
  }

  static std::string verb(Primary primary) {
    return primary == Primary::WriteImm ? "write_imm" : "write";
  }

  void one_message() {
    std::vector<ResponderAction> reaction;
    for (const auto& items : epochs_) apply(items, reaction);
    reaction.push_back(ack());
    const bool flushes = facts_.visible_is_not_enough;
    add(flushes ? "send-copy-flush-ack" : "send-copy-ack", Primary::Send, {send(all_), wait_ack()},
        {reaction},
        (flushes ? "one message carries everything; the responder copies and flushes epoch by epoch"
                 : "one message carries everything; what the responder has stored is safe") +
            despite_any_order());
  }

  /// Why nobody counts on the order of WRITEs, for who plans around it; nothing where he need not.
  std::string despite_any_order() const {
    return epochs_.size() == 1 || facts_.written_in_order
               ? ""
               : "; WRITEs may be placed in any order here, and it needs none";
  }

  /// Why an epoch waits for the one before; nothing where none does.
  std::string why_epochs_wait() const {
    if (order_comes_by_itself()) return "";
    return facts_.written_in_order
               ? "; what is visible first need not be durable first, so no epoch leaves before that"
               : "; WRITEs may be placed in any order here, so no epoch leaves before that";
  }

  /// The same message, written to where the responder looks for it.
  void one_polled_message() {
    std::vector<ResponderAction> reaction;
    for (const auto& items : epochs_) apply(items, reaction);
    reaction.push_back(ack());
    const bool flushes = facts_.visible_is_not_enough;
    add(flushes ? "poll-copy-flush-ack" : "poll-copy-ack", Primary::Send,
        {write_polled(all_), wait_ack()}, {reaction},
        "one message carries everything; the responder finds it whole by polling, and does the "
        "rest");
  }

  /// Everything is written to its place, and a message behind it says so: that its mark is visible
  /// means that all before it is, where WRITEs keep their order.
  void polled_writes() {
    if (!facts_.written_in_order || !order_comes_by_itself()) return;
    Steps steps;
    write_all(Primary::Write, all_, steps);
    steps.push_back(write_polled({}, facts_.visible_is_not_enough ? all_ : std::vector<Item>{}));
    steps.push_back(wait_ack());
    std::vector<ResponderAction> reaction;
    flush_all(all_, reaction);
    reaction.push_back(ack());
    add(facts_.visible_is_not_enough ? "write-poll-flush-ack" : "write-poll-ack", Primary::Write,
        steps, {reaction},
        "the mark becomes visible behind the data; the responder finds it and sees to the rest");
  }

  /// The responder READs epoch by epoch, and sees to each before it asks for the next.
  void read_by_responder() {
    std::vector<ResponderAction> reaction;
    for (const auto& items : epochs_) {
      for (const Item item : items) reaction.push_back(read_item(item));
      for (const Item item : items) reaction.push_back(await_item(item));
      flush_all(items, reaction);
    }
    reaction.push_back(ack());
    add(facts_.visible_is_not_enough ? "send-read-flush-ack" : "send-read-ack", Primary::Send,
        {send_readable(all_), wait_ack()}, {reaction},
        "the responder READs what the message names and knows by the completion that it is there");
  }

  /// One message, and an acknowledgement that the requester finds by polling its own memory.
  void answered_by_write() {
    std::vector<ResponderAction> reaction;
    for (const auto& items : epochs_) apply(items, reaction);
    reaction.push_back(written_ack());
    add(facts_.visible_is_not_enough ? "send-copy-flush-ack-written" : "send-copy-ack-written",
        Primary::Send, {send(all_), wait_ack()}, {reaction},
        "the responder's processor does all of it in order, and writes the acknowledgement");
  }

  /// Whether an epoch that is posted behind another becomes durable behind it, with no more said.
  bool order_comes_by_itself() const {
    return epochs_.size() == 1 || (facts_.written_in_order && !facts_.visible_is_not_enough);
  }

  void one_sided(Primary primary) {
    if (facts_.responder_must_flush && !facts_.flush_persists) return;
    if (!facts_.visible_is_not_enough && facts_.arrival_is_enough) one_sided_completion(primary);
    if (!facts_.visible_is_not_enough && order_comes_by_itself()) {
      Steps steps;
      for (const auto& items : epochs_) write_all(primary, items, steps);
      steps.push_back(flush(all_));
      steps.push_back(wait_completion(steps.size() - 1));
      add(verb(primary) + "-flush", primary, steps, {},
          "writes become visible in posting order, and the FLUSH proves that they are");
      return;
    }
    one_sided_each(primary);
    one_sided_atomic(primary);
  }

  /// One completion for all, where writes keep their order; else one wait per epoch.
  void one_sided_completion(Primary primary) {
    Steps steps;
    for (const auto& items : epochs_) {
      write_all(primary, items, steps);
      const bool waits = !order_comes_by_itself() || &items == &epochs_.back();
      if (waits) steps.push_back(wait_completion(steps.size() - 1));
    }
    if (order_comes_by_itself()) {
      add(verb(primary) + "-completion", primary, steps, {},
          "arrival in the RNIC is enough, in posting order, and the completion proves it");
    } else {
      add(verb(primary) + "-completion-each", primary, steps, {},
          "arrival in the RNIC is enough, and the completion proves it" + why_epochs_wait());
    }
  }

  /// One FLUSH and one wait per epoch: an order that only waiting can give.
  void one_sided_each(Primary primary) {
    Steps steps;
    for (const auto& items : epochs_) {
      write_all(primary, items, steps);
      steps.push_back(flush(items));
      steps.push_back(wait_completion(steps.size() - 1));
    }
    add(verb(primary) + (epochs_.size() == 1 ? "-flush" : "-flush-each"), primary, steps, {},
        flush_reason());
  }

  std::string flush_reason() const {
    std::string proof =
        "DDIO is off, so a FLUSH proves that what came before is in the memory controller";
    if (!facts_.visible_is_not_enough) {
      proof = "a FLUSH proves that what came before is visible";
    } else if (facts_.flush_persists) {
      proof = "the FLUSH itself brings what was written into the persistence domain";
    }
    return proof + why_epochs_wait();
  }

  /// Later epochs by ATOMIC WRITE, which overtakes neither a WRITE nor the FLUSH before it: one
  /// wait for all. Where visible is enough, its own answer is what is waited for.
  void one_sided_atomic(Primary primary) {
    if (epochs_.size() == 1 || !facts_.atomic_write || !request_.later_small) return;
    const bool flushes = facts_.visible_is_not_enough;
    Steps steps;
    write_all(primary, epochs_.front(), steps);
    if (flushes) steps.push_back(flush(epochs_.front()));
    for (std::size_t epoch = 1; epoch < epochs_.size(); ++epoch) {
      for (const Item item : epochs_[epoch]) steps.push_back(write_atomic(item));
      if (flushes) steps.push_back(flush(epochs_[epoch]));
    }
    steps.push_back(wait_completion(steps.size() - 1));
    add(verb(primary) + (flushes ? "-flush-atomic-flush" : "-atomic"), primary, steps, {},
        flushes
            ? "an ATOMIC WRITE does not overtake the FLUSH before it, so nobody has to wait between"
            : "an ATOMIC WRITE takes effect when all before it is visible, and its answer says so",
        false);
  }

  /// Any number of epochs, one after the other, with nothing awaited between.
  void persisted_in_order() {
    if (!facts_.persists_in_order) return;
    Steps steps;
    for (const Item item : all_) steps.push_back(pwrite({item}));
    steps.push_back(wait_completion(steps.size() - 1));
    add("pwrite", Primary::Write, steps, {},
        "PWRITEs drain in the order of posting, and the last one's persist ACK says that they "
        "have");
  }

  /// The RNIC looks up where a message has gone, and flushes that and what was written before it.
  void flushed_by_lookup() {
    if (!facts_.sflush_persists) return;
    if (facts_.buffers_persist) {
      add("send-replay-sflush", Primary::Send,
          {send_replayable(all_), sflush(all_), wait_completion(1)}, {},
          "the message itself survives once the RNIC has flushed its buffer, and recovery applies "
          "it");
    }
    if (!facts_.responder_must_flush) return;
    Steps steps;
    for (const auto& items : epochs_) {
      write_all(Primary::Write, items, steps);
      steps.push_back(send({}, items));
      steps.push_back(sflush(items));
      steps.push_back(wait_completion(steps.size() - 1));
    }
    add(epochs_.size() == 1 ? "write-send-sflush" : "write-send-sflush-each", Primary::Write, steps,
        {}, "the RNIC itself flushes what the message names, from its caches");
  }

  void one_sided_message() {
    if (!facts_.messages_survive) return;
    if (facts_.arrival_is_enough) {
      add("send-replay-completion", Primary::Send, {send_replayable(all_), wait_completion(0)}, {},
          "the message itself survives from the RNIC on, and recovery applies it");
    }
    if (!facts_.flush_takes_messages) return;
    add("send-replay-flush", Primary::Send,
        {send_replayable(all_), flush(all_), wait_completion(1)}, {},
        "the message itself survives once it is flushed, and recovery applies it");
  }

  /// The responder's CPU confirms: once, where order comes by itself, else once per epoch.
  void acknowledged_writes(Primary primary) {
    const bool once = order_comes_by_itself();
    Steps steps;
    Reactions reactions;
    std::vector<Item> pending;
    for (std::size_t epoch = 0; epoch < epochs_.size(); ++epoch) {
      const bool confirms = !once || epoch + 1 == epochs_.size();
      write_all(confirms ? primary : Primary::Write, epochs_[epoch], steps);
      pending.insert(pending.end(), epochs_[epoch].begin(), epochs_[epoch].end());
      if (!confirms) continue;
      std::vector<ResponderAction> reaction;
      flush_all(pending, reaction);
      reaction.push_back(ack());
      const bool names_all = primary == Primary::WriteImm && pending.size() == 1;
      if (!names_all && needs_message(primary)) {
        steps.push_back(send({}, facts_.visible_is_not_enough ? pending : std::vector<Item>{}));
      }
      steps.push_back(wait_ack());
      reactions.resize(messages_in(steps));
      reactions.back() = reaction;
      pending.clear();
    }
    const std::string name = verb(primary) + (needs_message(primary) ? "-send" : "") +
                             (facts_.visible_is_not_enough ? "-flush" : "") + "-ack" +
                             (once ? "" : "-each");
    add(name, primary, steps, reactions,
        once ? "the message comes after the data is visible; the responder sees to the rest"
             : "the responder confirms each epoch" + why_epochs_wait());
  }

  /// A WRITE is announced by a message; a WRITE_WITH_IMM names one item by itself. In an epoch of
  /// several items the message tells the addresses of them all.
  bool needs_message(Primary primary) const {
    if (primary == Primary::Write) return true;
    if (!facts_.visible_is_not_enough) return false;
    for (const auto& items : epochs_) {
      if (items.size() > 1) return true;
    }
    return false;
  }

  static std::size_t messages_in(const Steps& steps) {
    std::size_t count = 0;
    for (const RequesterStep& step : steps) {
      if (step.kind != RequesterStep::Kind::Post) continue;
      if (step.verb == Verb::Send || step.verb == Verb::WriteImm) ++count;
    }
    return count;
  }

  /// The first epoch travels by WRITE, the later ones in the message that has it flushed: order
  /// comes from the responder's program, in one round trip and with only the small part copied.
  void mixed(Primary primary) {
    if (order_comes_by_itself()) return;
    const bool flushes = facts_.visible_is_not_enough;
    Steps steps;
    write_all(primary, epochs_.front(), steps);
    std::vector<Item> later(all_.begin() + static_cast<std::ptrdiff_t>(epochs_.front().size()),
                            all_.end());
    // An immediate names its item by itself; the addresses of several have to be sent.
    const bool named = primary == Primary::WriteImm && epochs_.front().size() == 1;
    steps.push_back(send(later, named || !flushes ? std::vector<Item>{} : epochs_.front()));
    steps.push_back(wait_ack());
    std::vector<ResponderAction> reaction;
    flush_all(epochs_.front(), reaction);
    for (std::size_t epoch = 1; epoch < epochs_.size(); ++epoch) apply(epochs_[epoch], reaction);
    reaction.push_back(ack());
    Reactions reactions(messages_in(steps));
    reactions.back() = reaction;
    add(verb(primary) + (flushes ? "-send-rest-flush-ack" : "-send-rest-ack"), primary, steps,
        reactions,
        (flushes
             ? "the responder flushes the written epoch before it applies what the message carries"
             : "the responder applies what the message carries when what was written is visible") +
            despite_any_order());
  }

  /// The later epochs by plain WRITEs, one-sided: at once where visibility orders them, else each
  /// with its own FLUSH and wait. Returns the end of the method's name.
  std::string write_later(Steps& steps) const {
    const bool in_order =
        facts_.written_in_order || epochs_.size() == 2;  // one epoch has nothing behind it
    if (!facts_.visible_is_not_enough && in_order) {
      for (std::size_t epoch = 1; epoch < epochs_.size(); ++epoch) {
        write_all(Primary::Write, epochs_[epoch], steps);
      }
      if (!facts_.arrival_is_enough) steps.push_back(flush(all_));
      steps.push_back(wait_completion(steps.size() - 1));
      return facts_.arrival_is_enough ? "completion" : "flush";
    }
    for (std::size_t epoch = 1; epoch < epochs_.size(); ++epoch) {
      write_all(Primary::Write, epochs_[epoch], steps);
      if (!facts_.arrival_is_enough) steps.push_back(flush(epochs_[epoch]));
      steps.push_back(wait_completion(steps.size() - 1));
    }
    return facts_.arrival_is_enough ? "completion-each" : "flush-each";
  }

  /// Only the first epoch announces itself: one receive buffer instead of one per epoch.
  void immediate_first() {
    if (epochs_.size() == 1 || facts_.responder_must_flush) return;
    Steps steps;
    write_all(Primary::WriteImm, epochs_.front(), steps);
    if (!order_comes_by_itself()) {
      if (!facts_.arrival_is_enough) steps.push_back(flush(epochs_.front()));
      steps.push_back(wait_completion(steps.size() - 1));
    }
    const std::string end = write_later(steps);
    add("write_imm-first-" + end, Primary::WriteImm, steps, {},
        "an immediate is needed once; the later epochs follow as plain writes" + why_epochs_wait());
  }

  /// The first epoch in an acknowledged message, the later ones written: copies only the first.
  void message_first() {
    if (epochs_.size() == 1) return;
    Steps steps{send(epochs_.front()), wait_ack()};
    std::vector<ResponderAction> reaction;
    apply(epochs_.front(), reaction);
    reaction.push_back(ack());
    Reactions reactions{reaction};
    std::string end;
    if (!facts_.responder_must_flush) {
      end = write_later(steps);
    } else if (later_epochs_are_single()) {
      for (std::size_t epoch = 1; epoch < epochs_.size(); ++epoch) {
        steps.push_back(write_imm(epochs_[epoch]));
        steps.push_back(wait_ack());
        reactions.push_back({flush_item(epochs_[epoch].front()), ack()});
      }
      end = "imm-flush-ack-each";
    } else {
      return;
    }
    add("send-then-write-" + end, Primary::Send, steps, reactions,
        "the first epoch is acknowledged before the later ones leave" + why_epochs_wait());
  }

  bool later_epochs_are_single() const {
    for (std::size_t epoch = 1; epoch < epochs_.size(); ++epoch) {
      if (epochs_[epoch].size() > 1) return false;
    }
    return true;
  }

  const Request& request_;
  Facts facts_;
  std::vector<std::vector<Item>> epochs_;
  std::vector<Item> all_;
  std::vector<Known> known_;
};

}  // namespace

std::vector<Known> known_methods(const ServerProfile& server, const Request& request) {
  return Catalog(server, request).take();
}

}  // namespace perdure::plan
