// Threads that change one structure: see transactions.h.
#include "workload/transactions.h"

#include "workload/shuffle.h"

#include <numeric>

namespace perdure::workload {
namespace {

constexpr std::uint64_t kSeedStep = 0x9e3779b97f4a7c15U;

std::uint64_t whole_lines(std::uint64_t bytes) {
  return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
}

std::uint64_t locks_at(std::uint64_t footprint) { return whole_lines(footprint); }

std::uint64_t logs_at(std::uint64_t footprint, const TransactionsOptions& options) {
  return locks_at(footprint) + options.partitions * kLineBytes;
}

std::uint64_t tree_at(std::uint64_t footprint, const TransactionsOptions& options) {
  return logs_at(footprint, options) +
         options.threads * (Transactions::kLogBytes + options.log_gap);
}

/// In any order, as they are once each has been taken and given back.
FreeLines lines_in_any_order(std::uint64_t first, std::uint64_t count, std::uint64_t seed) {
  Random random(seed);
  FreeLines lines(count);
  std::iota(lines.begin(), lines.end(), first);
  shuffle(lines, random);
  return lines;
}

}  // namespace

std::uint64_t Transactions::bytes_for(std::uint64_t footprint, const TransactionsOptions& options) {
  const std::uint64_t tree = options.logging == Logging::Shadow
                                 ? ShadowTree::node_lines(whole_lines(footprint) / kLineBytes)
                                 : 0;
  return tree_at(footprint, options) + tree * kLineBytes;
}

Transactions::Transactions(std::unique_ptr<Structure> structure, TransactionsOptions options)
    : structure_(std::move(structure)),
      options_(options),
      locks_at_(locks_at(structure_->footprint())) {
  const std::uint64_t footprint = structure_->footprint();
  constexpr std::uint64_t kLogLines = kLogBytes / kLineBytes;
  if (options.logging == Logging::Shadow) {
    tree_.emplace(whole_lines(footprint) / kLineBytes, tree_at(footprint, options) / kLineBytes);
  }
  for (std::uint32_t i = 0; i < options.threads; ++i) {
    Random random(options.seed + (i + 1) * kSeedStep);
    // Records begin anywhere, or all threads would use the same bank at the same time.
    const std::uint64_t first = random.below(kLogLines);
    const std::uint64_t base = logs_at(footprint, options) + i * (kLogBytes + options.log_gap);
    threads_.push_back({random, LogArea(base, kLogBytes, first * kLineBytes), {}});
    if (tree_)
      threads_.back().free = lines_in_any_order(base / kLineBytes, kLogLines, options.seed + i);
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
  if (tree_) {
    tree_->append_transaction(recorder_, thread.free, operations);
  } else {
    append_transaction(options_.logging, recorder_, thread.log, operations);
  }
  if (options_.durable_commits) operations.push_back({OperationKind::Fence, 0});
  operations.push_back({OperationKind::Unlock, 0});
  operations.push_back({OperationKind::Commit, 0});
  operations.push_back({OperationKind::Strand, 0});
}

}  // namespace perdure::workload
