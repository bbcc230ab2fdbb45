// ByteSource: bytes to be read at any place, wherever they are.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace perdure {

/// For example the exported part of a pool.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  /// Fills `to` from `at`. Requires at + to.size() <= size().
  virtual Result<void> read(std::uint64_t at, std::span<std::byte> to) = 0;
};

/// Bytes in this process.
class LocalBytes final : public ByteSource {
 public:
  explicit LocalBytes(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t size() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t at, std::span<std::byte> to) override {
    std::memcpy(to.data(), bytes_.data() + at, to.size());
    return {};
  }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace perdure
