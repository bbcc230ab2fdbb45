// Whether a store's laws hold: see kv_audit.h.
#include "kv/kv_audit.h"

#include <algorithm>
#include <vector>

#include "core/crc32c.h"
#include "core/try.h"
#include "kv/kv_reader.h"

namespace perdure::kv {
namespace {

class Auditor : public KvReader {
 public:
  explicit Auditor(const KvReader& reader)
      : KvReader(reader),
        used_slots_(state_.slots_begun + 1),
        used_blocks_(state_.blocks_begun + 1),
        levels_(state_.slots_begun + 1) {}

  Result<KvAudit> run() {
    PERDURE_TRY_VOID(walk_buckets());
    for (std::size_t level = 0; level < kHeightMax; ++level) PERDURE_TRY_VOID(walk_level(level));
    PERDURE_TRY_VOID(walk_free_slots());
    PERDURE_TRY_VOID(walk_free_blocks());
    PERDURE_TRY_VOID(count_grants());
    const auto all = [](const std::vector<std::uint8_t>& used) {
      return std::all_of(used.begin() + 1, used.end(), [](std::uint8_t each) { return each == 1; });
    };
    if (!all(used_slots_)) return corrupt_store("a slot is nowhere");
    if (!all(used_blocks_)) return corrupt_store("a block has leaked");
    if (keys_ != state_.keys || bytes_ != state_.record_bytes) {
      return corrupt_store("its numbers of keys or bytes are wrong");
    }
    KvAudit audit{keys_,
                  bytes_,
                  geometry_.slots,
                  slots_available(),
                  geometry_.blocks,
                  blocks_available(),
                  geometry_.block_bytes,
                  state_.granted_slots,
                  state_.granted_blocks};
    return audit;
  }

 private:
  Result<void> take_block(std::uint64_t block) {
    if (block == 0 || block > state_.blocks_begun) return corrupt_store("a block is out of range");
    if (used_blocks_[block]++ != 0) return corrupt_store("a block is in two places");
    return {};
  }
  Result<void> take_slot(std::uint64_t slot) {
    if (used_slots_[slot]++ != 0) return corrupt_store("a slot is in two places");
    return {};
  }

  Result<void> walk_buckets() {
    for (std::uint64_t bucket = 0; bucket < geometry_.buckets; ++bucket) {
      PERDURE_TRY(number, data_->load<std::uint32_t>(geometry_.bucket_at(bucket)));
      while (number != 0) {
        PERDURE_TRY(slot, load_slot(number));
        PERDURE_TRY_VOID(take_slot(number));
        PERDURE_TRY_VOID(look_at(number, slot));
        if ((slot.hash & (geometry_.buckets - 1)) != bucket) {
          return corrupt_store("a key is in another's bucket");
        }
        number = slot.next_slot;
      }
    }
    return {};
  }

  Result<void> look_at(std::uint32_t number, const KvSlot& slot) {
    if (slot.version == 0 || slot.version > state_.version) {
      return corrupt_store("a key has a version that was never given");
    }
    std::uint32_t block = slot.first_block;
    const std::uint64_t count = geometry_.blocks_for(slot.record_bytes());
    for (std::uint64_t each = 0; each < count; ++each) {
      PERDURE_TRY_VOID(take_block(block));
      PERDURE_TRY(head, data_->load<KvBlockHead>(geometry_.block_at(block)));
      if (head.slot != number) return corrupt_store("a block is another slot's");
      if (each + 1 == count && block != slot.last_block) {
        return corrupt_store("a chain ends elsewhere");
      }
      block = head.next;
    }
    PERDURE_TRY(key, key_of(slot));
    PERDURE_TRY(value, value_of(slot));
    const std::uint32_t crc = crc32c(value, crc32c(std::as_bytes(std::span(key))));
    if (crc != slot.crc) return corrupt_store("the checksum of a record is wrong");
    if (slot.hash != hash_key(geometry_.seed, key)) return corrupt_store("a hash is wrong");
    ++keys_;
    bytes_ += slot.record_bytes();
    return {};
  }

  Result<void> walk_level(std::size_t level) {
    std::string before;
    std::uint64_t count = 0;
    for (std::uint32_t number = state_.first[level]; number != 0;) {
      if (++count > keys_) return corrupt_store("its order has more than its keys");
      PERDURE_TRY(slot, load_slot(number));
      if (slot.version == 0) return corrupt_store("a free slot is in the order");
      if (slot.height <= level) return corrupt_store("a slot is higher than its height");
      if (slot.height != height_of(slot.hash)) return corrupt_store("a height is wrong");
      if (levels_[number] != level) return corrupt_store("a level has what is not below it");
      ++levels_[number];
      PERDURE_TRY(key, key_of(slot));
      if (count > 1 && key <= before) return corrupt_store("keys are out of order");
      before = std::move(key);
      high_ += level + 1 == slot.height ? 1 : 0;
      number = slot.next[level];
    }
    if (level == 0 && count != keys_) return corrupt_store("its order lacks a key");
    if (level + 1 == kHeightMax && high_ != keys_) return corrupt_store("a level lacks a key");
    return {};
  }

  Result<void> walk_free_slots() {
    std::uint64_t count = 0;
    for (std::uint32_t number = state_.slot_free; number != 0; ++count) {
      PERDURE_TRY(slot, load_slot(number));
      PERDURE_TRY_VOID(take_slot(number));
      if (slot.version != 0) return corrupt_store("a slot is free and in use");
      number = slot.next_slot;
    }
    if (count != state_.slots_free) return corrupt_store("its number of free slots is wrong");
    return {};
  }

  Result<void> walk_free_blocks() {
    std::uint32_t block = state_.block_free;
    for (std::uint64_t count = 0; count < state_.blocks_free; ++count) {
      PERDURE_TRY_VOID(take_block(block));
      PERDURE_TRY(next, load_link(block));
      block = next;
    }
    if (block != 0) return corrupt_store("its number of free blocks is wrong");
    return {};
  }

  Result<void> count_grants() {
    std::uint64_t slots = 0;
    std::uint64_t blocks = 0;
    for (std::uint64_t index = 0; index < geometry_.grants; ++index) {
      PERDURE_TRY(grant, data_->load<KvGrant>(geometry_.grant_at(index)));
      slots += grant.slots;
      blocks += grant.blocks;
    }
    if (slots != state_.granted_slots || blocks != state_.granted_blocks) {
      return corrupt_store("its sums of grants are wrong");
    }
    return {};
  }

  std::vector<std::uint8_t> used_slots_;
  std::vector<std::uint8_t> used_blocks_;
  std::vector<std::uint8_t> levels_;  // in how many levels a slot was found
  std::uint64_t keys_ = 0;
  std::uint64_t high_ = 0;  // slots that were found at their highest level
  std::uint64_t bytes_ = 0;
};

}  // namespace

Result<void> KvImage::read(std::uint64_t at, std::span<std::byte> into) const {
  if (at > bytes_.size() || into.size() > bytes_.size() - at) {
    return Error{ErrorCode::OutOfRange, "the store's bytes end before that"};
  }
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(at), into.size(), into.begin());
  return {};
}

Result<KvAudit> audit(const RpcData& data) {
  PERDURE_TRY(reader, KvReader::open(data));
  if (!reader.formatted()) return KvAudit{};
  return Auditor(reader).run();
}

}  // namespace perdure::kv
