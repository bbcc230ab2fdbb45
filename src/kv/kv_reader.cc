// Look-ups: see kv_reader.h.
#include "kv/kv_reader.h"

#include <perdure/kv.h>

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"

namespace perdure::kv {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<KvReader> KvReader::open(const RpcData& data) {
  KvReader reader(data);
  PERDURE_TRY_VOID(reader.load());
  return reader;
}

Result<void> KvReader::load() {
  PERDURE_TRY(geometry, read_geometry(*data_));
  geometry_ = geometry;
  if (!formatted()) return {};
  PERDURE_TRY(state, data_->load<KvState>(kStateAt));
  state_ = state;
  const bool fits =
      state.slots_begun <= geometry.slots && state.blocks_begun <= geometry.blocks &&
      state.slots_free <= state.slots_begun && state.blocks_free <= state.blocks_begun &&
      state.granted_slots <= slots_available() && state.granted_blocks <= blocks_available();
  if (!fits) return corrupt_store("its state is beyond its geometry");
  return {};
}

std::uint64_t KvReader::slots_available() const {
  return std::uint64_t{geometry_.slots} - state_.slots_begun + state_.slots_free;
}

std::uint64_t KvReader::blocks_available() const {
  return std::uint64_t{geometry_.blocks} - state_.blocks_begun + state_.blocks_free;
}

Result<KvSlot> KvReader::load_slot(std::uint64_t number) const {
  if (number == 0 || number > state_.slots_begun) return corrupt_store("a slot is out of range");
  PERDURE_TRY(slot, data_->load<KvSlot>(geometry_.slot_at(number)));
  // No answer would ever have room for it.
  if (slot.version != 0 && slot.key_bytes > kKvKeyBytesMax) {
    return corrupt_store("a key is larger than any");
  }
  return slot;
}

Result<std::uint32_t> KvReader::load_link(std::uint64_t block) const {
  if (block == 0 || block > state_.blocks_begun) return corrupt_store("a block is out of range");
  return data_->load<std::uint32_t>(geometry_.block_at(block));
}

Result<std::optional<FoundSlot>> KvReader::slot(std::uint64_t number) const {
  if (number > state_.slots_begun) return std::optional<FoundSlot>{};
  PERDURE_TRY(slot, load_slot(number));
  if (slot.version == 0) return std::optional<FoundSlot>{};
  return std::optional(FoundSlot{static_cast<std::uint32_t>(number), slot});
}

Result<std::optional<FoundSlot>> KvReader::find(std::string_view key) const {
  if (!formatted()) return std::optional<FoundSlot>{};
  const std::uint64_t hash = hash_key(geometry_.seed, key);
  PERDURE_TRY(number,
              data_->load<std::uint32_t>(geometry_.bucket_at(hash & (geometry_.buckets - 1))));
  for (std::uint64_t steps = 0; number != 0; ++steps) {
    if (steps > geometry_.slots) return corrupt_store("the chain of a bucket has no end");
    PERDURE_TRY(slot, load_slot(number));
    if (slot.hash == hash && slot.version != 0) {
      PERDURE_TRY(order, compare(slot, key));
      if (order == 0) return std::optional(FoundSlot{number, slot});
    }
    number = slot.next_slot;
  }
  return std::optional<FoundSlot>{};
}

Result<int> KvReader::compare(const KvSlot& slot, std::string_view key) const {
  const std::size_t shown = std::min<std::size_t>(slot.key_bytes, kInlineBytes);
  const std::string_view begin = text_of(std::span(slot.inlined).first(shown));
  const int order = begin.compare(key.substr(0, shown));
  if (order != 0 || slot.key_bytes <= kInlineBytes) {
    if (order != 0) return order;
    return shown < key.size() ? -1 : 0;
  }
  PERDURE_TRY(whole, key_of(slot));
  return std::string_view(whole).compare(key);
}

Result<std::string> KvReader::key_of(const KvSlot& slot) const {
  std::string key(slot.key_bytes, '\0');
  PERDURE_TRY_VOID(read_record(slot, 0, std::as_writable_bytes(std::span(key))));
  return key;
}

Result<std::vector<std::byte>> KvReader::value_of(const KvSlot& slot) const {
  if (slot.value_bytes > geometry_.data_bytes) return corrupt_store("a value is out of range");
  std::vector<std::byte> value(slot.value_bytes);
  PERDURE_TRY_VOID(read_record(slot, slot.key_bytes, value));
  return value;
}

Result<void> KvReader::read_record(const KvSlot& slot, std::uint64_t at,
                                   std::span<std::byte> into) const {
  PERDURE_ASSERT(at + into.size() <= slot.record_bytes());
  if (at < kInlineBytes) {
    const std::size_t shown = std::min<std::size_t>(kInlineBytes - at, into.size());
    std::copy_n(slot.inlined.begin() + static_cast<std::ptrdiff_t>(at), shown, into.begin());
    into = into.subspan(shown);
    at += shown;
  }
  std::uint64_t skipped = at - std::min<std::uint64_t>(at, kInlineBytes);
  std::uint32_t block = slot.first_block;
  while (!into.empty()) {
    const std::uint64_t payload = geometry_.payload();
    if (skipped >= payload) {
      skipped -= payload;
    } else {
      if (block == 0 || block > state_.blocks_begun) return corrupt_store("a chain ends early");
      const std::size_t part = std::min<std::uint64_t>(payload - skipped, into.size());
      PERDURE_TRY_VOID(
          data_->read(geometry_.block_at(block) + kBlockHeadBytes + skipped, into.first(part)));
      into = into.subspan(part);
      skipped = 0;
      if (into.empty()) break;
    }
    PERDURE_TRY(next, load_link(block));
    block = next;
  }
  return {};
}

Result<std::uint32_t> KvReader::next_of(std::uint32_t before, std::size_t level) const {
  if (before == 0) return state_.first[level];
  PERDURE_TRY(slot, load_slot(before));
  return slot.next[level];
}

Result<KvReader::Path> KvReader::path_to(std::string_view key) const {
  Path path{};
  std::uint32_t before = 0;
  std::array<std::uint32_t, kHeightMax> after = state_.first;  // of `before`, by level
  std::uint64_t steps = 0;
  std::uint32_t beyond = 0;  // a slot that is known not to be before the key
  for (std::size_t level = kHeightMax; level-- > 0;) {
    while (after[level] != 0 && after[level] != beyond) {
      if (++steps > geometry_.slots + kHeightMax) return corrupt_store("its order has no end");
      PERDURE_TRY(slot, load_slot(after[level]));
      PERDURE_TRY(order, compare(slot, key));
      if (order >= 0) {
        beyond = after[level];
        break;
      }
      before = after[level];
      after = slot.next;
    }
    path[level] = before;
  }
  return path;
}

Result<std::optional<FoundSlot>> KvReader::first_from(std::string_view key, bool inclusive) const {
  if (!formatted()) return std::optional<FoundSlot>{};
  PERDURE_TRY(path, path_to(key));
  PERDURE_TRY(number, next_of(path[0], 0));
  if (number == 0) return std::optional<FoundSlot>{};
  PERDURE_TRY(slot, load_slot(number));
  const FoundSlot found{number, slot};
  if (inclusive) return std::optional(found);
  PERDURE_TRY(order, compare(slot, key));
  if (order == 0) return behind(found);
  return std::optional(found);
}

Result<std::optional<FoundSlot>> KvReader::behind(const FoundSlot& found) const {
  const std::uint32_t number = found.slot.next[0];
  if (number == 0) return std::optional<FoundSlot>{};
  PERDURE_TRY(slot, load_slot(number));
  return std::optional(FoundSlot{number, slot});
}

}  // namespace perdure::kv
