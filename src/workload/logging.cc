// Protocols of atomicity: see logging.h.
#include "workload/logging.h"

#include "core/assert.h"
#include "core/named.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::workload {
namespace {

constexpr std::array<std::string_view, 4> kLoggingNames{"undo", "undo-batched", "redo", "shadow"};
/// Address and size of the range that a record is for.
constexpr std::uint64_t kRecordHeaderBytes = 16;
/// Instructions that making a record takes, besides its stores; assumption.
constexpr std::uint64_t kRecordInstructions = 20;

/// Collects the lines of an epoch, each once, and closes it with a barrier.
class Epochs {
 public:
  explicit Epochs(std::vector<Operation>& operations) : operations_(operations) {}
  void persist(Range range) {
    for (std::uint64_t line = range.first_line(); line <= range.last_line(); ++line) {
      if (std::find(lines_.begin(), lines_.end(), line) != lines_.end()) continue;
      lines_.push_back(line);
      operations_.push_back({OperationKind::Persist, line * kLineBytes});
    }
  }
  void persist(const std::vector<Range>& ranges) {
    for (const Range& range : ranges) persist(range);
  }
  void record(LogArea& log, const Range& of) {
    operations_.push_back({OperationKind::Compute, kRecordInstructions});
    persist(log.record(kRecordHeaderBytes + of.bytes));
  }
  void close() {
    if (lines_.empty()) return;
    lines_.clear();
    operations_.push_back({OperationKind::Barrier, 0});
  }

 private:
  std::vector<Operation>& operations_;
  std::vector<std::uint64_t> lines_;
};

}  // namespace

std::string_view to_string(Logging logging) {
  return kLoggingNames.at(static_cast<std::size_t>(logging));
}

std::string logging_names() { return fmt::format("{}", fmt::join(kLoggingNames, "|")); }

Result<Logging> parse_logging(std::string_view word) {
  return find_named<Logging>("logging", word, kLoggingNames);
}

Range LogArea::record(std::uint64_t bytes) {
  const std::uint64_t whole = (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  PERDURE_ASSERT(whole + kLineBytes <= bytes_);
  if (next_ < kLineBytes || next_ + whole > bytes_) next_ = kLineBytes;  // behind the header
  const Range range{base_ + next_, whole};
  next_ += whole;
  return range;
}

void append_transaction(Logging logging, const Recorder& changes, LogArea& log,
                        std::vector<Operation>& operations) {
  operations.insert(operations.end(), changes.reads().begin(), changes.reads().end());
  Epochs epochs(operations);
  const Range header{log.header(), 8};
  const std::vector<Range>& written = changes.written();
  epochs.persist(changes.created());
  switch (logging) {
    case Logging::Undo:
      for (const Range& range : written) {
        epochs.close();
        epochs.record(log, range);
        epochs.close();
        epochs.persist(range);
      }
      epochs.close();
      if (!written.empty()) epochs.persist(header);
      break;
    case Logging::UndoBatched:
    case Logging::Redo:
      for (const Range& range : written) epochs.record(log, range);
      if (logging == Logging::UndoBatched) epochs.close();
      if (!written.empty()) epochs.persist(header);
      epochs.close();
      epochs.persist(written);
      epochs.close();
      if (!written.empty()) epochs.persist(header);
      break;
    case Logging::Shadow: PERDURE_ASSERT(false); break;
  }
  epochs.close();
}

}  // namespace perdure::workload
