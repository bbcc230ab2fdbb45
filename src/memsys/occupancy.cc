// A bound from below: see occupancy.h.
#include "memsys/occupancy.h"

#include <algorithm>

namespace perdure::memsys {

OccupancyBound::OccupancyBound(const Device& device)
    : timing_(device.timing),
      rows_(device.geometry.rows),
      banks_in_channel_(static_cast<std::uint32_t>(device.geometry.banks_in_channel())),
      banks_(device.geometry.channels * banks_in_channel_),
      requests_(device.geometry.channels) {
  const std::uint64_t rows = banks_.size() * rows_;
  if (rows <= kRowsMax) row_states_.resize((rows + 3) / 4);
}

void OccupancyBound::add(const Place& place, bool write) {
  ++requests_[place.channel];
  const std::size_t number = std::size_t{place.channel} * banks_in_channel_ + place.bank;
  Bank& bank = banks_[number];
  ++bank.requests;
  if (row_states_.empty()) return;
  const std::uint64_t row = number * rows_ + place.row;
  std::uint8_t& states = row_states_[row / 4];
  const auto shift = static_cast<std::uint32_t>(row % 4 * 2);
  const std::uint32_t old = states >> shift & 3U;
  const std::uint32_t now = old | 1U | (write ? 2U : 0U);
  if (old == now) return;
  states = static_cast<std::uint8_t>(states | now << shift);
  if (old == 0) ++(write ? bank.rows_written : bank.rows_read);
  if (old == 1) --bank.rows_read, ++bank.rows_written;
}

/// A row is opened once at least, and open as long as its own timings say; the last one need not be
/// closed. Column commands of a bank, and bursts of a channel, follow each other.
Cycle OccupancyBound::cycles() const {
  const Timing& t = timing_;
  const Cycle read_row = std::max(t.tRAS, t.tRCD + t.tRTP) + t.tRP;
  const Cycle written_row = std::max(t.tRAS, t.tRCD + t.write_to_precharge()) + t.tRP;
  const Cycle first_burst = t.tRCD + std::min(t.CL, t.CWL) + t.BL;
  const Cycle column = std::min({t.tCCD_L, t.read_to_write(), t.write_to_burst_end() + t.tWTR_L});
  Cycle bound = 0;
  for (const Bank& bank : banks_) {
    if (bank.requests == 0) continue;
    bound = std::max(bound, first_burst + (bank.requests - 1) * column);
    const Cycle rows = bank.rows_read * read_row + bank.rows_written * written_row;
    if (rows == 0) continue;
    bound = std::max(bound, rows -
                                std::max(bank.rows_read > 0 ? read_row : 0,
                                         bank.rows_written > 0 ? written_row : 0) +
                                first_burst);
  }
  for (const std::uint64_t requests : requests_) {
    if (requests > 0) bound = std::max(bound, first_burst + (requests - 1) * t.BL);
  }
  return bound;
}

}  // namespace perdure::memsys
