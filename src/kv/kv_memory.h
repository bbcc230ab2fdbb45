// A transaction on bytes in memory, for tests of the store: what it writes is there at once, and
// can be taken back.
#pragma once

#include <perdure/rpc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace perdure::kv {

class KvMemory final : public RpcTransaction {
 public:
  explicit KvMemory(std::uint64_t bytes) : bytes_(bytes) {}

  std::uint64_t bytes() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t at, std::span<std::byte> into) const override {
    if (at > bytes_.size() || into.size() > bytes_.size() - at) {
      return Error{ErrorCode::OutOfRange, "outside"};
    }
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), into.size(), into.begin());
    return {};
  }
  Result<void> write(std::uint64_t at, std::span<const std::byte> from) override {
    if (at > bytes_.size() || from.size() > bytes_.size() - at) {
      return Error{ErrorCode::OutOfRange, "outside"};
    }
    const auto to = std::span(bytes_).subspan(at, from.size());
    undo_.push_back({at, {to.begin(), to.end()}});
    std::copy(from.begin(), from.end(), to.begin());
    return {};
  }

  void commit() { undo_.clear(); }
  void roll_back() {
    for (; !undo_.empty(); undo_.pop_back()) {
      std::copy(undo_.back().bytes.begin(), undo_.back().bytes.end(),
                bytes_.begin() + static_cast<std::ptrdiff_t>(undo_.back().at));
    }
  }
  std::vector<std::byte>& raw() { return bytes_; }

 private:
  struct Undo {
    std::uint64_t at = 0;
    std::vector<std::byte> bytes;
  };
  std::vector<std::byte> bytes_;
  std::vector<Undo> undo_;
};

}  // namespace perdure::kv
