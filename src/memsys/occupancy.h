// OccupancyBound: what any controller and any order must take for a trace, by how long its requests
// occupy banks and buses. In memory that depends on the device alone.
#pragma once

#include "memsys/address_map.h"
#include "memsys/device.h"

#include <cstdint>
#include <vector>

namespace perdure::memsys {

class OccupancyBound {
 public:
  explicit OccupancyBound(const Device& device);

  void add(const Place& place, bool write);
  /// No order of the requests ends its last burst before this cycle.
  Cycle cycles() const;

 private:
  /// Devices with more rows are not followed row by row, and the bound is lower.
  static constexpr std::uint64_t kRowsMax = std::uint64_t{1} << 28;

  struct Bank {
    std::uint64_t requests = 0;
    std::uint64_t rows_read = 0;  // and never written
    std::uint64_t rows_written = 0;
  };

  const Timing timing_;
  const std::uint64_t rows_;
  const std::uint32_t banks_in_channel_;
  std::vector<Bank> banks_;
  std::vector<std::uint64_t> requests_;   // of each channel
  std::vector<std::uint8_t> row_states_;  // two bits a row: seen, written; empty: too many rows
};

}  // namespace perdure::memsys
