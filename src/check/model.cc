// Compiles a script into the tables that the next-state function reads.
#include "check/model.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/assert.h"

namespace perdure::check {
namespace {

Error not_modelled(std::string what) {
  return Error{ErrorCode::InvalidArgument, "the checker's machine can not run this: " + what};
}

void add(Mask& mask, std::size_t cell) { mask[word_of(cell)] |= bit_of(cell); }

void add(Mask& mask, const Mask& other) {
  for (std::size_t word = 0; word < kWordsMax; ++word) mask[word] |= other[word];
}

bool posts(const RequesterStep& step, Verb verb) {
  return step.kind == RequesterStep::Kind::Post && step.verb == verb;
}

bool carries_data(const RequesterStep& step) {
  return step.kind == RequesterStep::Kind::Post && brings_items(step.verb);
}

Keeps keeps_of(const ServerProfile& profile, Level level) {
  if (level == Level::Received) return Keeps::Delivered;
  if (level == Level::Visible) return Keeps::Visible;
  switch (profile.domain) {
    case PersistenceDomain::None: return Keeps::Nothing;
    case PersistenceDomain::Page:
    case PersistenceDomain::Dmp: return Keeps::Domain;
    case PersistenceDomain::Mhp: return Keeps::Visible;
    case PersistenceDomain::Wsp: return Keeps::Delivered;
  }
  return Keeps::Nothing;
}

/// Fills one Program, part by part; each part reads only what the ones before it have written.
class Compiler {
 public:
  Compiler(const Script& script, const ServerProfile& profile, const CompileOptions& options)
      : script_(script), profile_(profile), options_(options) {
    program_.script = script;
    program_.keeps = keeps_of(profile, options.level);
    program_.write_order = keeps_write_order(profile);
    program_.loses = profile.qp_type != QpType::Rc;
    program_.connections.resize(script.connections);
    program_.first_cell = (script.connections - 1) * kCellsPerConnection;
    program_.cells = program_.first_cell;
  }

  Result<Program> run() {
    if (auto checked = queue_pair_carries(); !checked) return checked.error();
    item_cells();
    places();
    if (auto checked = one_way_per_item(); !checked) return checked.error();
    operations();
    if (auto checked = within_limits(); !checked) return checked.error();
    ordering();
    messages();
    reactions();
    requester_tables();
    promises();
    add_recovery(program_, options_.recovery);
    if (program_.recovery.size() > kRecoveryMax) return not_modelled("too much to replay");
    return std::move(program_);
  }

 private:
  void item_cells() {
    const std::size_t items = script_.epoch_of_item.size();
    const std::size_t epochs = script_.dependents.size();
    program_.item_cells.resize(items);
    std::vector<Mask> epoch_cells(epochs);
    for (std::size_t item = 0; item < items; ++item) {
      const bool one = script_.small_item[item] || shares_place(item);
      const std::size_t units = one ? 1 : options_.units_per_item;
      first_cell_.push_back(program_.cells);
      units_.push_back(units);
      for (std::size_t unit = 0; unit < units; ++unit) {
        const std::size_t cell = program_.cells++;
        if (cell >= kCellsMax) continue;  // refused by within_limits
        add(program_.item_cells[item], cell);
      }
      add(epoch_cells[script_.epoch_of_item[item]], program_.item_cells[item]);
    }
    for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
      Order order{epoch_cells[epoch], {}};
      for (const std::size_t later : script_.dependents[epoch])
        add(order.later, epoch_cells[later]);
      if (order.later != Mask{}) program_.orders.push_back(order);
    }
  }

  bool shares_place(std::size_t item) const {
    const auto& places = script_.place_of_item;
    return !places.empty() && std::count(places.begin(), places.end(), places[item]) > 1;
  }

  /// Cells for the versions of each place that several items share.
  void places() {
    program_.version_of_cell.resize(program_.cells);
    std::vector<std::size_t> numbers;  // by Program::places: the script's number of it
    for (std::size_t item = 0; item < script_.place_of_item.size(); ++item) {
      if (!shares_place(item)) continue;
      const std::size_t number = script_.place_of_item[item];
      const auto known = std::find(numbers.begin(), numbers.end(), number);
      const auto index = static_cast<std::size_t>(known - numbers.begin());
      if (known == numbers.end()) {
        numbers.push_back(number);
        program_.places.emplace_back();
      }
      SharedPlace& place = program_.places[index];
      place.cells.push_back(first_cell_[item]);
      program_.version_of_cell[first_cell_[item]] = {index, place.cells.size()};
      add(place.items, program_.item_cells[item]);
      add(program_.shared, program_.item_cells[item]);
    }
    for (SharedPlace& place : program_.places) {
      place.first_cell = program_.cells;
      program_.cells += place.cells.size() + 1;
    }
  }

  bool drains() const { return program_.keeps == Keeps::Domain; }

  /// Of queue pairs that are not reliable: what they do not have.
  Result<void> queue_pair_carries() const {
    const std::string_view type = to_string(profile_.qp_type);
    if (!has_qp_type(profile_.transport, profile_.qp_type)) {
      return not_modelled(fmt::format("{} has no {}", to_string(profile_.transport), type));
    }
    if (!program_.loses) return {};
    const bool datagrams = profile_.qp_type == QpType::Ud;
    for (const RequesterStep& step : script_.steps) {
      if (step.kind != RequesterStep::Kind::Post) continue;
      const bool carried = is_posted(step.verb) && step.verb != Verb::WritePersist;
      if (!carried || (datagrams && step.verb != Verb::Send)) {
        return not_modelled(fmt::format("{} has no {}", type, describe(step)));
      }
      if (step.replay) {
        return not_modelled(fmt::format("a message that recovery replays, over {}", type));
      }
    }
    for (const auto& reaction : script_.reactions) {
      for (const ResponderAction& action : reaction) {
        if (action.kind == ResponderAction::Kind::Read) {
          return not_modelled(fmt::format("{} has no READ for the responder either", type));
        }
        if (datagrams && action.written) {
          return not_modelled(fmt::format("{} has no WRITE for the responder either", type));
        }
      }
    }
    return {};
  }

  /// Whether the responder READs from where a message says that it may act on before it is whole.
  bool reads_by_mark() const {
    std::size_t message = 0;
    for (const RequesterStep& step : script_.steps) {
      if (!is_message(step)) continue;
      const auto& reaction = script_.reactions[message++];
      const bool reads = std::any_of(reaction.begin(), reaction.end(), [](const auto& action) {
        return action.kind == ResponderAction::Kind::Read;
      });
      if (reads && step.verb == Verb::WritePolled && !step.checked) return true;
    }
    return false;
  }

  /// The machine keeps one stage per unit, so an item may not travel twice.
  Result<void> one_way_per_item() {
    const std::size_t items = script_.epoch_of_item.size();
    std::vector<int> written(items, 0);
    std::vector<bool> copied(items, false);
    for (const RequesterStep& step : script_.steps) {
      if (posts(step, Verb::SendFlush) && !profile_.capabilities.send_flush) {
        return not_modelled("the responder's RNIC has no SFLUSH");
      }
      if (!carries_data(step) || !writes_items(step.verb)) continue;
      if (step.verb == Verb::WritePersist && !profile_.capabilities.ordered_persist) {
        return not_modelled("the responder has no ordered persist");
      }
      if (step.verb == Verb::WriteAtomic && !profile_.capabilities.atomic_write) {
        return not_modelled("the responder's RNIC has no ATOMIC WRITE");
      }
      for (const Item item : step.items) ++written[item];
      const bool wide = step.verb == Verb::WriteAtomic &&
                        std::any_of(step.items.begin(), step.items.end(),
                                    [&](Item item) { return units_[item] > 1; });
      if (wide) return not_modelled("an ATOMIC WRITE carries at most 8 bytes");
    }
    if (reads_by_mark()) return not_modelled("a READ that the mark of a message asks for");
    for (const auto& reaction : script_.reactions) {
      for (const ResponderAction& action : reaction) {
        if (action.kind == ResponderAction::Kind::Copy) copied[action.item] = true;
        if (action.kind == ResponderAction::Kind::Read) ++written[action.item];
      }
    }
    for (std::size_t item = 0; item < items; ++item) {
      if (written[item] + (copied[item] ? 1 : 0) > 1) {
        return not_modelled(fmt::format("item {} reaches its place in two different ways",
                                        item_name(static_cast<Item>(item))));
      }
    }
    return {};
  }

  void operations() {
    program_.operation_of_step.resize(script_.steps.size(), 0);
    for (std::size_t index = 0; index < script_.steps.size(); ++index) {
      const RequesterStep& step = script_.steps[index];
      if (step.kind != RequesterStep::Kind::Post) continue;
      Operation operation;
      operation.verb = step.verb;
      operation.posted = is_posted(step.verb);
      operation.fenced = step.fenced;
      operation.step = index;
      operation.connection = script_.connection_of_step[index];
      operation.pushes = !reads(step) || reads_something_written(index);
      give_cells(step, operation);
      if (program_.loses && is_message(step)) operation.taken_cell = program_.cells++;
      Connection& connection = program_.connections[operation.connection];
      operation.slot_first = connection.operation_of_slot.size();
      const std::size_t slots = std::max<std::size_t>(1, operation.cells.size());
      connection.operation_of_slot.insert(connection.operation_of_slot.end(), slots,
                                          program_.operations.size());
      operation.slot_end = connection.operation_of_slot.size();
      operation.rank = connection.non_posted.size();
      std::size_t& fenced = answers_before_[operation.connection];
      if (operation.fenced) fenced = operation.rank;
      operation.answers_before = fenced;
      (operation.posted ? connection.posted : connection.non_posted)
          .push_back(program_.operations.size());
      if (ordered_persist(step)) connection.persists.push_back(program_.operations.size());
      program_.operation_of_step[index] = program_.operations.size();
      program_.operations.push_back(std::move(operation));
    }
  }

  bool ordered_persist(const RequesterStep& step) const {
    return step.verb == Verb::WritePersist && profile_.domain == PersistenceDomain::Dmp && drains();
  }

  void give_cells(const RequesterStep& step, Operation& operation) {
    const auto give = [&](std::size_t cell) {
      operation.cells.push_back(static_cast<std::uint8_t>(cell));
      if (cell < kCellsMax) add(operation.cell_mask, cell);
    };
    const auto end_group = [&] {
      operation.group_ends.push_back(static_cast<std::uint8_t>(operation.cells.size()));
    };
    if (posts(step, Verb::WritePolled)) {
      // What comes before the mark, if there is anything, and the mark: one may show without the
      // other, so they are not units of one thing.
      if (!step.items.empty()) give(program_.cells++);
      if (!step.items.empty()) end_group();
      give(program_.cells++);
      end_group();
    } else if (step.verb == Verb::Send) {
      // A message that is not kept can not be torn.
      for (std::size_t unit = 0; unit < (kept(step) ? 2u : 1u); ++unit) give(program_.cells++);
      end_group();
    } else if (carries_data(step)) {
      for (const Item item : step.items) {
        for (std::size_t unit = 0; unit < units_[item]; ++unit) give(first_cell_[item] + unit);
        end_group();
      }
    }
  }

  /// Whether the message survives in its receive buffer and recovery may apply it.
  bool kept(const RequesterStep& step) const {
    const bool durable = options_.level == Level::Durable || options_.level == Level::Committed;
    return step.verb == Verb::Send && step.replay && durable &&
           profile_.receive_buffers == ReceiveBuffers::Pm && program_.keeps != Keeps::Nothing;
  }

  /// Where there is no native FLUSH, a READ stands in for it.
  bool reads(const RequesterStep& step) const {
    return step.verb == Verb::Read ||
           (step.verb == Verb::Flush && !profile_.capabilities.native_flush);
  }

  /// On its own connection: a READ pushes nothing else. No READ lies in a receive buffer.
  bool reads_something_written(std::size_t index) const {
    const RequesterStep& reading = script_.steps[index];
    if (reading.items.empty()) return false;
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      const RequesterStep& step = script_.steps[earlier];
      if (script_.connection_of_step[earlier] != script_.connection_of_step[index]) continue;
      if (!carries_data(step) || !writes_items(step.verb)) continue;
      if (std::count(step.items.begin(), step.items.end(), reading.items.back()) != 0) return true;
    }
    return false;
  }

  Result<void> within_limits() {
    std::size_t micro_steps = 0;
    for (const auto& reaction : script_.reactions) {
      for (const ResponderAction& action : reaction) {
        micro_steps += action.kind == ResponderAction::Kind::Copy ? units_[action.item] : 1;
      }
    }
    bool fits = program_.cells <= kCellsMax && script_.steps.size() <= kStepsMax &&
                micro_steps <= kReactionsMax;
    for (const Connection& connection : program_.connections) {
      fits = fits && connection.operation_of_slot.size() <= kSlotsMax &&
             connection.non_posted.size() <= kNonPostedMax;
    }
    if (!fits) return not_modelled("the update has too many parts for one state");
    const std::size_t words = program_.cells <= 16 ? 1 : 1 + (program_.cells - 16 + 31) / 32;
    program_.words = words <= 2 ? words : (words <= 4 ? 4 : 8);
    return {};
  }

  void ordering() {
    const bool reaches_domain =
        profile_.domain == PersistenceDomain::Dmp && dma_bypasses_caches(profile_) && drains();
    std::array<Mask, kConnectionsMax> before{};
    for (Operation& operation : program_.operations) {
      Mask& earlier = before[operation.connection];
      const bool flushes = !operation.posted && operation.verb != Verb::WriteAtomic;
      if (operation.pushes) operation.visible_before = earlier;
      if (flushes && operation.pushes && reaches_domain) operation.drains_before = earlier;
      if (operation.verb == Verb::Flush && flush_persists()) {
        add(operation.drains_before, written_before(operation));
      }
      if (operation.verb == Verb::SendFlush && profile_.domain == PersistenceDomain::Dmp &&
          drains()) {
        add(operation.drains_before, written_before(operation));
        add(operation.drains_before, message_before(operation));
      }
      add(earlier, operation.cell_mask);
      add(program_.all_cells, operation.cell_mask);
    }
    for (const Mask& item : program_.item_cells) add(program_.all_cells, item);
    if (profile_.qp_type == QpType::Uc) what_is_lost();
    for (Connection& connection : program_.connections) {
      delivered_cells(connection);
      Mask persisted{};
      for (const std::size_t index : connection.persists) {
        add(persisted, program_.operations[index].cell_mask);
        program_.operations[index].drains_before = persisted;
      }
    }
  }

  /// What comes behind an operation, and shows that the rest of it will not come any more.
  void what_is_lost() {
    std::array<Mask, kConnectionsMax> behind{};
    for (std::size_t index = program_.operations.size(); index-- > 0;) {
      Operation& operation = program_.operations[index];
      Mask& later = behind[operation.connection];
      operation.lost_when = later;
      if (program_.write_order) add(later, operation.cell_mask);
      if (operation.taken_cell != 0) add(later, operation.taken_cell);
    }
  }

  /// A FLUSH to persistence, where only what is in the memory controller survives.
  bool flush_persists() const {
    return profile_.capabilities.native_flush && profile_.capabilities.persistent_flush &&
           profile_.domain == PersistenceDomain::Dmp && drains();
  }

  /// The range that a FLUSH names, as far as something earlier on its connection wrote it.
  /// Receive buffers are in no such range.
  Mask written_before(const Operation& flush) const {
    Mask written{};
    const auto& named = script_.steps[flush.step].items;
    for (const Operation& earlier : program_.operations) {
      if (&earlier == &flush) break;
      if (earlier.connection != flush.connection || !writes_items(earlier.verb)) continue;
      for (const Item item : script_.steps[earlier.step].items) {
        if (std::count(named.begin(), named.end(), item) != 0) add(written, earlier.cell_mask);
      }
    }
    return written;
  }

  /// The receive buffer that an SFLUSH looks up: of the SEND before it on its connection.
  Mask message_before(const Operation& flush) const {
    Mask message{};
    for (const Operation& earlier : program_.operations) {
      if (&earlier == &flush) break;
      const bool sent = earlier.verb == Verb::Send && earlier.connection == flush.connection;
      if (sent) message = earlier.cell_mask;
    }
    return message;
  }

  void delivered_cells(Connection& connection) const {
    Mask delivered{};
    connection.delivered.push_back(delivered);
    for (std::size_t slot = 0; slot < connection.operation_of_slot.size(); ++slot) {
      const Operation& operation = program_.operations[connection.operation_of_slot[slot]];
      const std::size_t unit = slot - operation.slot_first;
      if (unit < operation.cells.size()) add(delivered, operation.cells[unit]);
      connection.delivered.push_back(delivered);
    }
  }

  void messages() {
    std::array<Mask, kConnectionsMax> posted_so_far{};
    for (std::size_t index = 0; index < program_.operations.size(); ++index) {
      Operation& operation = program_.operations[index];
      if (!operation.posted) continue;
      add(posted_so_far[operation.connection], operation.cell_mask);
      if (operation.verb == Verb::Write || operation.verb == Verb::WritePersist) continue;
      const RequesterStep& step = script_.steps[operation.step];
      Message message;
      message.operation = index;
      message.complete_when = posted_so_far[operation.connection];
      message.cells = operation.cell_mask;
      if (operation.verb == Verb::WritePolled) {
        message.complete_when = Mask{};
        add(message.complete_when, operation.cells.back());
        if (step.checked) message.complete_when = operation.cell_mask;
      } else if (program_.loses) {
        message.complete_when = operation.cell_mask;
      }
      message.numbered = operation.verb != Verb::WriteImm;
      if (program_.loses) add(message.taken, operation.taken_cell);
      for (const Item item : step.items) add(message.items, program_.item_cells[item]);
      message.replayed = kept(step);
      for (const Order& order : program_.orders) {
        const bool depends = overlaps<kWordsMax>(message.items, order.later);
        message.vouches =
            message.vouches || (depends && !covers<kWordsMax>(message.items, order.epoch));
      }
      operation.message = program_.messages.size();
      program_.messages.push_back(message);
    }
  }

  /// The responder can only act on what some message of the connection so far has named; the rest
  /// it leaves out.
  void reactions() {
    const std::vector<bool> none(script_.epoch_of_item.size(), false);
    std::array<std::vector<bool>, kConnectionsMax> named{none, none};
    std::array<std::vector<bool>, kConnectionsMax> received{none, none};
    std::array<std::vector<bool>, kConnectionsMax> readable{none, none};
    // That it is through with a message, the responder says after it has acknowledged it.
    const bool releases =
        script_.mixed && std::any_of(program_.messages.begin(), program_.messages.end(),
                                     [](auto& each) { return each.replayed; });
    for (std::size_t index = 0; index < script_.reactions.size(); ++index) {
      const Operation& operation = program_.operations[program_.messages[index].operation];
      const RequesterStep& step = script_.steps[operation.step];
      const std::size_t at = operation.connection;
      // Where it came without those before it, they have named nothing.
      if (program_.loses && !program_.messages[index].numbered) {
        named[at] = received[at] = readable[at] = none;
      }
      program_.messages[index].reactions_first = program_.connections[at].reactions.size();
      for (const Item item : step.items) {
        named[at][item] = true;
        if (sends_items(step.verb)) received[at][item] = true;
      }
      for (const Item item : step.flush) named[at][item] = true;
      for (const Item item : step.readable) named[at][item] = readable[at][item] = true;
      for (const ResponderAction& action : script_.reactions[index]) {
        const bool has = action.kind == ResponderAction::Kind::Copy ? received[at][action.item]
                                                                    : readable[at][action.item];
        react(action, index, named[at], has);
      }
      program_.messages[index].reactions_end = program_.connections[at].reactions.size();
      if (releases) {
        Reaction release;
        release.kind = Reaction::Kind::Release;
        release.message = index;
        program_.connections[at].reactions.push_back(release);
      }
      if (releases || !script_.reactions[index].empty()) {
        program_.messages[index].released_at = program_.connections[at].reactions.size();
      }
    }
    for (Connection& connection : program_.connections) {
      std::size_t acks = 0;
      for (const Reaction& reaction : connection.reactions) {
        connection.acks_sent.push_back(acks);
        if (reaction.kind == Reaction::Kind::Ack) ++acks;
      }
      connection.acks_sent.push_back(acks);
    }
  }

  /// `has`: it has the bytes to copy, or knows where to READ them.
  void react(const ResponderAction& action, std::size_t message, const std::vector<bool>& named,
             bool has) {
    const Operation& operation = program_.operations[program_.messages[message].operation];
    std::vector<Reaction>& reactions = program_.connections[operation.connection].reactions;
    Reaction reaction;
    reaction.message = message;
    reaction.item = action.item;
    if (operation.verb == Verb::WritePolled) reaction.reads = operation.cell_mask;
    switch (action.kind) {
      case ResponderAction::Kind::Ack:
        acks_.push_back(operation.connection);
        reaction.kind = Reaction::Kind::Ack;
        reaction.written = action.written;
        reactions.push_back(reaction);
        return;
      case ResponderAction::Kind::Flush:
        if (!named[action.item]) return;
        reaction.kind = Reaction::Kind::Flush;
        if (drains()) {
          reaction.flushes = program_.item_cells[action.item];
          reaction.finds_clean = unnoticed(action.item);
          if (reaction.finds_clean) reaction.flushes = Mask{};
        }
        reactions.push_back(reaction);
        return;
      case ResponderAction::Kind::Read:
        if (!has) return;
        reaction.kind = Reaction::Kind::Read;
        reaction.cell = static_cast<std::uint8_t>(first_cell_[action.item]);
        reaction.fetched = program_.item_cells[action.item];
        reactions.push_back(reaction);
        return;
      case ResponderAction::Kind::Await:
        reaction.kind = Reaction::Kind::Await;
        reaction.fetched = program_.item_cells[action.item];
        reactions.push_back(reaction);
        return;
      case ResponderAction::Kind::Copy: break;
    }
    if (!has) return;
    for (std::size_t unit = 0; unit < units_[action.item]; ++unit) {
      reaction.kind = Reaction::Kind::Store;
      reaction.cell = static_cast<std::uint8_t>(first_cell_[action.item] + unit);
      reactions.push_back(reaction);
    }
  }

  /// Whether an item is in a page of a file that an RNIC has written, and nobody has noticed.
  bool unnoticed(Item item) const {
    if (profile_.domain != PersistenceDomain::Page || syncs_peer_writes(profile_)) return false;
    for (const auto& reaction : script_.reactions) {
      for (const ResponderAction& action : reaction) {
        if (action.kind == ResponderAction::Kind::Read && action.item == item) return true;
      }
    }
    return std::any_of(script_.steps.begin(), script_.steps.end(), [&](const RequesterStep& step) {
      return carries_data(step) && writes_items(step.verb) &&
             std::count(step.items.begin(), step.items.end(), item) != 0;
    });
  }

  void requester_tables() {
    std::array<std::size_t, kConnectionsMax> slots{};
    std::size_t acks = 0;
    for (std::size_t index = 0; index < script_.steps.size(); ++index) {
      const RequesterStep& step = script_.steps[index];
      for (std::size_t at = 0; at < program_.connections.size(); ++at) {
        program_.connections[at].posts_before.push_back(slots[at]);
      }
      if (step.kind == RequesterStep::Kind::Post) {
        const Operation& operation = program_.operations[program_.operation_of_step[index]];
        slots[operation.connection] = operation.slot_end;
      }
      program_.waits.push_back(wait_of(step, acks));
      if (step.kind == RequesterStep::Kind::WaitAck) ++acks;
    }
    for (std::size_t at = 0; at < program_.connections.size(); ++at) {
      program_.connections[at].posts_before.push_back(slots[at]);
    }
  }

  /// A wait for an acknowledgement is for the next one in the order of posting.
  Wait wait_of(const RequesterStep& step, std::size_t acks_before) const {
    if (step.kind == RequesterStep::Kind::Post) return {};
    if (step.kind == RequesterStep::Kind::WaitAck && script_.mixed) return wait_of_ack(step.of);
    if (step.kind == RequesterStep::Kind::WaitAck) {
      if (acks_before >= acks_.size()) return {Wait::Kind::Never, 0, 0, {}};
      const auto end = acks_.begin() + static_cast<std::ptrdiff_t>(acks_before) + 1;
      const std::size_t at = acks_[acks_before];
      return {
          Wait::Kind::Acks, at, static_cast<std::size_t>(std::count(acks_.begin(), end, at)), {}};
    }
    const Operation& operation = program_.operations[program_.operation_of_step[step.of]];
    if (!operation.posted) {
      return {Wait::Kind::Executed, operation.connection, operation.rank + 1, {}};
    }
    if (operation.verb == Verb::WritePersist) {
      Wait wait{Wait::Kind::Cells, operation.connection, 0, operation.cell_mask};
      for (std::uint64_t& word : wait.cells)
        word <<= ordered_persist(script_.steps[step.of]) ? 1 : 0;
      return wait;
    }
    if (program_.loses || completes_early(profile_.transport)) return {};
    return {Wait::Kind::Delivered, operation.connection, operation.slot_end, {}};
  }

  /// Among mixed updates: for the acknowledgement of the message that a step posts.
  Wait wait_of_ack(std::size_t step) const {
    if (step >= script_.steps.size() || !is_message(script_.steps[step])) {
      return {Wait::Kind::Never, 0, 0, {}};
    }
    const std::size_t message = *program_.operations[program_.operation_of_step[step]].message;
    std::size_t count = 0;
    for (std::size_t index = 0; index <= message; ++index) {
      for (const ResponderAction& action : script_.reactions[index]) {
        count += action.kind == ResponderAction::Kind::Ack ? 1 : 0;
      }
    }
    return {Wait::Kind::Acks, 0, count, {}};
  }

  /// Of mixed updates: by how many have resolved.
  void ends() {
    program_.acknowledged.resize(1);
    program_.promised.push_back(0);
    for (const Promise& promise : script_.promises) {
      End end{promise.step, {}};
      for (const RequesterStep& step : promise.waits) end.waits.push_back(wait_of(step, 0));
      program_.ends.push_back(std::move(end));
      program_.promised.push_back(program_.ends.size());
      program_.acknowledged.push_back(program_.acknowledged.back());
      for (const Item item : promise.items) {
        add(program_.acknowledged.back(), program_.item_cells[item]);
      }
    }
  }

  void promises() {
    if (script_.mixed) return ends();
    program_.acknowledged.resize(script_.steps.size() + 1);
    for (const Promise& promise : script_.promises) {
      for (std::size_t step = promise.step; step < program_.acknowledged.size(); ++step) {
        for (const Item item : promise.items)
          add(program_.acknowledged[step], program_.item_cells[item]);
      }
    }
    for (std::size_t step = 0; step < program_.acknowledged.size(); ++step) {
      const bool more = step == 0 || program_.acknowledged[step] != program_.acknowledged[step - 1];
      program_.promised.push_back(more ? step : program_.promised.back());
    }
  }

  const Script& script_;
  const ServerProfile& profile_;
  const CompileOptions& options_;
  Program program_;
  std::vector<std::size_t> first_cell_;
  std::vector<std::size_t> units_;
  std::array<std::size_t, kConnectionsMax> answers_before_{};
  std::vector<std::size_t> acks_;  // the connection of each acknowledgement, in posting order
};

}  // namespace

Result<Program> compile(const Script& script, const ServerProfile& profile,
                        const CompileOptions& options) {
  PERDURE_ASSERT(options.units_per_item >= 1);
  PERDURE_ASSERT(script.connections >= 1 && script.connections <= kConnectionsMax);
  PERDURE_ASSERT(script.connection_of_step.size() == script.steps.size());
  return Compiler(script, profile, options).run();
}

}  // namespace perdure::check
