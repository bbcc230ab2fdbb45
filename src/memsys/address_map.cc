// Bits of a line's number: see address_map.h.
#include "memsys/address_map.h"

#include "core/assert.h"

#include <bit>

namespace perdure::memsys {
namespace {

std::uint32_t width_of(std::uint64_t count) {
  return static_cast<std::uint32_t>(std::countr_zero(count));
}

}  // namespace

AddressMap::AddressMap(const Device& device) {
  const Geometry& g = device.geometry;
  const std::array<std::uint64_t, 6> sizes{g.channels, g.ranks, g.bank_groups,
                                           g.banks,    g.rows,  g.lines_in_row()};
  line_shift_ = width_of(g.line_bytes);
  lines_ = g.bytes() / g.line_bytes;
  group_width_ = width_of(g.bank_groups);
  bank_width_ = width_of(g.banks);
  std::uint32_t shift = 0;
  for (std::size_t i = device.mapping.size(); i-- > 0;) {
    const auto field = static_cast<std::size_t>(device.mapping[i]);
    bits_.at(field) = {shift, static_cast<std::uint32_t>(sizes.at(field) - 1)};
    shift += width_of(sizes.at(field));
  }
  PERDURE_ASSERT(std::uint64_t{1} << shift == lines_);
}

std::uint64_t AddressMap::line_at(const Place& place) const {
  const std::uint32_t bank = place.bank & ((1U << bank_width_) - 1);
  const std::uint32_t group = (place.bank >> bank_width_) & ((1U << group_width_) - 1);
  const std::uint32_t rank = place.bank >> (bank_width_ + group_width_);
  const std::array<std::uint32_t, 6> parts{place.channel, rank,      group,
                                           bank,          place.row, place.column};
  std::uint64_t line = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    line |= std::uint64_t{parts.at(i)} << bits_.at(i).shift;
  }
  return line;
}

}  // namespace perdure::memsys
