// Device: a memory device and its controller as numbers, read from a file and refused when they
// can not be. What happens in time is channel.h.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::memsys {

/// Bus clock cycles since the start. kNever is later than all of them.
using Cycle = std::uint64_t;
inline constexpr Cycle kNever = ~Cycle{0};
/// No run gets so far: traces that ask for later cycles are refused.
inline constexpr Cycle kCycleMax = Cycle{1} << 52;

/// How many of each there are in one of the level above. All are powers of two.
struct Geometry {
  std::uint64_t channels = 1;
  std::uint64_t ranks = 1;        // in a channel
  std::uint64_t bank_groups = 1;  // in a rank
  std::uint64_t banks = 0;        // in a bank group
  std::uint64_t rows = 0;         // in a bank
  std::uint64_t row_bytes = 0;
  std::uint64_t line_bytes = 0;

  std::uint64_t lines_in_row() const { return row_bytes / line_bytes; }
  std::uint64_t banks_in_rank() const { return bank_groups * banks; }
  std::uint64_t banks_in_channel() const { return ranks * banks_in_rank(); }
  std::uint64_t bytes() const { return channels * banks_in_channel() * rows * row_bytes; }
};

/// In bus cycles, with the names of JESD79-4 (DDR4), section 13.
struct Timing {
  std::uint64_t CL = 0;      // RD to the first data
  std::uint64_t CWL = 0;     // WR to the first data
  std::uint64_t BL = 0;      // cycles of the bus that a burst takes
  std::uint64_t tRCD = 0;    // ACT to RD or WR
  std::uint64_t tRP = 0;     // PRE to ACT
  std::uint64_t tRAS = 0;    // ACT to PRE
  std::uint64_t tRTP = 0;    // RD to PRE
  std::uint64_t tWR = 0;     // end of the burst to PRE: the cells are written
  std::uint64_t tCCD = 0;    // RD to RD, WR to WR
  std::uint64_t tCCD_L = 0;  // the same, in one bank group
  std::uint64_t tRRD = 1;    // ACT to ACT of another bank of the rank
  std::uint64_t tRRD_L = 1;  // the same, in one bank group
  std::uint64_t tFAW = 0;    // at most four ACT of a rank in so many; 0: no such limit
  std::uint64_t tWTR = 0;    // end of a write burst to RD of the rank
  std::uint64_t tWTR_L = 0;  // the same, in one bank group
  std::uint64_t tRTRS = 0;   // the bus changes its driver: another rank, or reads to writes
  std::uint64_t tREFI = 0;   // between refreshes of a rank; 0: none
  std::uint64_t tRFC = 0;    // REF to ACT

  std::uint64_t read_to_burst_end() const { return CL + BL; }
  std::uint64_t write_to_burst_end() const { return CWL + BL; }
  std::uint64_t write_to_precharge() const { return CWL + BL + tWR; }
  /// RD to WR, so that the bursts do not meet on the bus.
  std::uint64_t read_to_write() const;
  /// While requests wait, nobody is served for so many cycles only in a deadlock: refreshes alone
  /// would go on for ever, and no command waits for another longer than all timings. The same of a
  /// certain one of `requests`: all others may come first.
  std::uint64_t longest_wait(std::uint64_t requests = 1) const;
};

enum class Page { Open, Closed };

/// How the controller of a channel works.
struct ControllerOptions {
  Page page = Page::Open;
  bool one_queue = true;      // reads and writes wait together, in `window` places
  std::uint64_t window = 64;  // requests
  std::uint64_t read_queue = 64;
  std::uint64_t write_queue = 64;
  std::uint64_t high_watermark = 51;  // so many writes wait: they are served, not the reads
  std::uint64_t low_watermark = 13;   // no more than so many: reads again
  bool hits_pipeline = true;  // false: a column command waits for the burst before it in its bank
};

enum class Field { Channel, Rank, BankGroup, Bank, Row, Column };

struct Device {
  std::string name;
  double clock_ns = 0;
  Geometry geometry;
  Timing timing;
  std::vector<Field> mapping;  // of the number of a line, from its high bits to its low ones
  ControllerOptions controller;
};

/// Errors: InvalidArgument with file and line or key: unknown and missing keys, impossible timings,
/// a mapping that does not cover the device. NotFound, SystemError when it can not be read.
Result<Device> read_device(const std::string& path);
Result<Device> parse_device(std::string_view text, std::string name);

}  // namespace perdure::memsys
