// ByteSource: bytes to be read at any place, wherever they are.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace perdure {

/// For example the exported part of a pool.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual std::uint64_t size() const = 0;
  /// Fills `to` from `at`. Requires at + to.size() <= size().
  virtual Result<void> read(std::uint64_t at, std::span<std::byte> to) = 0;

  /// Brings `least` bytes from `at`, or more, up to `most`: without copying them, where the source
  /// has a place for them. Requires least <= most, at + most <= size().
  virtual Result<std::span<const std::byte>> view(std::uint64_t at, std::size_t least,
                                                  std::size_t most) {
    ++views_;
    (void)least;
    viewed_.resize(most);
    if (auto filled = read(at, viewed_); !filled) return filled.error();
    return std::span<const std::byte>(viewed_);
  }
  /// Counts the views: what one returned is good until the next.
  std::uint64_t views() const { return views_; }

 protected:
  std::uint64_t views_ = 0;

 private:
  std::vector<std::byte> viewed_;
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
