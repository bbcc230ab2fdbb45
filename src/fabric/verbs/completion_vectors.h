// Which interrupt wakes a sleeping connection. No verbs in here.
//
// An RNIC has several completion vectors, each with an interrupt of its own. With all connections
// on the first one, a single core takes every interrupt. Drivers lay them out from the cores
// nearest to the device outwards (Linux, mlx5: for_each_numa_hop_mask in pci_irq.c;
// cpumask_local_spread in others), so the first ones, as many as there are near cores, are the near
// ones.
#pragma once

#include <algorithm>
#include <atomic>
#include <charconv>
#include <string_view>

namespace perdure::fabric::verbs {

/// How many processors a list of the kernel names, "0-3,8-11,16"; 0 if it is none.
inline unsigned count_processors(std::string_view list) {
  unsigned count = 0;
  while (!list.empty()) {
    const std::string_view part = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), part.size() + 1));
    unsigned first = 0;
    const auto begin = std::from_chars(part.data(), part.data() + part.size(), first);
    if (begin.ec != std::errc()) return 0;
    unsigned last = first;
    const char* const end = part.data() + part.size();
    if (begin.ptr != end) {
      if (*begin.ptr != '-') return 0;
      const auto rest = std::from_chars(begin.ptr + 1, end, last);
      if (rest.ec != std::errc() || rest.ptr != end || last < first) return 0;
    }
    count += last - first + 1;
  }
  return count;
}

/// Threads: any.
class CompletionVectors {
 public:
  /// Of an RNIC with so many vectors, near so many cores; 0: not known, which counts as all.
  void prepare(int vectors, unsigned near_cores) {
    const unsigned all = vectors > 0 ? static_cast<unsigned>(vectors) : 1;
    used_ = near_cores == 0 ? all : std::min(all, near_cores);
  }
  /// For the next connection: each in turn.
  int next() { return static_cast<int>(next_.fetch_add(1, std::memory_order_relaxed) % used_); }

 private:
  unsigned used_ = 1;
  std::atomic<unsigned> next_{0};
};

}  // namespace perdure::fabric::verbs
