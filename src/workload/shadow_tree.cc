// A tree of lines that are never changed where readers can reach them: see shadow_tree.h.
#include "workload/shadow_tree.h"

#include "core/assert.h"

#include <algorithm>

namespace perdure::workload {
namespace {

constexpr std::uint64_t kWordBytes = 8;
/// Instructions that copying a line takes, besides its stores; assumption, as a log's record.
constexpr std::uint64_t kCopyInstructions = 20;

std::uint64_t above(std::uint64_t count, std::uint64_t fanout) {
  return (count + fanout - 1) / fanout;
}

/// Whether all that is written is one word that a processor stores at once.
bool one_word(const std::vector<Range>& written) {
  const std::uint64_t word = written.front().address / kWordBytes;
  return std::all_of(written.begin(), written.end(), [word](const Range& each) {
    return each.address / kWordBytes == word &&
           (each.address + each.bytes - 1) / kWordBytes == word;
  });
}

void add_once(std::vector<std::uint64_t>& numbers, std::uint64_t number) {
  if (std::find(numbers.begin(), numbers.end(), number) == numbers.end()) {
    numbers.push_back(number);
  }
}

/// The lines of `ranges`, each once, in their order.
std::vector<std::uint64_t> lines_of(const std::vector<Range>& ranges) {
  std::vector<std::uint64_t> lines;
  for (const Range& each : ranges) {
    for (std::uint64_t line = each.first_line(); line <= each.last_line(); ++line) {
      add_once(lines, line);
    }
  }
  return lines;
}

}  // namespace

ShadowTree::ShadowTree(std::uint64_t lines, std::uint64_t nodes_at)
    : lines_(lines), nodes_at_(nodes_at) {
  PERDURE_ASSERT(lines > 0);
  std::uint64_t first = 0;
  std::uint64_t count = lines;
  for (; count > 1 || first == 0; count = above(count, kFanout)) {
    first_.push_back(first);
    first += count;
  }
  first_.push_back(first);  // the root node; above it is its pointer
}

std::uint64_t ShadowTree::node_lines(std::uint64_t lines) {
  const ShadowTree tree(lines, 0);
  return tree.line({tree.levels(), 0}) + 1;
}

std::uint64_t ShadowTree::line(Place place) const {
  const bool pointer = place.level == levels();
  const std::uint64_t number = pointer ? first_.back() + 1 : first_[place.level] + place.index;
  const auto moved = moved_.find(number);
  if (moved != moved_.end()) return moved->second;
  return number < lines_ ? number : nodes_at_ + number - lines_;
}

void ShadowTree::replace(Place place, FreeLines& free) {
  PERDURE_ASSERT(!free.empty());
  replaced_.push_back(line(place));
  moved_[first_[place.level] + place.index] = free.front();
  free.pop_front();
}

void ShadowTree::append_transaction(const Recorder& changes, FreeLines& free,
                                    std::vector<Operation>& operations) {
  const auto add = [&](OperationKind kind, std::uint64_t line) {
    operations.push_back({kind, line * kLineBytes});
  };
  // The way to a line is loaded from the root down, each node of it once in a transaction.
  std::vector<Place> known;
  const auto walk = [&](std::uint64_t index) {
    for (std::uint32_t level = levels(); level > 0; --level) {
      const Place place = Place{0, index}.above(level);
      if (std::find(known.begin(), known.end(), place) != known.end()) continue;
      known.push_back(place);
      add(OperationKind::Load, line(place));
    }
  };
  for (const Operation& each : changes.reads()) {
    if (each.kind != OperationKind::Load) {
      operations.push_back(each);
      continue;
    }
    walk(each.value / kLineBytes);
    add(OperationKind::Load, line({0, each.value / kLineBytes}));
  }
  const std::vector<std::uint64_t> created = lines_of(changes.created());
  for (const std::uint64_t index : created) walk(index);
  for (const std::uint64_t index : created) add(OperationKind::Persist, line({0, index}));
  const auto close = [&] { operations.push_back({OperationKind::Barrier, 0}); };
  // What it changes of its own new data is new data.
  std::vector<Range> visible;
  for (const Range& each : changes.written()) {
    const bool is_new =
        std::any_of(changes.created().begin(), changes.created().end(), [&](const Range& made) {
          return each.address >= made.address &&
                 each.address + each.bytes <= made.address + made.bytes;
        });
    if (!is_new) visible.push_back(each);
  }
  const std::vector<std::uint64_t> written = lines_of(visible);
  if (written.empty() || one_word(visible)) {
    if (!created.empty()) close();
    for (const std::uint64_t index : written) add(OperationKind::Persist, line({0, index}));
    if (!written.empty()) close();
    return;
  }
  // Copies of all that changes, level by level, until one place is above it all.
  std::vector<std::uint64_t> changed = written;
  Place top{0, changed.front()};
  for (std::uint32_t level = 0;; ++level) {
    for (const std::uint64_t index : changed) {
      operations.push_back({OperationKind::Compute, kCopyInstructions});
      replace({level, index}, free);
      add(OperationKind::Persist, line({level, index}));
    }
    top = {level, changed.front()};
    if (changed.size() == 1) break;
    std::vector<std::uint64_t> nodes;
    for (const std::uint64_t index : changed) add_once(nodes, index / kFanout);
    changed = std::move(nodes);
  }
  close();
  add(OperationKind::Persist, line(top.above()));
  close();
  // Not before nobody reaches them.
  free.insert(free.end(), replaced_.begin(), replaced_.end());
  replaced_.clear();
}

std::unordered_set<std::uint64_t> ShadowTree::reached() const {
  std::unordered_set<std::uint64_t> lines;
  std::uint64_t count = lines_;
  for (std::uint32_t level = 0; level <= levels(); ++level, count = above(count, kFanout)) {
    for (std::uint64_t index = 0; index < count; ++index) {
      PERDURE_ASSERT(lines.insert(line({level, index})).second);
    }
  }
  return lines;
}

}  // namespace perdure::workload
