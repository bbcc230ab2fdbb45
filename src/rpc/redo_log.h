// RedoLog: changes of a region's bytes that take effect all or none, whatever crashes. What a
// transaction is to change is first durable as a record, which commits it, and is stored in its
// place only then. Recovery stores it again.
//
// Two records, of transactions n and n - 1, in two areas that take turns:
//
//   0     8   number         of the transaction, from 1
//   8     4   bytes          of the changes
//   12    4   crc32c         of bytes 0..12 and of the changes
//   16    ..  changes        each: offset u64, length u32, zero u32, its bytes, and zeros up to a
//                            multiple of 8
//
// One flush for each transaction: it makes the record of n durable, and with it what n - 1 has
// stored. So the record that n + 1 overwrites is needed no more, and what a crash can leave is: n
// torn and n - 1 whole (n never happened), or both whole (both are stored again, in order).
#pragma once

#include <perdure/result.h>

#include "pmem/region.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace perdure::rpc {

inline constexpr std::uint64_t kRedoHeadBytes = 16;
inline constexpr std::uint64_t kChangeHeadBytes = 16;

/// Threads: one caller at a time. Whoever reads the bytes meanwhile keeps away from store().
class RedoLog {
 public:
  struct Options {
    std::uint64_t base = 0;              // of all offsets here, in the region
    std::uint64_t bytes = 0;             // that may be changed are those below
    std::array<std::uint64_t, 2> areas;  // outside of what is changed
    std::uint64_t area_bytes = 0;
  };

  /// Requires that `region` outlives it.
  RedoLog(pmem::Region& region, const Options& options);
  /// A part of a transaction of `under`, whose changes it sees: it is written by another thread,
  /// and then taken. Requires that `under` outlives it, and does not change while it is read.
  explicit RedoLog(const RedoLog& under, std::nullptr_t);

  /// What a crash left is whole again; all that is visible in the changes' places is durable.
  /// Call it before anything else. Errors: Corrupt (no crash can cause it), SystemError.
  Result<void> recover();

  /// One more change. It is not seen before store() but by read().
  /// Errors: NoSpace (the record would be too large), OutOfRange: nothing was taken.
  Result<void> write(std::uint64_t at, std::span<const std::byte> bytes);
  /// All changes of such a part, which is empty afterwards. False: there is no room for them and
  /// one of `more` bytes; nothing was taken.
  bool take(RedoLog& part, std::uint64_t more);
  /// The bytes as they will be after the changes so far. Requires that they lie inside.
  void read(std::uint64_t at, std::span<std::byte> into) const;
  /// How many bytes one more change may have.
  std::uint64_t room() const;
  bool empty() const { return record_.size() == kRedoHeadBytes; }

  /// Where it is, for roll_back: what was written since is forgotten.
  std::size_t mark() const { return record_.size(); }
  void roll_back(std::size_t mark);

  /// Durability: on success the changes will be stored whatever crashes; else all or none of them.
  /// Errors: SystemError; the region is not to be trusted any more. Cost: one flush.
  Result<void> commit();
  /// Stores what was committed. Requires that commit() succeeded; afterwards it is empty.
  void store();

 private:
  struct Change {
    std::uint64_t at = 0;
    std::span<const std::byte> bytes;
  };

  std::span<std::byte> area(std::size_t which) const;
  template <typename Visit>
  static bool for_each_change(std::span<const std::byte> changes, Visit visit);
  bool is_whole(std::span<const std::byte> area) const;
  Result<void> replay(std::span<const std::byte> area);

  pmem::Region& region_;
  const Options options_;
  const RedoLog* const under_ = nullptr;  // of a part
  std::uint64_t number_ = 0;              // of the last transaction
  std::vector<std::byte> record_;         // being made
  std::vector<pmem::Range> unflushed_;    // stored by the last transaction
};

}  // namespace perdure::rpc
