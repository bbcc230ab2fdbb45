// ServerLaw: what every run must keep, checked by one who only watches. Beside the law of the
// memory (persist_law.h: epochs of a thread, writes to one line) it knows what threads have seen of
// each other: if one reads or overwrites what another wrote after a barrier, then what it persists
// from then on comes after what the other persisted before that barrier.
//
// With Ordering::Eadr a write persists in its place in the coherence order, by definition: there
// the law holds whatever is simulated.
//
// With strands, "a thread" above is a strand of a thread: what one strand saw of another binds that
// strand alone, and only by what the other one persisted before.
#pragma once

#include "memsys/persist_law.h"

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace perdure::memsys {

class ServerLaw {
 public:
  ServerLaw(std::uint32_t threads, PersistLaw::Options options);

  // In coherence order.
  void on_access(std::uint32_t thread, std::uint64_t line, bool writes);
  /// A write that must persist. Returns its index. Call on_access before.
  std::uint64_t on_write(std::uint32_t thread, std::uint64_t line);
  /// A write that persists with an earlier one of its line, whose index is `into`: it must not do
  /// so too early either. Call on_access before. Requires  `into` is not persisted.
  void on_coalesced(std::uint32_t thread, std::uint64_t line, std::uint64_t into);
  void on_barrier(std::uint32_t thread);
  void on_strand(std::uint32_t thread);
  /// In the order of time, with what it took over.
  void on_persist(std::uint32_t thread, std::uint64_t line, std::uint64_t index, Cycle at);

  bool holds() const { return broken_.empty() && memory_.holds(); }
  const std::string& broken() const { return broken_.empty() ? memory_.broken() : broken_; }
  /// How many writes were checked, coalesced ones too.
  std::uint64_t checked() const { return memory_.checked(); }
  /// How often a thread saw what another wrote after a barrier that was not yet passed.
  std::uint64_t seen() const { return seen_; }

 private:
  /// By whom, in which epoch, and the first epoch of that strand.
  struct Written {
    std::uint32_t thread = 0;
    std::uint64_t epoch = 0;
    std::uint64_t begin = 0;
  };
  /// The thread's writes from `from` to before `until` persist after the epochs of `after`'s strand
  /// that are before its own.
  struct Requirement {
    std::uint64_t from = 0;
    std::uint64_t until = ~std::uint64_t{0};
    Written after;
  };
  struct Thread {
    std::uint64_t epoch = 0;
    std::uint64_t begin = 0;                      // the first epoch of this strand
    std::map<std::uint64_t, std::uint64_t> open;  // writes not yet persisted, of each epoch
    std::unordered_map<std::uint64_t, std::uint64_t> epoch_of;  // those writes, by index
    std::vector<Requirement> requirements;
  };
  static constexpr std::size_t kWrittenMax = 1 << 16;

  /// Whether a write of the strand, of an epoch before this one, is not persisted.
  bool open_before(const Written& written) const {
    const auto& open = threads_[written.thread].open;
    const auto first = open.lower_bound(written.begin);
    return first != open.end() && first->first < written.epoch;
  }
  void forget();
  void persist(std::uint32_t thread, std::uint64_t line, std::uint64_t index, Cycle at);

  PersistLaw memory_;
  std::vector<Thread> threads_;
  std::unordered_map<std::uint64_t, Written> written_;  // lines, where it may still matter
  std::unordered_map<std::uint64_t, std::vector<std::uint64_t>> coalesced_;  // with which write
  std::uint64_t next_index_ = 0;
  std::uint64_t seen_ = 0;
  std::string broken_;
};

}  // namespace perdure::memsys
