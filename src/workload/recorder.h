// Recorder: what a transaction on a data structure reads and writes, noted while it runs.
#pragma once

#include "workload/operation.h"

#include <cstdint>
#include <vector>

namespace perdure::workload {

inline constexpr std::uint64_t kLineBytes = 64;

struct Range {
  std::uint64_t address = 0;
  std::uint64_t bytes = 0;
  std::uint64_t first_line() const { return address / kLineBytes; }
  std::uint64_t last_line() const { return (address + bytes - 1) / kLineBytes; }
  bool operator==(const Range&) const = default;
};

class Recorder {
 public:
  void compute(std::uint64_t instructions);
  /// Lines that this transaction created are not asked of memory again.
  void load(Range range);
  /// Changes data that others can see: it needs a log. The same range twice counts once.
  void write(Range range);
  /// Fills memory that nothing points to yet: no log is needed.
  void create(Range range);

  /// Loads and computations, in their order.
  const std::vector<Operation>& reads() const { return reads_; }
  const std::vector<Range>& written() const { return written_; }
  const std::vector<Range>& created() const { return created_; }
  void clear();

 private:
  std::vector<Operation> reads_;
  std::vector<Range> written_;
  std::vector<Range> created_;
};

}  // namespace perdure::workload
