// A program on libpmemobj under test: transactions on a pool whose replica, if it has one, is an
// rpmemd's, by librpmem.so.1 of this build.
#pragma once

#include <perdure/result.h>

#include "report/histogram.h"

#include <cstdint>
#include <string>

namespace perdure::bench {

/// A transaction snapshots two fields of 8 B and stores them. libpmemobj 1.12 calls rpmem_persist
/// so often for it, one after the other: 4 of 33 to 64 B for its undo log, 3 relaxed ones of 8 B
/// (traced by a library between the two).
inline constexpr double kPersistsPerTransaction = 7;

struct ObjectsUnderTestOptions {
  std::string directory;  // empty, in memory; the pool and its replica are made there
  std::string transport;  // "tcp" or "shm"; empty: no replica
};

/// Times of so many transactions, after a fifth of that. For a process of its own: libpmemobj looks
/// at the environment when it is loaded.
/// Errors: NotFound (no libpmemobj.so.1, and those of load_librpmem), SystemError, with what
/// pmemobj_errormsg() says.
Result<report::Histogram> transactions(const ObjectsUnderTestOptions& options, std::uint64_t count);
/// Transactions a second of so many threads, each with its own fields; `count` of all together.
Result<double> transactions_per_second(const ObjectsUnderTestOptions& options, std::uint64_t count,
                                       std::size_t threads);

}  // namespace perdure::bench
