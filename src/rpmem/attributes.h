// PoolAttributes: what a replica's headers say of the pool, as rpmem_create and rpmem_open carry it
// (struct rpmem_pool_attr of librpmem, 104 bytes, host order).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::rpmem {

using Uuid16 = std::array<std::byte, 16>;

struct PoolAttributes {
  std::array<char, 8> signature{};
  std::uint32_t major = 0;
  std::uint32_t compat = 0;
  std::uint32_t incompat = 0;
  std::uint32_t ro_compat = 0;
  Uuid16 poolset_uuid{};
  Uuid16 uuid{};       // of the replica's first part
  Uuid16 next_uuid{};  // of the next replica's first part
  Uuid16 prev_uuid{};
  Uuid16 user_flags{};  // what PMDK keeps in the field of the processor's architecture

  /// All zero: the set has no headers.
  bool empty() const { return *this == PoolAttributes{}; }
  bool operator==(const PoolAttributes&) const = default;
};
static_assert(sizeof(PoolAttributes) == 104);

inline std::span<const std::byte> bytes_of(const PoolAttributes& attributes) {
  return std::as_bytes(std::span(&attributes, 1));
}

}  // namespace perdure::rpmem
