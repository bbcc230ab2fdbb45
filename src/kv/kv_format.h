// The bytes of a key-value store within the handlers' data of a durable RPC pool (rpc.h). They are
// changed by transactions only, so a crash leaves the whole of a change or nothing of it, and there
// is nothing to rebuild.
//
//   0       geometry, 64 bytes       written with the first change; all zeros: an empty store
//   64      state, 128 bytes         what each change brings up to date
//   4096    grants                   one for each client that may hold one
//   ..      buckets, u32 each        of a hash index: the first slot of each chain
//   ..      slots, 128 bytes each    one for each key, where it stays as long as it is there
//   ..      blocks                   of what does not fit into a slot, in chains
//
// Slots and blocks are named by their numbers, from 1; 0 is none. A record is its key and then its
// value: the first 40 bytes are in the slot, the others in a chain of blocks. Each block begins
// with the number of the next and of the slot that has it; the last one's next means nothing while
// it is used, so that a chain that is freed needs one link only. Blocks of the free list are linked
// the same way.
//
// Each slot is in three lists: the chain of its bucket, found by hash; a skip list in the order of
// keys, whose height is taken from the hash; and, while it is free, the list of free ones.
#pragma once

#include <perdure/result.h>
#include <perdure/rpc.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace perdure::kv {

inline constexpr std::uint64_t kKvMagic = 0x31564b4452505250;  // "PRPRDKV1"
inline constexpr std::uint32_t kKvFormat = 1;
inline constexpr std::uint64_t kStateAt = 64;
inline constexpr std::uint64_t kGrantsAt = 4096;
inline constexpr std::size_t kHeightMax = 12;
inline constexpr std::size_t kInlineBytes = 40;
inline constexpr std::uint64_t kBlockHeadBytes = 8;
inline constexpr std::uint32_t kBlockBytesMin = 128;
inline constexpr std::uint32_t kBlockBytesMax = 65536;
/// Of slots and of blocks: their numbers are 32 bits wide.
inline constexpr std::uint64_t kNumberMax = 0xfffffff0;

struct KvGeometry {
  std::uint64_t magic = 0;
  std::uint32_t format = 0;
  std::uint32_t crc = 0;  // CRC32C of the rest
  std::uint64_t data_bytes = 0;
  std::uint64_t seed = 0;  // of the hash: nobody outside can choose keys that collide
  std::uint32_t slots = 0;
  std::uint32_t buckets = 0;  // a power of two
  std::uint32_t blocks = 0;
  std::uint32_t block_bytes = 0;  // a multiple of 64
  std::uint32_t grants = 0;
  std::uint32_t value_bytes_max = 0;  // that its clients are told; 0: the server's option
  std::uint64_t zero = 0;

  std::uint64_t payload() const { return block_bytes - kBlockHeadBytes; }
  std::uint64_t grant_at(std::uint64_t index) const;
  std::uint64_t bucket_at(std::uint64_t index) const;
  std::uint64_t slot_at(std::uint64_t number) const;
  std::uint64_t block_at(std::uint64_t number) const;
  /// How many blocks a record has.
  std::uint64_t blocks_for(std::uint64_t record_bytes) const;
};
static_assert(sizeof(KvGeometry) == 64 && std::is_trivially_copyable_v<KvGeometry>);

struct KvState {
  std::uint64_t version = 0;  // of the last change of a record
  std::uint64_t keys = 0;
  std::uint64_t record_bytes = 0;  // of all keys and values
  std::uint32_t slot_free = 0;     // the first of the free list
  std::uint32_t slots_begun = 0;   // those that were ever used
  std::uint32_t slots_free = 0;    // in the free list
  std::uint32_t block_free = 0;
  std::uint32_t blocks_begun = 0;
  std::uint32_t blocks_free = 0;
  std::uint64_t granted_slots = 0;  // of all grants
  std::uint64_t granted_blocks = 0;
  std::array<std::uint32_t, kHeightMax> first{};  // of the skip list, by level
  std::array<std::uint32_t, 4> zero{};
};
static_assert(sizeof(KvState) == 128 && std::is_trivially_copyable_v<KvState>);

/// What a client's changes may use, whatever the others do.
struct KvGrant {
  std::uint64_t client = 0;  // 0: nobody's
  std::uint64_t slots = 0;
  std::uint64_t blocks = 0;
  std::uint64_t zero = 0;
};
static_assert(sizeof(KvGrant) == 32 && std::is_trivially_copyable_v<KvGrant>);

struct KvSlot {
  std::uint64_t hash = 0;
  std::uint64_t version = 0;    // of its record; 0: it is free
  std::uint32_t next_slot = 0;  // of its bucket, or of the free list
  std::uint32_t value_bytes = 0;
  std::uint16_t key_bytes = 0;
  std::uint16_t height = 0;  // levels of the skip list that it is in
  std::uint32_t crc = 0;     // CRC32C of the record
  std::uint32_t first_block = 0;
  std::uint32_t last_block = 0;
  std::array<std::uint32_t, kHeightMax> next{};
  std::array<std::byte, kInlineBytes> inlined{};

  std::uint64_t record_bytes() const { return std::uint64_t{key_bytes} + value_bytes; }
};
static_assert(sizeof(KvSlot) == 128 && std::is_trivially_copyable_v<KvSlot>);

struct KvBlockHead {
  std::uint32_t next = 0;
  std::uint32_t slot = 0;
};
static_assert(sizeof(KvBlockHead) == kBlockHeadBytes);

/// RpcServerOptions::application, in the pool: "kerv".
inline constexpr std::uint32_t kApplication = 0x7672656b;

/// What a new store is to be.
struct KvShape {
  std::uint64_t keys_max = 0;
  std::uint32_t block_bytes = 512;
  std::uint32_t grants = 0;
  std::uint32_t value_bytes_max = 0;
};

/// Where everything is in so many bytes. Errors: InvalidArgument, naming the limit.
Result<KvGeometry> lay_out(std::uint64_t data_bytes, const KvShape& shape, std::uint64_t seed);
/// Nothing of the bytes is trusted. A geometry with magic 0: nothing was ever stored.
/// Errors: Corrupt, VersionMismatch.
Result<KvGeometry> read_geometry(const RpcData& data);

std::uint64_t hash_key(std::uint64_t seed, std::string_view key);
/// Levels of the skip list, from 1; each is a quarter of those below.
std::uint16_t height_of(std::uint64_t hash);

Error corrupt_store(const char* what);

}  // namespace perdure::kv
