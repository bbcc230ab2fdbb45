// AddressMap: which line of which row of which bank an address is.
#pragma once

#include "memsys/device.h"

#include <array>
#include <cstdint>

namespace perdure::memsys {

struct Place {
  std::uint32_t channel = 0;
  std::uint32_t bank = 0;  // in the channel: (rank * bank groups + group) * banks + bank
  std::uint32_t row = 0;
  std::uint32_t column = 0;  // a line of the row
  bool operator==(const Place&) const = default;
};

class AddressMap {
 public:
  /// Requires  a device that parse_device accepted.
  explicit AddressMap(const Device& device);

  /// Number of the line that holds the byte at `address`.
  std::uint64_t line(std::uint64_t address) const { return address >> line_shift_; }
  std::uint64_t lines() const { return lines_; }
  std::uint64_t line_bytes() const { return std::uint64_t{1} << line_shift_; }
  /// Requires  line < lines().
  Place place(std::uint64_t line) const {
    return {
        part(Field::Channel, line),
        ((part(Field::Rank, line) << group_width_ | part(Field::BankGroup, line)) << bank_width_) |
            part(Field::Bank, line),
        part(Field::Row, line), part(Field::Column, line)};
  }
  /// The inverse of place().
  std::uint64_t line_at(const Place& place) const;

 private:
  struct Bits {
    std::uint32_t shift = 0;
    std::uint32_t mask = 0;
  };
  std::uint32_t part(Field field, std::uint64_t line) const {
    const Bits& bits = bits_[static_cast<std::size_t>(field)];
    return static_cast<std::uint32_t>(line >> bits.shift) & bits.mask;
  }

  std::array<Bits, 6> bits_;
  std::uint64_t lines_ = 0;
  std::uint32_t line_shift_ = 0;
  std::uint32_t group_width_ = 0;
  std::uint32_t bank_width_ = 0;
};

}  // namespace perdure::memsys
