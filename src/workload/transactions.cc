// Threads that change one structure: see transactions.h.
#include "workload/transactions.h"

namespace perdure::workload {
namespace {

constexpr std::uint64_t kSeedStep = 0x9e3779b97f4a7c15U;

std::uint64_t whole_lines(std::uint64_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

}  // namespace

Transactions::Transactions(std::unique_ptr<Structure> structure, TransactionsOptions options)
    : structure_(std::move(structure)),
      options_(options),
      locks_at_(whole_lines(structure_->footprint())),
      logs_at_(locks_at_ + options.partitions * kLineBytes) {
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    Random random(options.seed + (i + 1) * kSeedStep);
    // Records begin anywhere, or all threads would use the same bank at the same time.
    const std::uint64_t first = random.below(kLogBytes / kLineBytes) * kLineBytes;
    const std::uint64_t base = logs_at_ + i * (kLogBytes + options.log_gap);
    threads_.push_back({random, LogArea(base, kLogBytes, first)});
  }
}

std::optional<Program::Start> Transactions::start(std::uint32_t number) {
  Thread& thread = threads_[number];
  thread.partition = static_cast<std::uint32_t>(thread.random.below(options_.partitions));
  return Start{Lock{thread.partition, locks_at_ + thread.partition * kLineBytes}};
}

void Transactions::run(std::uint32_t number, std::vector<Operation>& operations) {
  Thread& thread = threads_[number];
  recorder_.clear();
  structure_->transact(thread.partition, thread.random, recorder_);
  append_transaction(options_.logging, recorder_, thread.log, operations);
  if (options_.durable_commits) operations.push_back({OperationKind::Fence, 0});
  operations.push_back({OperationKind::Unlock, 0});
  operations.push_back({OperationKind::Commit, 0});
  operations.push_back({OperationKind::Strand, 0});
}

}  // namespace perdure::workload
