// Writes down what recovery does, step by step, for the messages that a program keeps.
#include "check/model.h"

#include <algorithm>

namespace perdure::check {
namespace {

/// The stores and the flush of one item.
void add_item(const Program& program, std::size_t message, Item item,
              std::vector<RecoveryStep>& steps) {
  const Mask& cells = program.item_cells[item];
  for (std::size_t cell = program.first_cell; cell < program.cells; ++cell) {
    if ((cells[word_of(cell)] & bit_of(cell)) == 0) continue;
    steps.push_back({RecoveryStep::Kind::Store, message, 0, static_cast<std::uint8_t>(cell), item});
  }
  steps.push_back({RecoveryStep::Kind::Flush, message, 0, 0, item});
}

void add_message(const Program& program, std::size_t message, Recovery recovery,
                 std::vector<RecoveryStep>& steps) {
  const std::size_t judge = steps.size();
  const Operation& operation = program.operations[program.messages[message].operation];
  steps.push_back({RecoveryStep::Kind::Judge, message, 0, 0, 0});
  for (const Item item : program.script.steps[operation.step].items) {
    add_item(program, message, item, steps);
  }
  steps.push_back({RecoveryStep::Kind::Release, message, 0, 0, 0});
  if (recovery == Recovery::ReleasesBeforeFlush) {
    std::swap(steps.back(), steps[steps.size() - 2]);
  } else if (recovery == Recovery::FlushesLast) {
    const auto first = steps.begin() + static_cast<std::ptrdiff_t>(judge) + 1;
    std::stable_partition(first, steps.end() - 1, [](const RecoveryStep& step) {
      return step.kind == RecoveryStep::Kind::Store;
    });
  }
  steps[judge].end = steps.size();
}

}  // namespace

void add_recovery(Program& program, Recovery recovery) {
  program.lasting = Mask{};
  const auto lasts = [&](const Mask& cells) {
    for (std::size_t word = 0; word < kWordsMax; ++word) program.lasting[word] |= cells[word];
  };
  for (const Mask& item : program.item_cells) lasts(item);
  for (const SharedPlace& place : program.places) {
    for (std::size_t version = 0; version <= place.cells.size(); ++version) {
      const std::size_t cell = place.first_cell + version;
      program.lasting[word_of(cell)] |= bit_of(cell);
    }
  }
  for (std::size_t index = 0; index < program.messages.size(); ++index) {
    if (!program.messages[index].replayed) continue;
    lasts(program.messages[index].cells);
    add_message(program, index, recovery, program.recovery);
  }
}

}  // namespace perdure::check
