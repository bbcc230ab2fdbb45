// PlaceHints: the places whose rings may have got something since they were last looked at. Setting
// one costs a session's thread one atomic operation; taking them does not touch the others' rings.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace perdure::rpc {

/// Threads: any.
class PlaceHints {
 public:
  explicit PlaceHints(std::size_t places) : words_((places + kBits - 1) / kBits) {}

  /// What was stored before is seen by who takes it.
  void set(std::size_t place) {
    words_[place / kBits].fetch_or(std::uint64_t{1} << place % kBits, std::memory_order_release);
  }
  /// `into` gets those that are set, in ascending order; they are set no more.
  void take(std::vector<std::size_t>& into) {
    into.clear();
    for (std::size_t word = 0; word < words_.size(); ++word) {
      if (words_[word].load(std::memory_order_relaxed) == 0) continue;
      std::uint64_t bits = words_[word].exchange(0, std::memory_order_acquire);
      for (; bits != 0; bits &= bits - 1) {
        into.push_back(kBits * word + static_cast<std::size_t>(std::countr_zero(bits)));
      }
    }
  }

 private:
  static constexpr std::size_t kBits = 64;
  std::vector<std::atomic<std::uint64_t>> words_;
};

}  // namespace perdure::rpc
