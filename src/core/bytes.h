// Little-endian integers in byte buffers: the one encoding of every format on media and wire.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace perdure {

static_assert(std::endian::native == std::endian::little, "formats are little-endian in memory");

/// Reads a T at `at`. Requires at least sizeof(T) bytes there.
template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

/// The bytes of a trivially copyable object.
template <typename T>
std::span<const std::byte> bytes_of(const T& object) {
  return std::as_bytes(std::span<const T, 1>(&object, 1));
}

inline constexpr std::size_t kCacheLineBytes = 64;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
constexpr std::uint64_t round_down(std::uint64_t value, std::uint64_t multiple) {
  return value / multiple * multiple;
}

}  // namespace perdure
