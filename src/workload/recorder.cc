// Noting what a transaction does: see recorder.h.
#include "workload/recorder.h"

#include <algorithm>

namespace perdure::workload {

void Recorder::compute(std::uint64_t instructions) {
  if (!reads_.empty() && reads_.back().kind == OperationKind::Compute) {
    reads_.back().value += instructions;
  } else {
    reads_.push_back({OperationKind::Compute, instructions});
  }
}

void Recorder::load(Range range) {
  for (std::uint64_t line = range.first_line(); line <= range.last_line(); ++line) {
    const bool made = std::any_of(created_.begin(), created_.end(), [line](const Range& each) {
      return line >= each.first_line() && line <= each.last_line();
    });
    if (made) continue;
    reads_.push_back({OperationKind::Load, line * kLineBytes});
  }
}

void Recorder::write(Range range) {
  if (std::find(written_.begin(), written_.end(), range) == written_.end()) {
    written_.push_back(range);
  }
}

void Recorder::create(Range range) { created_.push_back(range); }

void Recorder::clear() {
  reads_.clear();
  written_.clear();
  created_.clear();
}

}  // namespace perdure::workload
