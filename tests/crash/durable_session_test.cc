// What a durable session promises, judged by what callers are told alone: after a power failure at
// any place, every byte is that of the last update that had resolved, or of one after it; nothing
// of a later epoch is there without the whole of the earlier ones; and a READ returns what had
// resolved before it. Updates of any shape and size overlap one another, on every kind of
// responder.
#include "client/durable_session.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>
#include <string_view>
#include <vector>

#include "core/random.h"
#include "persist/request_handler.h"
#include "pmem/pool_format.h"
#include "testing/soak.h"
#include "testing/world_server.h"
#include "tests/crash/atomic_words.h"

namespace perdure::client {
namespace {

const std::string kPool = "ranges";
constexpr std::uint64_t kPoolBytes = 256 * 1024;
constexpr std::uint64_t kArea = 32 * 1024;  // of the pool, from its start, that is written
constexpr std::uint64_t kGranule = 4;       // has one tag
constexpr std::size_t kSlotBytes = 64 * 1024;
constexpr std::uint64_t kNever = UINT64_MAX;  // the number of what may have resolved or not
constexpr std::size_t kRequestBytesMax = 1024;
constexpr std::size_t kReplyBytesMax = 4096;
constexpr auto kExchange = persist::MessageKind::OfPrograms;
constexpr auto kNobodysKind = static_cast<persist::MessageKind>(15);

/// What the requester of an exchange sends, and behind it what nobody reads.
struct ExchangePayload {
  std::uint64_t at = 0;
  std::uint32_t length = 0;
  std::uint32_t tag = 0;
};

/// A program's handler: replies what stands in a range of the pool, and fills it with a tag.
class Exchange final : public persist::RequestHandler {
 public:
  bool writes() const override { return true; }
  Result<std::size_t> handle(persist::Request& request) override {
    ExchangePayload asked;
    if (request.payload().size() < sizeof asked) return Error{ErrorCode::InvalidArgument, "short"};
    std::memcpy(&asked, request.payload().data(), sizeof asked);
    const std::size_t length = asked.length;
    if (!request.inside_pool(asked.at, length) || length > request.reply().size()) {
      return Error{ErrorCode::OutOfRange, "outside"};
    }
    std::byte* const place = request.pool().data() + asked.at;
    std::memcpy(request.reply().data(), place, length);
    for (std::size_t into = 0; into < length; into += kGranule) {
      std::memcpy(place + into, &asked.tag, kGranule);
    }
    request.make_durable(asked.at, length);
    return length;
  }
};

/// Finds a range in order, and stores nothing there.
class Keep final : public persist::RequestHandler {
 public:
  bool writes() const override { return true; }
  Result<std::size_t> handle(persist::Request& request) override {
    request.make_durable(1024, 64);
    return std::size_t{0};
  }
};

Exchange exchange_handler;
Keep keep_handler;
constexpr auto kKeep = static_cast<persist::MessageKind>(9);

persist::RequestHandlers handlers_with_exchange(const server::SessionTerms&) {
  persist::RequestHandlers handlers = persist::built_in_handlers();
  handlers[static_cast<std::size_t>(kExchange)] = &exchange_handler;
  handlers[static_cast<std::size_t>(kKeep)] = &keep_handler;
  return handlers;
}

/// Who wrote a granule: the update, and its epoch within it.
struct Write {
  std::uint64_t update = 0;  // on its connection; 0: of an earlier one, and resolved
  std::uint64_t id = 0;      // of the same, among all
  std::uint32_t epoch = 0;
  std::uint32_t tag = 0;
};

/// One update or READ that was begun, as its caller remembers it.
struct Begun {
  std::uint64_t number = 0;
  bool reads = false;
  std::uint64_t at = 0;  // its first range
  std::size_t length = 0;
  std::vector<std::size_t> least;  // READ or exchange: by granule, the oldest that it may return
  std::vector<std::size_t> below;  // exchange: by granule, the write that it is
  bool exchanges = false;
  std::optional<ErrorCode> refused;  // a request that is to be refused, and how
};

/// A kind of responder.
struct Kind {
  const char* name;
  ServerProfile profile;
};

std::vector<Kind> kinds() {
  std::vector<Kind> all;
  const auto add = [&](const char* name, PersistenceDomain domain, Ddio ddio,
                       ReceiveBuffers buffers, Transport transport, WriteOrder order,
                       bool flush = false) {
    ServerProfile profile;
    profile.domain = domain;
    profile.ddio = ddio;
    profile.receive_buffers = buffers;
    profile.transport = transport;
    profile.write_order = order;
    profile.capabilities.native_flush = flush;
    all.push_back({name, profile});
  };
  using enum PersistenceDomain;
  using enum Transport;
  const auto dram = ReceiveBuffers::Dram, pm = ReceiveBuffers::Pm;
  const auto ordered = WriteOrder::Ordered, unknown = WriteOrder::Unknown;
  add("dmp", Dmp, Ddio::Off, dram, InfiniBand, ordered);
  add("dmp ddio", Dmp, Ddio::On, dram, InfiniBand, ordered);
  add("dmp replay", Dmp, Ddio::Off, pm, InfiniBand, ordered, true);
  all.back().profile.capabilities.persistent_flush = true;
  add("dmp without flush", Dmp, Ddio::Off, pm, InfiniBand, ordered);
  add("mhp", Mhp, Ddio::Off, dram, Roce, ordered);
  add("mhp replay", Mhp, Ddio::Off, pm, InfiniBand, ordered, true);
  add("mhp without flush", Mhp, Ddio::Off, pm, InfiniBand, ordered);
  add("mhp unordered", Mhp, Ddio::On, dram, Roce, unknown);
  add("wsp", Wsp, Ddio::On, dram, InfiniBand, ordered);
  add("wsp replay", Wsp, Ddio::On, pm, InfiniBand, ordered);
  add("wsp replay unordered", Wsp, Ddio::On, pm, Roce, unknown);
  add("wsp unordered", Wsp, Ddio::On, dram, InfiniBand, unknown);
  add("wsp iwarp", Wsp, Ddio::On, dram, Iwarp, unknown);
  add("dmp tcp", Dmp, Ddio::On, dram, Tcp, unknown);
  add("page tcp", Page, Ddio::On, dram, Tcp, unknown);
  add("page rdma", Page, Ddio::On, dram, InfiniBand, unknown);
  add("page on demand", Page, Ddio::On, dram, InfiniBand, unknown);
  all.back().profile.dma_dirties = DmaDirties::Yes;
  add("dmp ddio, flush persists", Dmp, Ddio::On, dram, InfiniBand, ordered, true);
  all.back().profile.capabilities.persistent_flush = true;
  all.back().profile.capabilities.atomic_write = true;
  add("dmp, atomic write", Dmp, Ddio::Off, dram, InfiniBand, ordered);
  all.back().profile.capabilities.atomic_write = true;
  add("mhp unordered, atomic write", Mhp, Ddio::On, dram, InfiniBand, unknown);
  all.back().profile.capabilities.atomic_write = true;
  add("dmp ddio replay, sflush", Dmp, Ddio::On, pm, InfiniBand, ordered);
  all.back().profile.capabilities.send_flush = true;
  add("dmp ddio, pwrite", Dmp, Ddio::On, dram, InfiniBand, ordered);
  all.back().profile.capabilities.ordered_persist = true;
  add("dmp unordered, pwrite", Dmp, Ddio::Off, dram, Roce, unknown);
  all.back().profile.capabilities.ordered_persist = true;
  return all;
}

/// What one kind of responder has met.
struct Met {
  int updates = 0;
  int epochs = 0;  // updates with more than one
  int reads = 0;
  int cuts = 0;      // of power, with an update in flight
  int waited = 0;    // for a write
  int back = 0;      // on a new connection
  int replays = 0;   // connections whose methods replay messages
  int persists = 0;  // connections of which one method writes by PWRITE
  int atomics = 0;   // that resolved
  int exchanges = 0;
  int refused = 0;    // requests
  int coalesced = 0;  // updates that went in a message with others
  int again = 0;      // ranges alone, once the one before them had resolved
};

/// A pool of one responder, a program that writes to it at random, and the judge.
class Writer {
 public:
  Writer(std::uint64_t seed, const Kind& kind, Met& met)
      : random_(seed), kind_(kind), met_(met), place_(kArea / kGranule) {
    test::WorldServer::Options options{kPool, kPoolBytes, {32, 2048}};
    options.handlers = handlers_with_exchange;
    options.reply_bytes_max = kReplyBytesMax;
    server_ = *test::WorldServer::start(world_, "server", kind.profile, options);
    client_ = &world_.add_machine("client", kind.profile);
    for (auto& writes : place_) writes.push_back({});
  }

  void live(int lives) {
    for (int life = 1; life <= lives && !testing::Test::HasFatalFailure(); ++life) one_life(life);
  }

 private:
  /// Whether a method of the session writes by PWRITE.
  bool persists() const {
    for (const Method* method : {&session_->small_method(), &session_->large_method()}) {
      for (const RequesterStep& step : method->requester) {
        if (step.kind == RequesterStep::Kind::Post && step.verb == Verb::WritePersist) return true;
      }
    }
    return false;
  }

  void one_life(int life) {
    DurableSessionOptions options;
    options.clock = &world_.clock();
    options.measure_costs = random_.below(4) == 0;
    options.ranges_again = true;
    options.request_bytes_max = kRequestBytesMax;
    options.reply_bytes_max = kReplyBytesMax;
    options.requests_in_flight = 1 + random_.below(kUpdatesMax);
    constexpr std::array<std::optional<Primary>, 4> kPrimaries = {
        std::nullopt, Primary::Send, Primary::Write, Primary::WriteImm};
    options.primary = kPrimaries[random_.below(kPrimaries.size())];
    const bool keeps_messages = kind_.profile.receive_buffers == ReceiveBuffers::Pm;
    if (keeps_messages && random_.below(2) == 0) options.primary = Primary::Send;
    constexpr std::array kLevels = {Level::Received, Level::Visible, Level::Durable,
                                    Level::Durable,  Level::Durable, Level::Durable};
    options.level = kLevels[random_.below(kLevels.size())];
    const bool tail_word = random_.below(2) == 0;
    auto ready = connect(life, options, tail_word);
    if (!ready.ok() && ready.code() == ErrorCode::Unsupported && options.primary) {
      options.primary.reset();  // no method of this kind is right there
      ready = connect(life, options, tail_word);
    }
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    memory_ = *session_->register_memory(bytes_);
    met_.replays += replays(session_->small_method()) ? 1 : 0;
    met_.persists += persists() ? 1 : 0;
    const bool cuts = random_.below(8) != 0;
    if (cuts) world_.cut_after(server_->machine(), 1 + random_.below(3000));
    for (int step = 0; step < 120; ++step) {
      if (!session_->up() && !comes_back(life)) break;
      if (random_.below(100) == 0) world_.drop_connections(server_->machine(), *client_);
      // What its processor has to store may wait for long.
      if (random_.below(8) == 0) server_->machine().starve(random_.below(2) == 0);
      one_step();
      if (testing::Test::HasFatalFailure()) return;
    }
    server_->machine().starve(false);
    for (int round = 0; round < 200'000 && session_->up() && !session_->idle(); ++round) poll();
    if (!cuts) {
      EXPECT_TRUE(session_->up() || comes_back(life));
      EXPECT_TRUE(!session_->up() || session_->idle());
      world_.settle();
      nothing_went_back();
      if (testing::Test::HasFatalFailure()) return;
    }
    const bool in_flight = !begun_.empty();
    met_.coalesced += static_cast<int>(session_->coalesced());
    world_.cancel_cut();
    if (server_->machine().powered()) server_->lose_power();
    met_.cuts += in_flight ? 1 : 0;
    memory_.reset();
    session_.reset();
    const auto again = server_->start_again();
    ASSERT_TRUE(again.ok()) << again.error().message;
    judge(options.level);
  }

  /// After its connection was lost, and not its responder.
  bool comes_back(int life) {
    if (!server_->machine().powered()) return false;
    // What resolved before it went down is promised, though nobody has looked since.
    while (!begun_.empty() && session_->has_resolved(begun_.begin()->first)) {
      resolved_ = begun_.begin()->first;
      begun_.erase(begun_.begin());
    }
    for (auto& writes : place_) {
      for (Write& write : writes) write.update = write.update <= resolved_ ? 0 : kNever;
    }
    for (const auto& [number, lost] : begun_) EXPECT_TRUE(is_forgotten(number)) << number;
    lost_.insert(begun_.begin(), begun_.end());
    begun_.clear();
    words_.forget(resolved_);
    resolved_ = session_->begun();
    memory_.reset();
    ++connections_;
    server_->machine().starve(false);
    const Epoch epoch{static_cast<std::uint32_t>(life)};
    auto back = session_->open({kPool, true, epoch, 1, "test", true});
    if (back.ok()) memory_ = *session_->register_memory(bytes_);
    if (back.ok()) back = session_->prepare(tail_word_);
    if (!back.ok() && server_->machine().powered()) {
      ADD_FAILURE() << back.error().message;
    }
    met_.back += back.ok() ? 1 : 0;
    if (back.ok()) words_.judge(pool_bytes(), 0, session_->options().level == Level::Durable);
    return back.ok();
  }

  Result<void> connect(int life, const DurableSessionOptions& options, bool tail_word) {
    ++connections_;
    session_.emplace(server_->peer(*client_), options);
    begun_.clear();
    const Epoch epoch{static_cast<std::uint32_t>(life)};
    if (auto opened = session_->open({kPool, true, epoch, 1, "test", true}); !opened) return opened;
    tail_word_ = tail_word;
    return session_->prepare(tail_word);
  }

  void one_step() {
    if (random_.below(3) != 0) return poll();
    switch (random_.below(13)) {
      case 10: return begin_exchange();
      case 11: return random_.below(4) == 0 ? begin_refused() : begin_exchange();
      case 0: return begin_read();
      case 1: return write_at_once();
      case 2: begin_pair(); return random_.below(2) == 0 ? begin_exchange() : poll();
      case 3: return begin_atomic();
      case 4: return random_.below(2) == 0 ? begin_atomic() : write_word();
      case 12: return write_again();
      default: begin_updates();
    }
  }

  /// Now and then more at once than go without waiting for each other.
  void begin_updates() {
    std::size_t updates = random_.below(6) == 0 ? kCoalesceBehind + 3 : 1;
    for (; updates != 0 && session_->up(); --updates) begin_update();
  }

  std::uint64_t draw_length() {
    switch (random_.below(8)) {
      case 0: return kGranule * (1 + random_.below(3000));  // more than a message
      case 1: return 8;
      default: return kGranule * (1 + random_.below(40));
    }
  }

  void begin_update() {
    const std::uint64_t number = session_->begun() + 1;
    std::byte* slot = slot_of(number);
    std::size_t used = 0;
    std::vector<std::vector<persist::UpdateItem>> epochs(1 + random_.below(3));
    // Of one epoch no two ranges overlap; of two epochs they may.
    for (auto& epoch : epochs) {
      std::uint64_t at = kGranule * random_.below(kArea / kGranule / 2);
      const std::uint64_t ranges = 1 + random_.below(3);
      for (std::uint64_t range = 0; range < ranges; ++range) {
        std::uint64_t length = draw_length();
        if (length == 8) at = (at + 7) / 8 * 8;
        length = std::min({length, kArea - at, static_cast<std::uint64_t>(kSlotBytes - used)});
        if (length == 0 || at >= kArea) break;
        epoch.push_back({at, {slot + used, length, memory_.get()}});
        used += length;
        at += length + kGranule * random_.below(100);
      }
      if (epoch.empty()) return;
    }
    std::vector<Ranges> spans(epochs.begin(), epochs.end());
    if (session_->in_flight() == kUpdatesMax) {
      EXPECT_EQ(session_->update(spans).code(), ErrorCode::QueueFull);
      return;
    }
    // What is written is remembered before it is begun: the power may fail in the middle.
    for (std::uint32_t index = 0; index < epochs.size(); ++index) {
      for (const persist::UpdateItem& item : epochs[index]) remember(number, index, item);
    }
    note(number, epochs.front().front(), session_->update(spans));
    met_.epochs += epochs.size() > 1 ? 1 : 0;
  }

  void poll_until_idle() {
    for (int polls = 0; polls < 2000 && session_->up() && !session_->idle(); ++polls) {
      poll();
      if (testing::Test::HasFatalFailure()) return;
    }
  }

  /// A range alone, and then parts of it alone, each as soon as the one before has resolved: its
  /// bytes may not be in their place then.
  void write_again() {
    poll_until_idle();
    const std::uint64_t area = kGranule * (64 + random_.below(1024));
    const std::uint64_t first = kGranule * random_.below((kArea - area) / kGranule);
    std::uint64_t at = first;
    std::uint64_t length = area;
    for (int times = 0; times < 4 && session_->up() && session_->idle(); ++times) {
      const std::uint64_t number = session_->begun() + 1;
      const persist::UpdateItem item{at, {slot_of(number), length, memory_.get()}};
      const Ranges epoch(&item, 1);
      remember(number, 0, item);
      note(number, item, session_->update({&epoch, 1}));
      if (testing::Test::HasFatalFailure()) return;
      ++met_.again;
      poll_until_idle();
      at = first + kGranule * random_.below(area / kGranule);
      length = std::min(kGranule * (1 + random_.below(16)), first + area - at);
    }
  }

  void remember(std::uint64_t number, std::uint32_t epoch, const persist::UpdateItem& item) {
    const Write write{number, connections_ << 32 | (number & UINT32_MAX), epoch, ++last_tag_};
    for (std::uint64_t into = 0; into < item.data.length; into += kGranule) {
      std::memcpy(item.data.data + into, &write.tag, kGranule);
      place_[(item.at + into) / kGranule].push_back(write);
    }
  }

  void note(std::uint64_t number, const persist::UpdateItem& first,
            const Result<std::uint64_t>& begun) {
    Begun update;
    update.number = number;
    update.at = first.at;
    update.length = first.data.length;
    begun_[number] = update;
    if (!session_->up()) return note_not_begun(number);  // what it had begun may be there
    ASSERT_TRUE(begun.ok()) << begun.error().message;
    ASSERT_EQ(*begun, number);
    ++met_.updates;
  }

  /// The connection was lost before it had a number: another one may have that.
  void note_not_begun(std::uint64_t number) {
    if (session_->begun() < number) begun_.erase(number);
  }

  /// A range, and a word in the epoch behind it.
  void begin_pair() {
    const std::uint64_t at = 8 * random_.below(kArea / 16);
    const std::uint64_t word_at = kArea - 8 * (1 + random_.below(4));
    const std::uint64_t length = std::min(draw_length(), word_at - at);
    if (session_->in_flight() == kUpdatesMax) return;
    const std::uint64_t number = session_->begun() + 1;
    std::byte* slot = slot_of(number);
    const std::vector<persist::UpdateItem> items = {{at, {slot, length, memory_.get()}},
                                                    {word_at, {slot + length, 8, memory_.get()}}};
    remember(number, 0, items[0]);
    remember(number, 1, items[1]);
    const std::array<Ranges, 2> epochs = {Ranges(items).first(1), Ranges(items).last(1)};
    note(number, items[0], session_->update(epochs));
    ++met_.epochs;
  }

  /// Fills a range with a tag, and brings what was there.
  void begin_exchange() {
    if (session_->in_flight() == kUpdatesMax) return;
    const std::uint64_t number = session_->begun() + 1;
    Begun wanted;
    wanted.number = number;
    wanted.exchanges = true;
    wanted.at = kGranule * random_.below(kArea / kGranule - 1);
    // Also where pairs have their word, which may travel by another verb than all the rest.
    if (random_.below(4) == 0) wanted.at = kArea - 8 * (1 + random_.below(4));
    wanted.length = kGranule * (1 + random_.below(kReplyBytesMax / kGranule));
    wanted.length = std::min<std::size_t>(wanted.length, kArea - wanted.at);
    const Write write{number, connections_ << 32 | number, 0, ++last_tag_};
    for (std::uint64_t into = 0; into < wanted.length; into += kGranule) {
      auto& writes = place_[(wanted.at + into) / kGranule];
      wanted.least.push_back(last_of_connection(writes));
      wanted.below.push_back(writes.size());
      writes.push_back(write);
    }
    const ExchangePayload asked{wanted.at, static_cast<std::uint32_t>(wanted.length), write.tag};
    ask(wanted, kExchange, asked);
  }

  /// A kind that nobody handles, or a place that is outside.
  void begin_refused() {
    if (session_->in_flight() == kUpdatesMax) return;
    Begun wanted;
    wanted.number = session_->begun() + 1;
    wanted.at = kArea;  // writes nothing
    const bool outside = random_.below(2) == 0;
    wanted.refused = outside ? ErrorCode::OutOfRange : ErrorCode::Unsupported;
    ask(wanted, outside ? kExchange : kNobodysKind, {kPoolBytes, kGranule, 1});
  }

  void ask(const Begun& wanted, persist::MessageKind kind, const ExchangePayload& asked) {
    std::vector<std::byte> payload(sizeof asked + random_.below(kRequestBytesMax - sizeof asked));
    std::memcpy(payload.data(), &asked, sizeof asked);
    begun_[wanted.number] = wanted;
    const auto begun = session_->request(kind, payload, {slot_of(wanted.number), kReplyBytesMax});
    if (!session_->up()) return note_not_begun(wanted.number);
    ASSERT_TRUE(begun.ok()) << begun.error().message;
    ASSERT_EQ(*begun, wanted.number);
  }

  /// Of what was begun on this connection, the last: what was lost before may be there or not.
  static std::size_t last_of_connection(const std::vector<Write>& writes) {
    std::size_t index = writes.size() - 1;
    while (index > 0 && writes[index].update == kNever) --index;
    return index;
  }

  void begin_atomic() {
    if (session_->in_flight() == kUpdatesMax) return;
    const std::uint64_t number = session_->begun() + 1;
    const auto atomic = words_.next(random_, random_.below(words_.kWords), number);
    note(number, {atomic.at, {nullptr, 8, nullptr}}, session_->atomic(atomic));
  }

  /// A word that atomics change, by an update.
  void write_word() {
    if (session_->in_flight() == kUpdatesMax) return;
    const std::uint64_t number = session_->begun() + 1;
    const std::uint64_t value = random_.next();
    const std::size_t word = random_.below(words_.kWords);
    std::memcpy(slot_of(number), &value, sizeof value);
    words_.note_update(word, number, value);
    const persist::UpdateItem item{words_.place(word), {slot_of(number), 8, memory_.get()}};
    const Ranges epoch(&item, 1);
    note(number, item, session_->update({&epoch, 1}));
  }

  /// Waits, but not for long: what is in flight then, the next update of the place has to wait for.
  void write_at_once() {
    const std::uint64_t at = kGranule * random_.below(kArea / kGranule - 1);
    std::vector<std::byte> bytes(std::min(draw_length(), kArea - at));
    const std::uint64_t number = session_->begun() + 1;
    const persist::UpdateItem item{at, {bytes.data(), bytes.size(), nullptr}};
    // It goes in pieces that count as updates of their own: only what comes back is judged.
    remember(kNever, 0, item);
    session_->set_deadline(Deadline(world_.clock(), std::chrono::microseconds(random_.below(50))));
    const auto written = session_->write_now(at, bytes);
    session_->set_deadline(std::nullopt);
    ++met_.waited;
    if (!written.ok()) return poll();
    for (std::uint64_t into = 0; into < bytes.size(); into += kGranule) {
      place_[(at + into) / kGranule].back().update = number;
    }
    poll();  // what resolved meanwhile is looked at before its memory is used again
    while (session_->has_resolved(resolved_ + 1)) ++resolved_;
  }

  void begin_read() {
    const std::uint64_t at = kGranule * random_.below(kArea / kGranule - 1);
    begin_read(at, std::min(draw_length(), kArea - at));
  }

  void begin_read(std::uint64_t at, std::size_t length) {
    if (session_->in_flight() == kUpdatesMax) return;
    Begun read;
    read.number = session_->begun() + 1;
    read.reads = true;
    read.at = at;
    read.length = length;
    for (std::uint64_t into = 0; into < read.length; into += kGranule) {
      read.least.push_back(last_reported((read.at + into) / kGranule));
    }
    const auto begun = session_->read(read.at, {slot_of(read.number), read.length, memory_.get()});
    if (!session_->up()) return;
    ASSERT_TRUE(begun.ok()) << begun.error().message;
    begun_[read.number] = read;
  }

  void poll() {
    session_->poll();
    if (!session_->up()) return;
    for (const auto& [number, lost] : lost_) EXPECT_TRUE(is_forgotten(number)) << number;
    while (!begun_.empty() && session_->has_resolved(begun_.begin()->first)) {
      const Begun done = begun_.begin()->second;
      begun_.erase(begun_.begin());
      resolved_ = done.number;
      if (done.reads) check_read(done);
      if (words_.has(done.number)) check_atomic(done.number);
      if (done.exchanges || done.refused) check_reply(done);
      if (testing::Test::HasFatalFailure() || !session_->up()) return;
      // What has just resolved is asked for at once.
      const bool tagged = done.at < kArea;
      if (!done.reads && tagged && random_.below(4) == 0) begin_read(done.at, done.length);
    }
  }

  void check_atomic(std::uint64_t number) {
    const auto before = session_->value_before(number);
    ASSERT_TRUE(before.ok()) << before.error().message;
    words_.check_before(number, *before);
    ++met_.atomics;
  }

  void check_reply(const Begun& asked) {
    const auto bytes = session_->reply_bytes(asked.number);
    if (asked.refused) {
      ASSERT_EQ(bytes.code(), *asked.refused);
      ++met_.refused;
      return;
    }
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    ASSERT_EQ(*bytes, asked.length);
    check_read(asked);
    ++met_.exchanges;
  }

  void check_read(const Begun& read) {
    const std::byte* bytes = slot_of(read.number);
    for (std::size_t index = 0; index < read.least.size(); ++index) {
      const std::size_t granule = read.at / kGranule + index;
      const auto found = find(granule, bytes + index * kGranule);
      ASSERT_TRUE(found.has_value()) << where(granule) << " reads what nobody wrote";
      ASSERT_GE(*found, read.least[index]) << where(granule) << " reads an older update";
      if (read.exchanges) {
        ASSERT_LT(*found, read.below[index]) << where(granule) << " replies what came later";
      }
    }
    ++met_.reads;
  }

  /// The place in its history of what stands in a granule.
  std::optional<std::size_t> find(std::size_t granule, const std::byte* bytes) const {
    std::uint32_t tag = 0;
    std::memcpy(&tag, bytes, kGranule);
    const auto& writes = place_[granule];
    for (std::size_t index = writes.size(); index-- > 0;) {
      if (writes[index].tag == tag) return index;
    }
    return std::nullopt;
  }

  std::size_t last_resolved(std::size_t granule, std::uint64_t resolved) const {
    const auto& writes = place_[granule];
    std::size_t index = writes.size() - 1;
    while (index > 0 && writes[index].update > resolved) --index;
    return index;
  }

  /// The last write of a granule that the session says has resolved.
  std::size_t last_reported(std::size_t granule) const {
    const auto& writes = place_[granule];
    std::size_t index = writes.size() - 1;
    const auto open = [&](const Write& write) {
      return write.update != 0 && !session_->has_resolved(write.update);
    };
    while (index > 0 && open(writes[index])) --index;
    return index;
  }

  /// And did not resolve, as far as anybody will ever know.
  bool is_forgotten(std::uint64_t number) const {
    return session_->is_forgotten(number) && !session_->has_resolved(number);
  }

  const std::byte* pool_bytes() { return server_->region().bytes().data() + pmem::kPoolDataOffset; }

  void judge(Level level) {
    const std::byte* pool = pool_bytes();
    words_.judge(pool, resolved_, level == Level::Durable);
    if (testing::Test::HasFatalFailure()) return;
    // By update and epoch: a granule that shows it, and one that lacks it.
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::size_t> shown;
    std::map<std::pair<std::uint64_t, std::uint32_t>, std::size_t> lacking;
    const std::uint64_t resolved = resolved_;
    for (std::size_t granule = 0; granule < place_.size(); ++granule) {
      auto& writes = place_[granule];
      const auto found = find(granule, pool + granule * kGranule);
      ASSERT_TRUE(found.has_value()) << where(granule) << " holds what nobody wrote";
      if (level == Level::Durable) {
        ASSERT_GE(*found, last_resolved(granule, resolved))
            << where(granule) << " lost update " << writes[last_resolved(granule, resolved)].update
            << " of " << resolved << " resolved, and holds " << writes[*found].update;
        const Write& held = writes[*found];
        if (held.id != 0) shown[{held.id, held.epoch}] = granule;
        for (std::size_t later = *found + 1; later < writes.size(); ++later) {
          lacking[{writes[later].id, writes[later].epoch}] = granule;
        }
      }
      writes = {{0, 0, 0, writes[*found].tag}};
    }
    for (const auto& [which, granule] : shown) {
      for (std::uint32_t earlier = 0; earlier < which.second; ++earlier) {
        const auto lacks = lacking.find({which.first, earlier});
        ASSERT_TRUE(lacks == lacking.end())
            << where(granule) << " holds epoch " << which.second << " of update " << which.first
            << ", and byte " << lacks->second * kGranule << " lacks its epoch " << earlier;
      }
    }
    resolved_ = 0;
    lost_.clear();
  }

  /// All has resolved and been placed.
  void nothing_went_back() {
    const std::byte* pool = pool_bytes();
    for (std::size_t granule = 0; granule < place_.size(); ++granule) {
      const auto found = find(granule, pool + granule * kGranule);
      ASSERT_TRUE(found.has_value());
      ASSERT_GE(*found, last_resolved(granule, kNever - 1)) << where(granule) << " went back";
    }
  }

  std::string where(std::size_t granule) const {
    return fmt::format("{}: byte {}", kind_.name, granule * kGranule);
  }
  std::byte* slot_of(std::uint64_t number) {
    return bytes_.data() + number % kUpdatesMax * kSlotBytes;
  }

  Random random_;
  const Kind& kind_;
  Met& met_;
  fabric::emu::World world_{random_};
  std::unique_ptr<test::WorldServer> server_;
  fabric::emu::Machine* client_ = nullptr;
  std::vector<std::byte> bytes_{kUpdatesMax * kSlotBytes};
  std::optional<DurableSession> session_;
  bool tail_word_ = false;
  std::unique_ptr<fabric::Memory> memory_;
  std::vector<std::vector<Write>> place_;  // by granule: who wrote it, in order
  std::map<std::uint64_t, Begun> begun_;   // and not resolved
  std::map<std::uint64_t, Begun> lost_;    // of earlier connections
  test::AtomicWords words_{kArea};
  std::uint64_t resolved_ = 0;  // the last of which the caller knew
  std::uint32_t last_tag_ = 0;
  std::uint64_t connections_ = 0;
};

TEST(DurableSession, KeepsItsPromisesWhereverThePowerFails) {
  const std::vector<Kind> all = kinds();
  std::vector<Met> met(all.size());
  const std::uint64_t worlds = test::rounds(8, 2000);
  for (std::uint64_t world = 0; world < worlds && !HasFatalFailure(); ++world) {
    for (std::size_t kind = 0; kind < all.size(); ++kind) {
      const std::uint64_t seed = 1000 * world + kind + 1;
      SCOPED_TRACE(fmt::format("{}, seed {}", all[kind].name, seed));
      Writer(seed, all[kind], met[kind]).live(3);
      if (HasFatalFailure()) return;
    }
  }
  for (std::size_t kind = 0; kind < all.size(); ++kind) {
    const Met& each = met[kind];
    std::printf(
        "%-24s updates %d, of several epochs %d, reads %d, waited %d, back %d, power cuts %d, "
        "replaying %d, by pwrite %d, atomics %d, exchanges %d, refused %d, coalesced %d, again "
        "%d\n",
        all[kind].name, each.updates, each.epochs, each.reads, each.waited, each.back, each.cuts,
        each.replays, each.persists, each.atomics, each.exchanges, each.refused, each.coalesced,
        each.again);
    EXPECT_GT(each.coalesced, 0) << all[kind].name;
    EXPECT_GT(each.again, 0) << all[kind].name;
    EXPECT_GT(each.exchanges, 0) << all[kind].name;
    EXPECT_GT(each.refused, 0) << all[kind].name;
    EXPECT_GT(each.atomics, 0) << all[kind].name;
    EXPECT_GT(each.epochs, 0) << all[kind].name;
    EXPECT_GT(each.reads, 0) << all[kind].name;
    EXPECT_GT(each.waited, 0) << all[kind].name;
    EXPECT_GT(each.back, 0) << all[kind].name;
    EXPECT_GT(each.cuts, 0) << all[kind].name;
    // On mhp a message is durable behind a FLUSH, on dmp behind one to persistence, and a READ is
    // none for it.
    const ServerProfile& profile = all[kind].profile;
    const bool flushes = profile.domain == PersistenceDomain::Dmp
                             ? profile.capabilities.persistent_flush
                             : profile.capabilities.native_flush;
    const bool may_replay = profile.receive_buffers == ReceiveBuffers::Pm &&
                            (profile.domain == PersistenceDomain::Wsp || flushes);
    EXPECT_EQ(each.replays > 0, may_replay) << all[kind].name;
    EXPECT_EQ(each.persists > 0, profile.capabilities.ordered_persist) << all[kind].name;
  }
}

// Recovery stops at a request. An atomic that nobody has handled, and an update behind it that
// could be replayed: it must not be reported, or a power failure takes it.
TEST(DurableSession, WhatIsReplayedIsNotReportedBehindAnAtomicThatIsNotHandled) {
  for (const Kind& kind : kinds()) {
    if (std::string(kind.name) != "wsp replay" && std::string(kind.name) != "dmp replay") continue;
    SCOPED_TRACE(kind.name);
    Random random(3);
    fabric::emu::World world{random};
    const auto server =
        *test::WorldServer::start(world, "server", kind.profile, {kPool, kPoolBytes, {32, 2048}});
    fabric::emu::Machine& client = world.add_machine("client", kind.profile);
    DurableSessionOptions options;
    options.clock = &world.clock();
    options.measure_costs = false;
    options.ranges_again = true;
    options.primary = Primary::Send;
    options.timeout = std::chrono::hours(1);
    DurableSession session(server->peer(client), options);
    ASSERT_TRUE(session.open({kPool, true, Epoch{1}, 1, "test", true}).ok());
    std::vector<std::byte> bytes(64, std::byte{7});
    const auto memory = *session.register_memory(bytes);
    ASSERT_TRUE(session.prepare(false).ok());
    ASSERT_TRUE(replays(session.small_method()));
    const auto poll = [&](int rounds) {
      for (int round = 0; round < rounds && !session.idle(); ++round) session.poll();
    };
    const auto update = [&](std::uint64_t at) {
      const persist::UpdateItem range{at, {bytes.data(), bytes.size(), memory.get()}};
      const Ranges epoch(&range, 1);
      return session.update({&epoch, 1});
    };
    // Without an atomic before it the update is reported, though nobody has handled it.
    server->machine().starve(true);
    const auto alone = update(1024);
    ASSERT_TRUE(alone.ok());
    poll(20'000);
    EXPECT_TRUE(session.has_resolved(*alone)) << "nothing was shown";
    ASSERT_TRUE(session.atomic({persist::AtomicOperation::FetchAdd, 64, 5, 0}).ok());
    const auto behind = update(2048);
    ASSERT_TRUE(behind.ok());
    poll(20'000);
    const bool reported = session.has_resolved(*behind);
    server->lose_power();
    ASSERT_TRUE(server->start_again().ok());
    const std::byte* pool = server->region().bytes().data() + pmem::kPoolDataOffset;
    EXPECT_EQ(pool[1024], std::byte{7});
    EXPECT_FALSE(reported);
    EXPECT_EQ(pool[64], std::byte{0});
    session.close();
  }
}

// An update that is reported and could be replayed, and behind it one of two epochs that stores to
// the same place, handled together. Expect: wherever the power fails, where the later epoch is, the
// earlier one is, too.
TEST(DurableSession, WhatIsReplayedIsNotStoredOverAnOrderedUpdateBehindIt) {
  int shown = 0;  // kinds of responders
  int later = 0;
  int neither = 0;
  for (const Kind& kind : kinds()) {
    if (std::string(kind.name).find("replay") == std::string::npos) continue;
    SCOPED_TRACE(kind.name);
    bool ended = false;
    for (std::uint64_t events = 1; events < 400 && !ended; ++events) {
      SCOPED_TRACE(events);
      Random random(events);
      fabric::emu::World world{random};
      const auto server =
          *test::WorldServer::start(world, "server", kind.profile, {kPool, kPoolBytes, {32, 2048}});
      fabric::emu::Machine& client = world.add_machine("client", kind.profile);
      DurableSessionOptions options;
      options.clock = &world.clock();
      options.measure_costs = false;
      options.ranges_again = true;
      options.primary = Primary::Send;
      options.request_bytes_max = 1024;
      options.timeout = std::chrono::hours(1);
      DurableSession session(server->peer(client), options);
      ASSERT_TRUE(session.open({kPool, true, Epoch{1}, 1, "test", true}).ok());
      std::vector<std::byte> bytes(128, std::byte{1});
      std::fill(bytes.begin() + 64, bytes.end(), std::byte{2});
      const auto memory = *session.register_memory(bytes);
      ASSERT_TRUE(session.prepare(false).ok());
      const auto poll = [&](int rounds) {
        for (int round = 0; round < rounds && !session.idle(); ++round) session.poll();
      };
      const auto item = [&](std::uint64_t at, std::size_t from) {
        return persist::UpdateItem{at, {bytes.data() + from, 64, memory.get()}};
      };
      server->machine().starve(true);
      const std::array<persist::UpdateItem, 1> first = {item(1024, 0)};
      const Ranges alone(first);
      const auto reported = session.update({&alone, 1});
      ASSERT_TRUE(reported.ok());
      poll(20'000);
      if (!session.has_resolved(*reported)) break;  // its method is no replay
      const std::array<persist::UpdateItem, 2> earlier = {item(1024, 64), item(2048, 64)};
      const std::array<persist::UpdateItem, 1> last = {item(3072, 64)};
      const std::array<Ranges, 2> epochs = {Ranges(earlier), Ranges(last)};
      const auto ordered = session.update(epochs);
      ASSERT_TRUE(ordered.ok());
      poll(2'000);  // it is there
      server->machine().starve(false);
      world.cut_after(server->machine(), events);
      poll(20'000);
      ended = session.up() && session.has_resolved(*ordered);
      world.cancel_cut();
      server->lose_power();
      ASSERT_TRUE(server->start_again().ok());
      const std::byte* pool = server->region().bytes().data() + pmem::kPoolDataOffset;
      EXPECT_NE(pool[1024], std::byte{0});
      const bool is_there = pool[3072] == std::byte{2};
      ++(is_there ? later : neither);
      EXPECT_TRUE(!is_there || (pool[1024] == std::byte{2} && pool[2048] == std::byte{2}));
      session.close();
    }
    shown += ended ? 1 : 0;
  }
  EXPECT_GE(shown, 2);
  EXPECT_GT(later, 0);
  EXPECT_GT(neither, 0);
}

// An ATOMIC WRITE is non-posted: a request behind it would be handled while it is on its way.
TEST(DurableSession, ARequestIsHandledBehindAnAtomicWriteOfItsWord) {
  constexpr std::uint64_t kWordAt = 512;
  int atomic_writes = 0;
  for (const Kind& kind : kinds()) {
    if (!kind.profile.capabilities.atomic_write) continue;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", kind.name, seed));
      Random random(seed);
      fabric::emu::World world{random};
      const auto server =
          *test::WorldServer::start(world, "server", kind.profile, {kPool, kPoolBytes, {32, 2048}});
      fabric::emu::Machine& client = world.add_machine("client", kind.profile);
      DurableSessionOptions options;
      options.clock = &world.clock();
      options.measure_costs = false;
      options.ranges_again = true;
      options.primary = Primary::Write;
      options.timeout = std::chrono::hours(1);
      DurableSession session(server->peer(client), options);
      ASSERT_TRUE(session.open({kPool, true, Epoch{1}, 1, "test", true}).ok());
      std::vector<std::byte> bytes(64, std::byte{7});
      std::uint64_t word = 1000 + seed;
      const auto memory = *session.register_memory(bytes);
      const auto word_memory =
          *session.register_memory(std::as_writable_bytes(std::span(&word, 1)));
      ASSERT_TRUE(session.prepare(true).ok());
      const auto steps = session.small_method().requester;
      atomic_writes += std::any_of(steps.begin(), steps.end(), [](const RequesterStep& step) {
        return step.kind == RequesterStep::Kind::Post && step.verb == Verb::WriteAtomic;
      });
      const std::array<persist::UpdateItem, 2> items = {
          persist::UpdateItem{1024, {bytes.data(), bytes.size(), memory.get()}},
          persist::UpdateItem{
              kWordAt, {reinterpret_cast<std::byte*>(&word), sizeof word, word_memory.get()}}};
      ASSERT_TRUE(session.begin(items).ok());
      const auto added = session.atomic({persist::AtomicOperation::FetchAdd, kWordAt, 5, 0});
      ASSERT_TRUE(added.ok());
      for (int round = 0; round < 20'000 && !session.idle(); ++round) session.poll();
      ASSERT_TRUE(session.idle() && session.up());
      const auto before = session.value_before(*added);
      ASSERT_TRUE(before.ok());
      EXPECT_EQ(*before, word);
      session.close();
    }
  }
  EXPECT_GT(atomic_writes, 0) << "nothing was shown";
}

/// What is written of any size, and where: not over one another.
struct SizedRange {
  std::uint64_t at;
  std::uint64_t length;
};
constexpr std::array<SizedRange, 3> kSizedRanges = {{{7, 1}, {63, 3}, {1021, kRangeBytesMax}}};

/// Writes each of them, and what is larger by a byte or empty; then the power fails.
void write_sized_ranges(const Kind& kind, std::vector<std::byte>& bytes) {
  Random random(13);
  fabric::emu::World world{random};
  const auto server = *test::WorldServer::start(world, "server", kind.profile,
                                                {kPool, kRangeBytesMax + 1024 * 1024, {32, 2048}});
  DurableSessionOptions options;
  options.clock = &world.clock();
  options.measure_costs = false;
  options.ranges_again = true;
  options.timeout = std::chrono::hours(1);
  DurableSession session(server->peer(world.add_machine("client", kind.profile)), options);
  ASSERT_TRUE(session.open({kPool, true, Epoch{1}, 1, "test", true}).ok());
  auto memory = *session.register_memory(bytes);
  ASSERT_TRUE(session.prepare(false).ok());
  for (const std::uint64_t length : {kRangeBytesMax + 1, std::uint64_t{0}}) {
    const persist::UpdateItem range{0, {bytes.data(), length, memory.get()}};
    const Ranges epoch(&range, 1);
    const auto refused = session.update({&epoch, 1});
    EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument);
    EXPECT_EQ(refused.error().message,
              fmt::format("a range of {} bytes; an update takes 1 to 16777216", length));
  }
  for (const SizedRange& each : kSizedRanges) {
    const persist::UpdateItem range{each.at, {bytes.data(), each.length, memory.get()}};
    const Ranges epoch(&range, 1);
    const auto number = session.update({&epoch, 1});
    ASSERT_TRUE(number.ok()) << number.error().message;
    for (int round = 0; round < 2'000'000 && session.up() && !session.idle(); ++round) {
      session.poll();
    }
    ASSERT_TRUE(session.up() && session.has_resolved(*number)) << each.length;
  }
  server->lose_power();
  ASSERT_TRUE(server->start_again().ok());
  const auto kept = server->region().bytes().subspan(pmem::kPoolDataOffset);
  std::uint64_t behind = 0;  // the range before
  for (const SizedRange& each : kSizedRanges) {
    EXPECT_EQ(std::memcmp(kept.data() + each.at, bytes.data(), each.length), 0) << each.length;
    const auto gap = kept.subspan(behind, each.at - behind);
    EXPECT_EQ(std::ranges::count(gap, std::byte{0}), std::ssize(gap)) << each.length;
    behind = each.at + each.length;
  }
  EXPECT_EQ(kept[behind], std::byte{0});
  session.close();
  memory.reset();
}

// One byte, three over the end of a cache line, the largest at an odd place, and one byte more.
TEST(DurableSession, ARangeOfAnySizeIsDurableAndALargerOneIsRefusedByName) {
  std::vector<std::byte> bytes(kRangeBytesMax + 1);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(1 + i % 251);
  const std::set<std::string_view> chosen = {"dmp",        "dmp ddio",  "mhp unordered",
                                             "wsp replay", "wsp iwarp", "page tcp"};
  std::size_t shown = 0;
  for (const Kind& kind : kinds()) {
    if (!chosen.contains(kind.name)) continue;
    SCOPED_TRACE(kind.name);
    write_sized_ranges(kind, bytes);
    ++shown;
  }
  EXPECT_EQ(shown, chosen.size());
}

// A writer that asks for less WRITEs into pages of a file that the kernel then takes for clean. The
// next writer reads what it finds there, and builds on it; so does a handler.
TEST(DurableSession, WhatAWriterFindsIsDurableWhoeverWroteIt) {
  int unnoticed = 0;  // bytes that a power failure would have taken
  const std::vector<Kind> all = kinds();
  for (std::size_t each = 0; each < 2 * all.size(); ++each) {
    const Kind& kind = all[each / 2];
    const bool handler = each % 2 == 1;
    if (kind.profile.domain != PersistenceDomain::Page) continue;
    SCOPED_TRACE(kind.name);
    Random random(11);
    fabric::emu::World world{random};
    test::WorldServer::Options serving{kPool, kPoolBytes, {32, 2048}};
    serving.handlers = handlers_with_exchange;
    const auto server = *test::WorldServer::start(world, "server", kind.profile, serving);
    fabric::emu::Machine& client = world.add_machine("client", kind.profile);
    DurableSessionOptions options;
    options.clock = &world.clock();
    options.measure_costs = false;
    options.ranges_again = true;
    options.level = Level::Visible;
    options.primary = Primary::Write;
    DurableSession first(server->peer(client), options);
    ASSERT_TRUE(first.open({kPool, true, Epoch{1}, 1, "test", true}).ok());
    std::vector<std::byte> bytes(64, std::byte{7});
    auto memory = *first.register_memory(bytes);
    ASSERT_TRUE(first.prepare(false).ok());
    const persist::UpdateItem range{1024, {bytes.data(), bytes.size(), memory.get()}};
    const Ranges epoch(&range, 1);
    ASSERT_TRUE(first.update({&epoch, 1}).ok());
    for (int round = 0; round < 20'000 && !first.idle(); ++round) first.poll();
    ASSERT_TRUE(first.idle() && first.up());
    const pmem::Range there{pmem::kPoolDataOffset + 1024, bytes.size()};
    ASSERT_TRUE(server->region().flush(there.at, there.length).ok());
    const bool noticed = server->region().is_durable(there);
    unnoticed += noticed ? 0 : 1;
    if (handler) {
      ASSERT_TRUE(first.request(kKeep, {}, {}).ok());
      for (int round = 0; round < 20'000 && !first.idle(); ++round) first.poll();
      ASSERT_TRUE(first.idle() && first.up());
    }
    EXPECT_EQ(server->region().is_durable(there), noticed || handler);
    first.close();

    options.level = Level::Durable;
    options.primary.reset();
    DurableSession second(server->peer(client), options);
    const auto opened = second.open({kPool, true, Epoch{2}, 2, "next", true});
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    server->lose_power();
    ASSERT_TRUE(server->start_again().ok());
    EXPECT_EQ(server->region().bytes()[there.at], std::byte{7});
    second.close();
    memory.reset();
  }
  EXPECT_GT(unnoticed, 0) << "nothing was shown";
}

// Its last answer comes when the time-out has long passed, and answers come all the time.
TEST(DurableSession, ALongUpdateIsNoSilence) {
  Random random(7);
  fabric::emu::World world{random};
  const Kind kind = kinds().front();
  const auto server =
      *test::WorldServer::start(world, "server", kind.profile, {kPool, kPoolBytes, {32, 2048}});
  fabric::emu::Machine& client = world.add_machine("client", kind.profile);
  DurableSessionOptions options;
  options.clock = &world.clock();
  options.measure_costs = false;
  options.ranges_again = true;
  options.timeout = std::chrono::milliseconds(4);
  DurableSession session(server->peer(client), options);
  const auto opened = session.open({kPool, true, Epoch{1}, 1, "test", true});
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::vector<std::byte> bytes(64);
  const auto memory = *session.register_memory(bytes);
  ASSERT_TRUE(session.prepare(false).ok());
  const persist::UpdateItem range{0, {bytes.data(), bytes.size(), memory.get()}};
  const std::vector<Ranges> epochs(10'000, Ranges(&range, 1));
  const Nanoseconds begun = world.clock().now();
  ASSERT_TRUE(session.update(epochs).ok());
  for (int round = 0; round < 200'000 && !session.idle() && session.up(); ++round) {
    session.poll();
    session.check_timeout();
  }
  EXPECT_TRUE(session.up()) << session.down_reason()->message;
  EXPECT_TRUE(session.idle());
  EXPECT_GT(world.clock().now() - begun, 2 * options.timeout) << "nothing was shown";
}

/// One that does not measure, and one range of 64 bytes that it writes.
struct Watched {
  explicit Watched(std::uint64_t seed) : random(seed) {
    server = *test::WorldServer::start(world, "server", kinds().front().profile,
                                       {kPool, kPoolBytes, {32, 2048}});
    client = &world.add_machine("client", kinds().front().profile);
    DurableSessionOptions options;
    options.clock = &world.clock();
    options.measure_costs = false;
    options.ranges_again = true;
    options.timeout = kTimeout;
    session.emplace(server->peer(*client), options);
    EXPECT_TRUE(session->open({kPool, true, Epoch{1}, 1, "test", true}).ok());
    memory = *session->register_memory(bytes);
    EXPECT_TRUE(session->prepare(false).ok());
  }
  ~Watched() {
    session->close();
    memory.reset();
  }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  void write() {
    const persist::UpdateItem range{0, {bytes.data(), bytes.size(), memory.get()}};
    const Ranges epoch(&range, 1);
    EXPECT_TRUE(session->update({&epoch, 1}).ok());
  }
  void look() {
    session->poll();
    session->check_timeout();
  }

  static constexpr Nanoseconds kTimeout = std::chrono::seconds(1);
  Random random;
  fabric::emu::World world{random};
  std::unique_ptr<test::WorldServer> server;
  fabric::emu::Machine* client = nullptr;
  std::array<std::byte, 64> bytes{};
  std::unique_ptr<fabric::Memory> memory;
  std::optional<DurableSession> session;
};

// Receive: nothing, ever; the session is looked at so often. Expect: it goes down in the time-out,
// or within twice that, or at the third look at the latest; and never before.
TEST(DurableSession, ASilentPeerIsDownHoweverSeldomItIsLookedAt) {
  struct Case {
    Nanoseconds between;  // two looks
    Nanoseconds down_by;
  };
  constexpr Nanoseconds kOut = Watched::kTimeout;
  for (const Case& each :
       {Case{kOut / 100, kOut + kOut / 50}, Case{kOut / 8, kOut + kOut / 4},
        Case{kOut / 2, 2 * kOut}, Case{kOut, 3 * kOut}, Case{20 * kOut, 60 * kOut}}) {
    SCOPED_TRACE(each.between.count());
    Watched watched(3);
    watched.world.set_link(*watched.client, watched.server->machine(), fabric::emu::LinkState::Cut);
    const Nanoseconds begun = watched.world.clock().now();
    watched.write();
    for (int look = 0; look < 1000 && watched.session->up(); ++look) {
      watched.world.tick(each.between);
      watched.look();
    }
    ASSERT_FALSE(watched.session->up());
    const Nanoseconds took = watched.world.clock().now() - begun;
    EXPECT_GE(took, kOut);
    EXPECT_LE(took, each.down_by + kOut / 100);
  }
}

// Nobody looks for long, before and between the looks, and nothing moves meanwhile, as when the
// machine sleeps. Expect: the peer, which is well, has time to answer then.
TEST(DurableSession, WhoDidNotLookGivesThePeerItsTime) {
  for (int looks = 0; looks < 8; ++looks) {
    SCOPED_TRACE(looks);
    Watched watched(5);
    const fabric::emu::Machine& server = watched.server->machine();
    watched.world.set_link(*watched.client, server, fabric::emu::LinkState::Cut);
    watched.write();
    for (int look = 0; look < looks; ++look) {
      watched.world.tick(Watched::kTimeout / 10);
      watched.look();
    }
    ASSERT_TRUE(watched.session->up());
    watched.world.tick(20 * Watched::kTimeout);
    watched.look();
    ASSERT_TRUE(watched.session->up()) << watched.session->down_reason()->message;
    ASSERT_FALSE(watched.session->idle()) << "nothing was shown";
    watched.world.set_link(*watched.client, server, fabric::emu::LinkState::Up);
    for (int look = 0; look < 100'000 && watched.session->up() && !watched.session->idle();
         ++look) {
      watched.look();
    }
    EXPECT_TRUE(watched.session->up()) << watched.session->down_reason()->message;
    EXPECT_TRUE(watched.session->idle());
  }
}

}  // namespace
}  // namespace perdure::client
