// Changes of a store: see kv_writer.h.
#include "kv/kv_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/random.h"
#include "core/try.h"

namespace perdure::kv {
namespace {

// Blocks that lie side by side are written together, up to so many bytes.
constexpr std::size_t kRunBytesMax = 64 * 1024;

}  // namespace

Result<KvWriter> KvWriter::open(RpcTransaction& data, const KvShape& shape) {
  KvWriter writer(data);
  PERDURE_TRY_VOID(writer.load());
  if (!writer.formatted()) PERDURE_TRY_VOID(writer.format(shape));
  return writer;
}

Result<void> KvWriter::format(const KvShape& shape) {
  PERDURE_TRY(geometry, lay_out(transaction_->bytes(), shape, random_secret()));
  geometry_ = geometry;
  state_ = {};
  return transaction_->store(0, geometry);
}

Result<void> KvWriter::finish() { return transaction_->store(kStateAt, state_); }

Result<void> KvWriter::store_slot(const FoundSlot& found) {
  return transaction_->store(geometry_.slot_at(found.number), found.slot);
}

Result<KvPutOutcome> KvWriter::put(const KvPut& put) {
  const std::uint64_t needed = geometry_.blocks_for(put.key.size() + put.value.size());
  if (put.granted != 0) PERDURE_TRY_VOID(use_grant(put.granted, needed));
  PERDURE_TRY(there, find(put.key));
  KvPutOutcome outcome;
  outcome.was_there = there.has_value();
  if (there && put.condition == KvIf::Absent) return outcome;
  if (!there && put.condition == KvIf::Present) return outcome;
  FoundSlot found;
  if (there) {
    // What it had may be used at once: nothing is overwritten before all of this is committed.
    found = *there;
    PERDURE_TRY_VOID(free_chain(found.slot));
    state_.record_bytes -= std::min(state_.record_bytes, found.slot.record_bytes());
  } else {
    if (slots_available() <= state_.granted_slots) {
      return Error{ErrorCode::NoSpace,
                   fmt::format("the store is full: it was made for {} keys", geometry_.slots)};
    }
    PERDURE_TRY(number, take_slot());
    found.number = number;
  }
  if (blocks_available() < state_.granted_blocks + needed) {
    return Error{ErrorCode::NoSpace,
                 fmt::format("the store is full: {} bytes of its values are free, and not kept for "
                             "somebody",
                             (blocks_available() - state_.granted_blocks) * geometry_.payload())};
  }
  found.slot.version = ++state_.version;
  PERDURE_TRY_VOID(fill(found, put));
  if (!there) PERDURE_TRY_VOID(link(found, put.key));
  PERDURE_TRY_VOID(store_slot(found));
  state_.keys += there ? 0 : 1;
  state_.record_bytes += found.slot.record_bytes();
  outcome.stored = true;
  outcome.version = found.slot.version;
  return outcome;
}

/// The record itself: into the slot, and into blocks.
Result<void> KvWriter::fill(FoundSlot& found, const KvPut& put) {
  std::vector<std::byte> record(put.key.size() + put.value.size());
  const auto key = std::as_bytes(std::span(put.key));
  std::copy(put.value.begin(), put.value.end(), std::copy(key.begin(), key.end(), record.begin()));
  const std::size_t shown = std::min(record.size(), kInlineBytes);
  KvSlot& slot = found.slot;
  slot.key_bytes = static_cast<std::uint16_t>(put.key.size());
  slot.value_bytes = static_cast<std::uint32_t>(put.value.size());
  slot.crc = put.crc;
  slot.inlined = {};
  std::copy_n(record.begin(), shown, slot.inlined.begin());
  const auto rest = std::span<const std::byte>(record).subspan(shown);
  PERDURE_TRY(blocks, take_blocks(geometry_.blocks_for(record.size())));
  slot.first_block = blocks.empty() ? 0 : blocks.front();
  slot.last_block = blocks.empty() ? 0 : blocks.back();
  return write_chain(found.number, blocks, rest);
}

Result<std::uint32_t> KvWriter::take_slot() {
  if (state_.slot_free == 0) {
    if (state_.slots_begun == geometry_.slots) return corrupt_store("it lost count of its slots");
    return ++state_.slots_begun;
  }
  const std::uint32_t number = state_.slot_free;
  PERDURE_TRY(slot, load_slot(number));
  if (slot.version != 0 || state_.slots_free == 0) {
    return corrupt_store("a slot is free and in use");
  }
  state_.slot_free = slot.next_slot;
  --state_.slots_free;
  return number;
}

/// Those of the free list first. Requires that there are enough.
Result<std::vector<std::uint32_t>> KvWriter::take_blocks(std::uint64_t count) {
  std::vector<std::uint32_t> blocks;
  blocks.reserve(count);
  while (blocks.size() < count && state_.block_free != 0) {
    if (state_.blocks_free == 0) return corrupt_store("it lost count of its blocks");
    blocks.push_back(state_.block_free);
    PERDURE_TRY(next, load_link(state_.block_free));
    state_.block_free = next;
    --state_.blocks_free;
  }
  while (blocks.size() < count) {
    if (state_.blocks_begun == geometry_.blocks) {
      return corrupt_store("it lost count of its blocks");
    }
    blocks.push_back(++state_.blocks_begun);
  }
  return blocks;
}

Result<void> KvWriter::write_chain(std::uint32_t slot, const std::vector<std::uint32_t>& blocks,
                                   std::span<const std::byte> rest) {
  const std::size_t payload = geometry_.payload();
  std::vector<std::byte> run;
  std::size_t begin = 0;  // of the run, in `blocks`
  for (std::size_t index = 0; index < blocks.size(); ++index) {
    const bool last = index + 1 == blocks.size();
    const std::size_t at = run.size();
    const std::size_t part = std::min(payload, rest.size());
    run.resize(at + kBlockHeadBytes + part);
    store(run.data() + at, KvBlockHead{last ? 0 : blocks[index + 1], slot});
    std::copy_n(rest.begin(), part,
                run.begin() + static_cast<std::ptrdiff_t>(at + kBlockHeadBytes));
    rest = rest.subspan(part);
    const bool goes_on = !last && blocks[index + 1] == blocks[index] + 1 &&
                         run.size() + geometry_.block_bytes <= kRunBytesMax;
    if (goes_on) continue;
    PERDURE_TRY_VOID(transaction_->write(geometry_.block_at(blocks[begin]), run));
    run.clear();
    begin = index + 1;
  }
  PERDURE_ASSERT(rest.empty());
  return {};
}

/// The whole chain goes to the head of the free list, by one link.
Result<void> KvWriter::free_chain(const KvSlot& slot) {
  const std::uint64_t count = geometry_.blocks_for(slot.record_bytes());
  if (count == 0) return {};
  const bool inside = slot.first_block != 0 && slot.first_block <= state_.blocks_begun &&
                      slot.last_block != 0 && slot.last_block <= state_.blocks_begun &&
                      count <= state_.blocks_begun - state_.blocks_free;
  if (!inside) return corrupt_store("a chain is out of range");
  PERDURE_TRY_VOID(transaction_->store(geometry_.block_at(slot.last_block), state_.block_free));
  state_.block_free = slot.first_block;
  state_.blocks_free += static_cast<std::uint32_t>(count);
  return {};
}

/// Puts a new slot into its bucket and into the order.
Result<void> KvWriter::link(FoundSlot& found, std::string_view key) {
  KvSlot& slot = found.slot;
  slot.hash = hash_key(geometry_.seed, key);
  slot.height = height_of(slot.hash);
  const std::uint64_t bucket = geometry_.bucket_at(slot.hash & (geometry_.buckets - 1));
  PERDURE_TRY(chain, transaction_->load<std::uint32_t>(bucket));
  slot.next_slot = chain;
  PERDURE_TRY_VOID(transaction_->store(bucket, found.number));
  PERDURE_TRY(path, path_to(key));
  for (std::size_t level = 0; level < slot.height; ++level) {
    PERDURE_TRY(next, next_of(path[level], level));
    slot.next[level] = next;
    if (path[level] == 0) {
      state_.first[level] = found.number;
      continue;
    }
    const std::uint64_t at = geometry_.slot_at(path[level]) + offsetof(KvSlot, next) + 4 * level;
    PERDURE_TRY_VOID(transaction_->store(at, found.number));
  }
  return {};
}

Result<void> KvWriter::unlink_bucket(const FoundSlot& found) {
  std::uint64_t at = geometry_.bucket_at(found.slot.hash & (geometry_.buckets - 1));
  for (std::uint64_t steps = 0; steps <= geometry_.slots; ++steps) {
    PERDURE_TRY(number, transaction_->load<std::uint32_t>(at));
    if (number == found.number) return transaction_->store(at, found.slot.next_slot);
    if (number == 0 || number > state_.slots_begun) break;
    at = geometry_.slot_at(number) + offsetof(KvSlot, next_slot);
  }
  return corrupt_store("a key is not in its bucket");
}

Result<void> KvWriter::unlink_order(const FoundSlot& found, std::string_view key) {
  PERDURE_TRY(path, path_to(key));
  const std::size_t height = std::min<std::size_t>(found.slot.height, kHeightMax);
  for (std::size_t level = 0; level < height; ++level) {
    PERDURE_TRY(next, next_of(path[level], level));
    if (next != found.number) return corrupt_store("a key is not in its place of the order");
    if (path[level] == 0) {
      state_.first[level] = found.slot.next[level];
      continue;
    }
    const std::uint64_t at = geometry_.slot_at(path[level]) + offsetof(KvSlot, next) + 4 * level;
    PERDURE_TRY_VOID(transaction_->store(at, found.slot.next[level]));
  }
  return {};
}

Result<bool> KvWriter::erase(std::string_view key) {
  PERDURE_TRY(there, find(key));
  if (!there) return false;
  PERDURE_TRY_VOID(unlink_bucket(*there));
  PERDURE_TRY_VOID(unlink_order(*there, key));
  PERDURE_TRY_VOID(free_chain(there->slot));
  --state_.keys;
  state_.record_bytes -= std::min(state_.record_bytes, there->slot.record_bytes());
  ++state_.version;
  KvSlot free;
  free.next_slot = state_.slot_free;
  state_.slot_free = there->number;
  ++state_.slots_free;
  PERDURE_TRY_VOID(store_slot({there->number, free}));
  return true;
}

/// Where the client's grant is, or can be. Nothing: the table is full.
Result<std::optional<std::uint64_t>> KvWriter::grant_of(std::uint64_t client,
                                                        KvGrant& grant) const {
  std::optional<std::uint64_t> free;
  for (std::uint64_t index = 0; index < geometry_.grants; ++index) {
    PERDURE_TRY(each, data_->load<KvGrant>(geometry_.grant_at(index)));
    if (each.client == client) {
      grant = each;
      return std::optional(geometry_.grant_at(index));
    }
    if (each.client == 0 && !free) free = geometry_.grant_at(index);
  }
  grant = KvGrant{client, 0, 0, 0};
  return free;
}

/// One slot and so many blocks of a grant may be taken by whoever has it.
Result<void> KvWriter::use_grant(std::uint64_t client, std::uint64_t blocks) {
  KvGrant grant;
  PERDURE_TRY(at, grant_of(client, grant));
  if (!at || grant.slots == 0 || grant.blocks < blocks) {
    return Error{ErrorCode::InvalidArgument, "the client's grant is not enough for this"};
  }
  if (grant.slots > state_.granted_slots || grant.blocks > state_.granted_blocks) {
    return corrupt_store("a grant is larger than all of them");
  }
  --grant.slots;
  grant.blocks -= blocks;
  --state_.granted_slots;
  state_.granted_blocks -= blocks;
  return transaction_->store(*at, grant);
}

Result<KvGrant> KvWriter::grant(std::uint64_t client, std::uint64_t slots, std::uint64_t blocks) {
  KvGrant grant;
  PERDURE_TRY(at, grant_of(client, grant));
  if (!at) return KvGrant{};
  const auto more = [](std::uint64_t has, std::uint64_t wanted, std::uint64_t free) {
    return std::min(wanted - std::min(wanted, has), free);
  };
  const std::uint64_t more_slots =
      more(grant.slots, slots, slots_available() - state_.granted_slots);
  const std::uint64_t more_blocks =
      more(grant.blocks, blocks, blocks_available() - state_.granted_blocks);
  grant.slots += more_slots;
  grant.blocks += more_blocks;
  state_.granted_slots += more_slots;
  state_.granted_blocks += more_blocks;
  PERDURE_TRY_VOID(transaction_->store(*at, grant));
  return grant;
}

}  // namespace perdure::kv
