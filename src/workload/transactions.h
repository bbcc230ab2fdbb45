// Transactions: the program of a processor whose threads all change one structure. A thread chooses
// a partition at random, takes its lock, changes what is in it under a protocol of logging, and
// goes on. Each transaction is a strand.
//
// In memory: the structure, then the locks of its partitions, then the logs of the threads. Under
// shadow updates each thread's log is its free lines, and the tree's nodes lie behind them.
#pragma once

#include "workload/logging.h"
#include "workload/shadow_tree.h"
#include "workload/structure.h"

#include <memory>
#include <vector>

namespace perdure::workload {

struct TransactionsOptions {
  Logging logging = Logging::Undo;
  std::uint32_t threads = 8;
  std::uint32_t partitions = 256;  // as the structure has
  std::uint64_t seed = 1;
  bool durable_commits = false;  // a thread waits until its transaction is persisted
  /// Bytes between the logs of two threads, whole lines. A transaction writes the header of its
  /// thread's log: without a gap they all lie in one bank.
  std::uint64_t log_gap = 0;
};

class Transactions final : public Program {
 public:
  static constexpr std::uint64_t kLogBytes = std::uint64_t{1} << 20;  // of a thread

  Transactions(std::unique_ptr<Structure> structure, TransactionsOptions options);

  std::optional<Start> start(std::uint32_t thread) override;
  void run(std::uint32_t thread, std::vector<Operation>& operations) override;

  /// Bytes of memory that the program needs, from address 0, on a structure of that size.
  static std::uint64_t bytes_for(std::uint64_t footprint, const TransactionsOptions& options);
  std::uint64_t bytes() const { return bytes_for(structure_->footprint(), options_); }
  const Structure& structure() const { return *structure_; }
  /// Under shadow updates: where its lines stand, and the free lines of a thread.
  const ShadowTree& tree() const { return *tree_; }
  const FreeLines& free_lines(std::uint32_t thread) const { return threads_[thread].free; }

 private:
  struct Thread {
    Random random;
    LogArea log;
    FreeLines free;
    std::uint32_t partition = 0;
  };

  std::unique_ptr<Structure> structure_;
  const TransactionsOptions options_;
  std::uint64_t locks_at_;
  std::vector<Thread> threads_;
  std::optional<ShadowTree> tree_;
  Recorder recorder_;
};

}  // namespace perdure::workload
