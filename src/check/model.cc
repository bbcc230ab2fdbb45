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

bool is_posted(Verb verb) {
  return verb == Verb::Write || verb == Verb::WriteImm || verb == Verb::Send;
}

bool carries_data(const RequesterStep& step) {
  return step.kind == RequesterStep::Kind::Post && step.verb != Verb::Read &&
         step.verb != Verb::Flush;
}

Keeps keeps_of(const ServerProfile& profile, Level level) {
  if (level == Level::Received) return Keeps::Delivered;
  if (level == Level::Visible) return Keeps::Visible;
  switch (profile.domain) {
    case PersistenceDomain::None: return Keeps::Nothing;
    case PersistenceDomain::Page: return Keeps::Domain;
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
    program_.early_completion = completes_early(profile.transport);
  }

  Result<Program> run() {
    item_cells();
    if (auto checked = one_way_per_item(); !checked) return checked.error();
    operations();
    if (auto checked = within_limits(); !checked) return checked.error();
    ordering();
    messages();
    reactions();
    requester_tables();
    return std::move(program_);
  }

 private:
  void item_cells() {
    const std::size_t items = script_.epoch_of_item.size();
    const std::size_t epochs = script_.chain_end.size();
    program_.item_cells.resize(items);
    program_.epoch_cells.resize(epochs);
    for (std::size_t item = 0; item < items; ++item) {
      const std::size_t units = script_.small_item[item] ? 1 : options_.units_per_item;
      first_cell_.push_back(program_.cells);
      units_.push_back(units);
      for (std::size_t unit = 0; unit < units; ++unit) {
        const std::size_t cell = program_.cells++;
        if (cell >= kCellsMax) continue;  // refused by within_limits
        add(program_.item_cells[item], cell);
        if (drains()) add(program_.drains, cell);
      }
      add(program_.epoch_cells[script_.epoch_of_item[item]], program_.item_cells[item]);
    }
    program_.later_cells.resize(epochs);
    for (std::size_t epoch = 0; epoch < epochs; ++epoch) {
      for (std::size_t later = epoch + 1; later < script_.chain_end[epoch]; ++later) {
        add(program_.later_cells[epoch], program_.epoch_cells[later]);
      }
    }
  }

  bool drains() const { return program_.keeps == Keeps::Domain; }

  /// The machine keeps one stage per unit, so an item may not travel twice.
  Result<void> one_way_per_item() {
    const std::size_t items = script_.epoch_of_item.size();
    std::vector<int> written(items, 0);
    std::vector<bool> copied(items, false);
    for (const RequesterStep& step : script_.steps) {
      if (!carries_data(step) || step.verb == Verb::Send) continue;
      for (const Item item : step.items) ++written[item];
      const bool wide = step.verb == Verb::WriteAtomic &&
                        std::any_of(step.items.begin(), step.items.end(),
                                    [&](Item item) { return units_[item] > 1; });
      if (wide) return not_modelled("an ATOMIC WRITE carries at most 8 bytes");
    }
    for (const auto& reaction : script_.reactions) {
      for (const ResponderAction& action : reaction) {
        if (action.kind == ResponderAction::Kind::Copy) copied[action.item] = true;
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
      operation.pushes = step.verb != Verb::Read || covers_something_written(step, index);
      give_cells(step, operation);
      operation.slot_first = program_.operation_of_slot.size();
      const std::size_t slots = std::max<std::size_t>(1, operation.cells.size());
      program_.operation_of_slot.insert(program_.operation_of_slot.end(), slots,
                                        program_.operations.size());
      operation.slot_end = program_.operation_of_slot.size();
      operation.rank = program_.non_posted.size();
      (operation.posted ? program_.posted : program_.non_posted)
          .push_back(program_.operations.size());
      program_.operation_of_step[index] = program_.operations.size();
      program_.operations.push_back(std::move(operation));
    }
  }

  void give_cells(const RequesterStep& step, Operation& operation) {
    if (step.verb == Verb::Send) {
      const bool kept = step.replay && profile_.receive_buffers == ReceiveBuffers::Pm;
      const std::size_t units = kept ? 2 : 1;  // a message that is not kept can not be torn
      for (std::size_t unit = 0; unit < units; ++unit) {
        const std::size_t cell = program_.cells++;
        operation.cells.push_back(static_cast<std::uint8_t>(cell));
        if (cell < kCellsMax && kept && drains()) add(program_.drains, cell);
      }
    } else if (carries_data(step)) {
      for (const Item item : step.items) {
        for (std::size_t unit = 0; unit < units_[item]; ++unit) {
          operation.cells.push_back(static_cast<std::uint8_t>(first_cell_[item] + unit));
        }
      }
    }
    for (const std::size_t cell : operation.cells) {
      if (cell < kCellsMax) add(operation.cell_mask, cell);
    }
  }

  bool covers_something_written(const RequesterStep& read, std::size_t index) const {
    for (std::size_t earlier = 0; earlier < index; ++earlier) {
      const RequesterStep& step = script_.steps[earlier];
      if (!carries_data(step)) continue;
      for (const Item item : step.items) {
        if (std::count(read.items.begin(), read.items.end(), item) != 0) return true;
      }
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
    const bool fits = program_.cells <= kCellsMax && script_.steps.size() <= kStepsMax &&
                      program_.operation_of_slot.size() <= kSlotsMax &&
                      micro_steps <= kReactionsMax && program_.non_posted.size() <= kNonPostedMax;
    if (!fits) return not_modelled("the update has too many parts for one state");
    const std::size_t words = program_.cells <= 16 ? 1 : 1 + (program_.cells - 16 + 31) / 32;
    program_.words = words <= 2 ? words : (words <= 4 ? 4 : 8);
    return {};
  }

  void ordering() {
    Mask before{};
    Mask draining{};
    for (Operation& operation : program_.operations) {
      if (operation.pushes) operation.visible_before = before;
      const bool flushes = operation.verb == Verb::Flush || operation.verb == Verb::Read;
      const bool reaches_domain =
          profile_.domain == PersistenceDomain::Dmp && profile_.ddio == Ddio::Off && drains();
      if (flushes && operation.pushes && reaches_domain) operation.drained_before = draining;
      add(before, operation.cell_mask);
      for (std::size_t word = 0; word < kWordsMax; ++word) {
        draining[word] |= (operation.cell_mask[word] & program_.drains[word]) << 1;
      }
    }
    Mask delivered{};
    program_.delivered.push_back(delivered);
    for (const Operation& operation : program_.operations) {
      for (std::size_t slot = operation.slot_first; slot < operation.slot_end; ++slot) {
        const std::size_t unit = slot - operation.slot_first;
        if (unit < operation.cells.size()) add(delivered, operation.cells[unit]);
        program_.delivered.push_back(delivered);
      }
    }
  }

  void messages() {
    Mask posted_so_far{};
    for (const std::size_t index : program_.posted) {
      Operation& operation = program_.operations[index];
      add(posted_so_far, operation.cell_mask);
      if (operation.verb == Verb::Write) continue;
      const RequesterStep& step = script_.steps[operation.step];
      Message message;
      message.operation = index;
      message.complete_when = posted_so_far;
      message.cells = operation.cell_mask;
      for (const Item item : step.items) add(message.items, program_.item_cells[item]);
      const bool durable_question =
          options_.level == Level::Durable || options_.level == Level::Committed;
      message.replayed = step.replay && profile_.receive_buffers == ReceiveBuffers::Pm &&
                         durable_question && program_.keeps != Keeps::Nothing;
      operation.message = program_.messages.size();
      program_.messages.push_back(message);
    }
  }

  /// The responder can only act on what some message so far has named; the rest it leaves out.
  void reactions() {
    std::vector<bool> named(script_.epoch_of_item.size(), false);
    std::vector<bool> received(script_.epoch_of_item.size(), false);
    for (std::size_t index = 0; index < script_.reactions.size(); ++index) {
      const Operation& operation = program_.operations[program_.messages[index].operation];
      const RequesterStep& step = script_.steps[operation.step];
      for (const Item item : step.items) {
        named[item] = true;
        if (step.verb == Verb::Send) received[item] = true;
      }
      for (const Item item : step.flush) named[item] = true;
      for (const ResponderAction& action : script_.reactions[index]) {
        react(action, index, named, received);
      }
      if (!script_.reactions[index].empty()) {
        program_.messages[index].released_at = program_.reactions.size();
      }
    }
    std::size_t acks = 0;
    for (const Reaction& reaction : program_.reactions) {
      program_.acks_sent.push_back(acks);
      if (reaction.kind == Reaction::Kind::Ack) ++acks;
    }
    program_.acks_sent.push_back(acks);
  }

  void react(const ResponderAction& action, std::size_t message, const std::vector<bool>& named,
             const std::vector<bool>& received) {
    Reaction reaction;
    reaction.message = message;
    reaction.item = action.item;
    switch (action.kind) {
      case ResponderAction::Kind::Ack:
        reaction.kind = Reaction::Kind::Ack;
        program_.reactions.push_back(reaction);
        return;
      case ResponderAction::Kind::Flush:
        if (!named[action.item]) return;
        reaction.kind = Reaction::Kind::Flush;
        if (drains()) reaction.waits_for = program_.item_cells[action.item];
        program_.reactions.push_back(reaction);
        return;
      case ResponderAction::Kind::Copy: break;
    }
    if (!received[action.item]) return;
    for (std::size_t unit = 0; unit < units_[action.item]; ++unit) {
      reaction.kind = Reaction::Kind::Store;
      reaction.cell = static_cast<std::uint8_t>(first_cell_[action.item] + unit);
      program_.reactions.push_back(reaction);
    }
  }

  void requester_tables() {
    std::size_t slots = 0;
    std::size_t acks = 0;
    for (std::size_t index = 0; index < script_.steps.size(); ++index) {
      const RequesterStep& step = script_.steps[index];
      program_.posts_before.push_back(slots);
      if (step.kind == RequesterStep::Kind::Post) {
        slots = program_.operations[program_.operation_of_step[index]].slot_end;
      }
      if (step.kind == RequesterStep::Kind::WaitAck) ++acks;
      program_.acks_awaited.push_back(acks);
    }
    program_.posts_before.push_back(slots);
    program_.acks_awaited.push_back(acks);
  }

  const Script& script_;
  const ServerProfile& profile_;
  const CompileOptions& options_;
  Program program_;
  std::vector<std::size_t> first_cell_;
  std::vector<std::size_t> units_;
};

}  // namespace

Result<Program> compile(const Script& script, const ServerProfile& profile,
                        const CompileOptions& options) {
  PERDURE_ASSERT(options.units_per_item >= 1);
  return Compiler(script, profile, options).run();
}

}  // namespace perdure::check
