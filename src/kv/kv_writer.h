// KvWriter: changes a key-value store within one transaction. After an error the transaction is to
// be given up: part of the change may have been written to it.
#pragma once

#include "kv/kv_reader.h"

namespace perdure::kv {

/// When a record is stored.
enum class KvIf : std::uint32_t { Always = 0, Absent = 1, Present = 2 };

struct KvPut {
  std::string_view key;
  std::span<const std::byte> value;
  std::uint32_t crc = 0;  // CRC32C of key and value
  KvIf condition = KvIf::Always;
  /// Whose grant it uses, which has enough for it; 0: what is granted to nobody.
  std::uint64_t granted = 0;
};

struct KvPutOutcome {
  bool stored = false;  // else its condition did not hold
  bool was_there = false;
  std::uint64_t version = 0;
};

class KvWriter : public KvReader {
 public:
  /// A store that has nothing yet becomes one of `shape`. Errors: those of lay_out and
  /// read_geometry.
  static Result<KvWriter> open(RpcTransaction& data, const KvShape& shape);

  /// Errors: NoSpace (all that is not granted to somebody is used), InvalidArgument (the grant is
  /// not enough), Corrupt.
  Result<KvPutOutcome> put(const KvPut& put);
  /// Returns whether it was there. Errors: Corrupt.
  Result<bool> erase(std::string_view key);
  /// A client's grant grows up to `slots` and `blocks`, as far as there are any, and never shrinks.
  /// Returns what it is then; nothing where the table of grants is full. Errors: Corrupt.
  Result<KvGrant> grant(std::uint64_t client, std::uint64_t slots, std::uint64_t blocks);
  /// To be called last: what the changes leave.
  Result<void> finish();

 private:
  explicit KvWriter(RpcTransaction& data) : KvReader(data), transaction_(&data) {}
  Result<void> format(const KvShape& shape);
  Result<std::optional<std::uint64_t>> grant_of(std::uint64_t client, KvGrant& grant) const;
  Result<void> use_grant(std::uint64_t client, std::uint64_t blocks);
  Result<std::uint32_t> take_slot();
  Result<std::vector<std::uint32_t>> take_blocks(std::uint64_t count);
  Result<void> free_chain(const KvSlot& slot);
  Result<void> write_chain(std::uint32_t slot, const std::vector<std::uint32_t>& blocks,
                           std::span<const std::byte> rest);
  Result<void> fill(FoundSlot& found, const KvPut& put);
  Result<void> link(FoundSlot& found, std::string_view key);
  Result<void> unlink_bucket(const FoundSlot& found);
  Result<void> unlink_order(const FoundSlot& found, std::string_view key);
  Result<void> store_slot(const FoundSlot& found);

  RpcTransaction* transaction_;
};

}  // namespace perdure::kv
