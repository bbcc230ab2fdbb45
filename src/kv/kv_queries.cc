// Queries of a key-value store: see kv_calls.h.
#include <perdure/kv.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>

#include "core/bytes.h"
#include "core/random.h"
#include "core/try.h"
#include "kv/kv_calls.h"

namespace perdure::kv {
namespace {

// Values that somebody reads in pieces are copied once, so that what he gets is one version however
// often it is stored meanwhile, and no chain is walked again.
constexpr std::size_t kCopiesBytesMax = 32 * 1024 * 1024;

Error nonsense_query(const char* what) { return {ErrorCode::ProtocolError, what}; }

/// Writes an answer as far as it has room.
class Answer {
 public:
  explicit Answer(std::span<std::byte> room) : room_(room) {}
  std::size_t left() const { return room_.size() - used_; }
  std::size_t used() const { return used_; }
  /// Requires room.
  template <typename T>
  void put(const T& value) {
    std::memcpy(grow(sizeof value).data(), &value, sizeof value);
  }
  std::span<std::byte> grow(std::size_t bytes) {
    const auto part = room_.subspan(used_, bytes);
    used_ += bytes;
    return part;
  }
  void put_bytes(std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), grow(bytes.size()).begin());
  }

 private:
  std::span<std::byte> room_;
  std::size_t used_ = 0;
};

/// Threads: one caller at a time, as queries have.
class Copies {
 public:
  const std::vector<std::byte>* find(std::uint64_t version) const {
    for (const auto& [of, value] : copies_) {
      if (of == version) return &value;
    }
    return nullptr;
  }
  const std::vector<std::byte>& keep(std::uint64_t version, std::vector<std::byte> value) {
    bytes_ += value.size();
    copies_.emplace_back(version, std::move(value));
    while (bytes_ > kCopiesBytesMax && copies_.size() > 1) {
      bytes_ -= copies_.front().second.size();
      copies_.pop_front();
    }
    return copies_.back().second;
  }

 private:
  std::deque<std::pair<std::uint64_t, std::vector<std::byte>>> copies_;
  std::size_t bytes_ = 0;
};

constexpr std::size_t kReadHeadBytes = 24;

/// What of one key goes into the answer; false: it is full.
Result<bool> read_one(const KvReader& store, std::string_view key, Answer& answer, Copies& copies) {
  if (answer.left() < kReadHeadBytes) return false;
  PERDURE_TRY(found, store.find(key));
  KvSlot slot;
  auto presence = KvPresence::Absent;
  std::size_t shown = 0;
  if (found) {
    slot = found->slot;
    const std::size_t room = answer.left() - kReadHeadBytes;
    const bool first = answer.used() == 0;
    if (slot.value_bytes > room && !first) return false;
    presence = slot.value_bytes > room ? KvPresence::Part : KvPresence::Whole;
    shown = std::min<std::size_t>(slot.value_bytes, room);
  }
  answer.put(presence);
  answer.put(slot.value_bytes);
  answer.put(slot.crc);
  answer.put(std::uint32_t{0});
  answer.put(slot.version);
  if (presence == KvPresence::Whole) {
    PERDURE_TRY_VOID(store.read_record(slot, slot.key_bytes, answer.grow(shown)));
  } else if (presence == KvPresence::Part) {
    if (copies.find(slot.version) == nullptr) {
      PERDURE_TRY(value, store.value_of(slot));
      (void)copies.keep(slot.version, std::move(value));
    }
    answer.put_bytes(std::span(*copies.find(slot.version)).first(shown));
  }
  return presence != KvPresence::Part;
}

Result<std::size_t> read(std::span<const std::byte> payload, const RpcData& data,
                         std::span<std::byte> reply, Copies& copies) {
  PERDURE_TRY(store, KvReader::open(data));
  Answer answer(reply);
  for (KvBytes bytes(payload); !bytes.empty();) {
    const auto key = bytes.take_key();
    if (!key) return nonsense_query("a read that is cut short");
    PERDURE_TRY(more, read_one(store, *key, answer, copies));
    if (!more) break;
  }
  return answer.used();
}

Result<std::size_t> piece(std::span<const std::byte> payload, const RpcData& data,
                          std::span<std::byte> reply, Copies& copies) {
  KvBytes bytes(payload);
  const auto version = bytes.take<std::uint64_t>();
  const auto offset = bytes.take<std::uint32_t>();
  const auto key = bytes.take_key();
  if (!key || !bytes.empty()) return nonsense_query("a question for a piece that is cut short");
  const std::vector<std::byte>* value = copies.find(*version);
  if (value == nullptr) {
    PERDURE_TRY(store, KvReader::open(data));
    PERDURE_TRY(found, store.find(*key));
    if (found && found->slot.version == *version) {
      PERDURE_TRY(copied, store.value_of(found->slot));
      value = &copies.keep(*version, std::move(copied));
    }
  }
  Answer answer(reply);
  if (value == nullptr || *offset > value->size()) {
    answer.put(KvPresence::Absent);
    return answer.used();
  }
  answer.put(KvPresence::Whole);
  const auto rest = std::span<const std::byte>(*value).subspan(*offset);
  answer.put_bytes(rest.first(std::min(rest.size(), answer.left())));
  return answer.used();
}

Result<std::size_t> walk(std::span<const std::byte> payload, const RpcData& data,
                         std::span<std::byte> reply) {
  KvBytes bytes(payload);
  const auto cursor = bytes.take<std::uint64_t>();
  const auto slots = bytes.take<std::uint32_t>();
  if (!slots || !bytes.empty()) return nonsense_query("a walk of another size");
  PERDURE_TRY(store, KvReader::open(data));
  Answer answer(reply);
  answer.put(std::uint64_t{0});
  const std::uint64_t end = store.state().slots_begun;
  // A cursor is the number of the last slot that was looked at. Keys keep their slots.
  std::uint64_t at = *cursor;
  for (std::uint32_t looked = 0; looked < std::min(*slots, kWalkSlotsMax) && at < end; ++looked) {
    PERDURE_TRY(found, store.slot(at + 1));
    if (found) {
      if (answer.left() < 2u + found->slot.key_bytes) break;
      PERDURE_TRY(key, store.key_of(found->slot));
      answer.put(found->slot.key_bytes);
      answer.put_bytes(std::as_bytes(std::span(key)));
    }
    ++at;
  }
  perdure::store(reply.data(), at < end ? at : std::uint64_t{0});
  return answer.used();
}

Result<std::size_t> range(std::span<const std::byte> payload, const RpcData& data,
                          std::span<std::byte> reply) {
  constexpr std::size_t kEntryHead = 12;
  KvBytes bytes(payload);
  const auto limit = bytes.take<std::uint32_t>();
  const auto flags = bytes.take<std::uint32_t>();
  const auto key = bytes.take_key();
  if (!key || !bytes.empty()) return nonsense_query("a range that is cut short");
  PERDURE_TRY(store, KvReader::open(data));
  Answer answer(reply);
  answer.put(std::uint32_t{0});
  PERDURE_TRY(found, store.first_from(*key, (*flags & kBehindKey) == 0));
  for (std::uint32_t count = 0; found && count < std::min(*limit, kRangeKeysMax); ++count) {
    const KvSlot& slot = found->slot;
    if (answer.left() < kEntryHead + slot.key_bytes) break;
    const bool fits = answer.left() >= kEntryHead + slot.record_bytes();
    const bool with_value = (*flags & kWithValues) != 0;
    if (with_value && !fits && count != 0) break;
    const bool whole = with_value && fits;
    answer.put(slot.key_bytes);
    answer.put(static_cast<std::uint16_t>(whole ? KvPresence::Whole : KvPresence::Part));
    answer.put(slot.value_bytes);
    answer.put(slot.crc);
    const std::uint64_t shown = whole ? slot.record_bytes() : slot.key_bytes;
    PERDURE_TRY_VOID(store.read_record(slot, 0, answer.grow(shown)));
    PERDURE_TRY(next, store.behind(*found));
    found = next;
    // Its value is read afterwards: what is behind it must not be older than that.
    if (with_value && !whole) break;
  }
  perdure::store(reply.data(), std::uint32_t{found.has_value()});
  return answer.used();
}

Result<std::size_t> info(const RpcData& data, std::span<std::byte> reply, const KvShape& shape) {
  PERDURE_TRY(store, KvReader::open(data));
  KvNumbers numbers;
  KvGeometry geometry = store.geometry();
  if (!store.formatted()) {
    PERDURE_TRY(laid_out, lay_out(data.bytes(), shape, 0));
    geometry = laid_out;
    numbers.slots_available = geometry.slots;
    numbers.blocks_available = geometry.blocks;
  } else {
    numbers.slots_available = store.slots_available();
    numbers.blocks_available = store.blocks_available();
  }
  const KvState& state = store.state();
  numbers.keys = state.keys;
  numbers.record_bytes = state.record_bytes;
  numbers.version = state.version;
  numbers.slots = geometry.slots;
  numbers.blocks = geometry.blocks;
  numbers.granted_slots = state.granted_slots;
  numbers.granted_blocks = state.granted_blocks;
  numbers.block_bytes = geometry.block_bytes;
  numbers.value_bytes_max =
      geometry.value_bytes_max != 0 ? geometry.value_bytes_max : shape.value_bytes_max;
  std::memcpy(reply.data(), &numbers, sizeof numbers);
  return sizeof numbers;
}

}  // namespace

std::map<std::uint32_t, RpcQueryHandler> query_handlers(const KvShape& shape) {
  using Payload = std::span<const std::byte>;
  using Reply = std::span<std::byte>;
  const auto copies = std::make_shared<Copies>();
  std::map<std::uint32_t, RpcQueryHandler> handlers;
  const auto handler = [&handlers](KvQuery query) -> RpcQueryHandler& {
    return handlers[static_cast<std::uint32_t>(query)];
  };
  handler(KvQuery::Read) = [copies](Payload payload, const RpcData& data, Reply reply) {
    return read(payload, data, reply, *copies);
  };
  handler(KvQuery::Piece) = [copies](Payload payload, const RpcData& data, Reply reply) {
    return piece(payload, data, reply, *copies);
  };
  handler(KvQuery::Walk) = walk;
  handler(KvQuery::Range) = range;
  handler(KvQuery::Info) = [shape](Payload, const RpcData& data, Reply reply) {
    return info(data, reply, shape);
  };
  return handlers;
}

}  // namespace perdure::kv
