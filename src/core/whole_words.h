// A copy that leaves no word in part old and in part new: for a replica whose process may be
// killed, and whose power may fail, anywhere in it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"

namespace perdure {

/// Copies to `to`, each aligned word of 8 bytes there in one store. memcpy promises no such thing:
/// for long copies glibc uses an instruction that can be interrupted behind any byte. The words
/// appear in any order, all of them after what the caller stored before.
inline void copy_whole_words(std::byte* to, std::span<const std::byte> from) {
  using Word = std::uint64_t;
  std::size_t at = 0;
  const auto copy_bytes = [&](std::size_t until) {
    for (; at < until; ++at) {
      std::atomic_ref<std::byte>(to[at]).store(from[at], std::memory_order_release);
    }
  };
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % sizeof(Word);
  copy_bytes(misaligned == 0 ? 0 : std::min(from.size(), sizeof(Word) - misaligned));
  for (; at + sizeof(Word) <= from.size(); at += sizeof(Word)) {
    std::atomic_ref<Word>(*reinterpret_cast<Word*>(to + at))
        .store(load<Word>(from.data() + at), std::memory_order_release);
  }
  copy_bytes(from.size());
}

}  // namespace perdure
