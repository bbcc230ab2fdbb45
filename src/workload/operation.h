// What a program asks of a processor: instructions, loads, stores, persists and the order of those.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace perdure::workload {

enum class OperationKind : std::uint8_t {
  Compute,  // so many instructions that need no memory
  Load,     // of a line; the thread goes on when it has it
  Store,    // to a line, which need not survive
  Persist,  // a store to a line that must survive
  Barrier,  // persists after it follow, in the order of persistence, all persists before it
  Fence,    // a barrier, and the thread goes on when its persists are persisted
  Strand,   // what the thread persists from now on has no order with what it persisted before,
            // but for lines that both touch; orders that know no strands ignore it
  Unlock,   // releases the lock of the transaction, after all stores before it
  Commit,   // the transaction has ended
};

struct Operation {
  OperationKind kind = OperationKind::Compute;
  std::uint64_t value = 0;  // Compute: instructions. Load, Store, Persist: address of a byte
  bool operator==(const Operation&) const = default;
};

/// A lock by number; the line in memory that it is has an address.
struct Lock {
  std::uint32_t number = 0;
  std::uint64_t address = 0;
};

/// What the threads of a processor run: transactions one after the other, each under one lock.
class Program {
 public:
  virtual ~Program() = default;
  /// The thread goes to its next transaction.
  struct Start {
    std::optional<Lock> lock;  // to be held before `run`
  };
  /// Nothing: the thread has ended.
  virtual std::optional<Start> start(std::uint32_t thread) = 0;
  /// Runs the transaction on the data and appends what it asks of the processor. The order in which
  /// this is called is the order in which transactions take effect.
  virtual void run(std::uint32_t thread, std::vector<Operation>& operations) = 0;
};

}  // namespace perdure::workload
