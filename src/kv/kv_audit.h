// An audit of a key-value store: whether all of its laws hold, everywhere. For tests, and for
// `perdure-kv check`.
//
// The laws: each slot that was ever used is in the chain of its bucket and in the order of keys, or
// in the list of free ones, once; the order is strict, and each level of it is part of the level
// below; each block is in one chain or in the list of free ones, once (so nothing leaks); checksums
// are right; the numbers in the state and the sums of grants are what is counted.
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::kv {

struct KvAudit {
  std::uint64_t keys = 0;
  std::uint64_t record_bytes = 0;
  std::uint64_t slots = 0;  // of the store
  std::uint64_t slots_available = 0;
  std::uint64_t blocks = 0;
  std::uint64_t blocks_available = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t granted_slots = 0;
  std::uint64_t granted_blocks = 0;
};

/// Errors: Corrupt, naming the law; VersionMismatch. Cost: reads all of it, and keeps a byte for
/// each slot and block.
Result<KvAudit> audit(const RpcData& data);

/// The handlers' bytes of a pool that nobody changes.
class KvImage final : public RpcData {
 public:
  explicit KvImage(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::uint64_t bytes() const override { return bytes_.size(); }
  Result<void> read(std::uint64_t at, std::span<std::byte> into) const override;

 private:
  const std::span<const std::byte> bytes_;
};

}  // namespace perdure::kv
