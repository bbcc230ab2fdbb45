// A copy that leaves no word in part old and in part new: for a replica whose process may be
// killed, and whose power may fail, anywhere in it.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/bytes.h"
#include "core/unordered_reads.h"

namespace perdure {

/// Copies to `to`, which may be anywhere, loading each aligned word of 8 bytes of `from` once: for
/// memory whose words others store whole meanwhile. What of them is read in which order is open.
inline void load_whole_words(std::byte* to, std::span<const std::byte> from) {
  const UnorderedReads of_what_others_store;
  const auto bytes_until = [&](std::size_t at, std::size_t until) {
    for (; at < until; ++at) to[at] = static_cast<const volatile std::byte&>(from[at]);
  };
  using Word = std::uint64_t;
  const std::size_t length = from.size();
  const auto place = reinterpret_cast<std::uintptr_t>(from.data());
  std::size_t at = std::min(length, -place % sizeof(Word));
  bytes_until(0, at);
  for (; at + sizeof(Word) <= length; at += sizeof(Word)) {
    store(to + at, *reinterpret_cast<const volatile Word*>(from.data() + at));
  }
  bytes_until(at, length);
}

/// Copies to `to`, each aligned word of 8 bytes there by one store, alone or with its neighbour.
/// That the pair's words are whole is promised by x86's manuals where there is AVX (Intel SDM 3A,
/// "Guaranteed Atomic Operations") and by Arm's where there is LSE2; older processors keep single
/// words whole too, but do not say so. memcpy promises no such thing: for long copies glibc uses an
/// instruction that can be interrupted behind any byte. They appear in any order; a word that is
/// copied alone appears after what the caller stored before.
/// Cost: 16 bytes a store, where memcpy takes up to 64.
inline void copy_whole_words(std::byte* to, std::span<const std::byte> from) {
  using Word = std::uint64_t;
  using Pair = Word __attribute__((vector_size(16), may_alias));
  const std::byte* const bytes = from.data();
  const std::size_t length = from.size();
  std::size_t at = 0;
  const auto copy_bytes = [&](std::size_t until) {
    for (; at < until; ++at) *static_cast<volatile std::byte*>(to + at) = bytes[at];
  };
  const auto copy_word = [&] {
    std::atomic_ref<Word>(*reinterpret_cast<Word*>(to + at))
        .store(load<Word>(bytes + at), std::memory_order_release);
    at += sizeof(Word);
  };
  const auto place = reinterpret_cast<std::uintptr_t>(to);
  copy_bytes(std::min(length, -place % sizeof(Word)));
  if ((place + at) % sizeof(Pair) != 0 && at + sizeof(Word) <= length) copy_word();
  for (; at + sizeof(Pair) <= length; at += sizeof(Pair)) {
    // Volatile, so that the compiler makes no library call of the loop.
    *reinterpret_cast<volatile Pair*>(to + at) = load<Pair>(bytes + at);
  }
  while (at + sizeof(Word) <= length) copy_word();
  copy_bytes(length);
}

}  // namespace perdure
