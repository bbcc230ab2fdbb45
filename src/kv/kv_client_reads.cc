// What a key-value client reads.
#include <fmt/format.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/try.h"
#include "kv/kv_client_state.h"

namespace perdure {
namespace {

using kv::KvBytes;
using kv::KvPresence;
using kv::KvQuery;

constexpr int kReadsAgain = 64;  // of a value that changes while it is read in pieces

Error nonsense_answer() { return {ErrorCode::ProtocolError, "an answer that makes no sense"}; }

std::uint32_t record_crc(std::string_view key, std::span<const std::byte> value) {
  return crc32c(value, crc32c(std::as_bytes(std::span(key))));
}

Error wrong_checksum() {
  return {ErrorCode::Corrupt, "the checksum of a record is wrong: `perdure-kv check` says more"};
}

}  // namespace

Result<std::vector<std::byte>> KvClient::State::ask(KvQuery query,
                                                    std::span<const std::byte> payload,
                                                    const Deadline& deadline) {
  return rpc.query(static_cast<std::uint32_t>(query), payload, true,
                   std::chrono::ceil<std::chrono::milliseconds>(deadline.left()));
}

/// The rest of a value of which the beginning is there. Nothing: it has changed.
Result<KvClient::Value> KvClient::State::rest_of(std::string_view key, std::uint64_t version,
                                                 std::uint32_t crc, std::vector<std::byte> value,
                                                 std::size_t bytes, const Deadline& deadline) {
  value.reserve(bytes);
  while (value.size() < bytes) {
    std::vector<std::byte> question;
    kv::append(question, version);
    kv::append(question, static_cast<std::uint32_t>(value.size()));
    kv::append_key(question, key);
    PERDURE_TRY(answer, ask(KvQuery::Piece, question, deadline));
    KvBytes read(answer);
    const auto presence = read.take<KvPresence>();
    if (presence == KvPresence::Absent) return Value{};
    if (presence != KvPresence::Whole || read.empty()) return nonsense_answer();
    const auto piece = read.rest();
    if (piece.size() > bytes - value.size()) return nonsense_answer();
    value.insert(value.end(), piece.begin(), piece.end());
  }
  if (record_crc(key, value) != crc) return wrong_checksum();
  return Value(std::move(value));
}

/// Reads the first of these keys, as many as one answer takes; returns how many. 0: the first has
/// changed while it was read.
Result<std::size_t> KvClient::State::read_some(std::span<const std::string_view> keys,
                                               std::vector<Value>& values,
                                               const Deadline& deadline) {
  std::vector<std::byte> question;
  std::size_t asked_for = 0;
  for (const std::string_view key : keys) {
    if (question.size() + 2 + key.size() > kv::kQueryBytesMax) break;
    kv::append_key(question, key);
    ++asked_for;
  }
  PERDURE_TRY(answer, ask(KvQuery::Read, question, deadline));
  KvBytes read(answer);
  std::size_t got = 0;
  for (; got < asked_for && !read.empty(); ++got) {
    const auto presence = read.take<KvPresence>();
    const auto bytes = read.take<std::uint32_t>();
    const auto crc = read.take<std::uint32_t>();
    (void)read.take<std::uint32_t>();
    const auto version = read.take<std::uint64_t>();
    if (!version || *bytes > kKvValueBytesMax) return nonsense_answer();
    if (*presence == KvPresence::Absent) {
      values.emplace_back();
      continue;
    }
    const auto shown = *presence == KvPresence::Whole ? *bytes : read.rest().size();
    const auto part = read.take(shown);
    if (!part || shown > *bytes) return nonsense_answer();
    std::vector<std::byte> value(part->begin(), part->end());
    PERDURE_TRY(whole, rest_of(keys[got], *version, *crc, std::move(value), *bytes, deadline));
    if (!whole) return got;
    values.push_back(std::move(whole));
  }
  if (got == 0) return nonsense_answer();
  return got;
}

Result<std::vector<KvClient::Value>> KvClient::State::read(std::span<const std::string_view> keys,
                                                           const Deadline& deadline) {
  std::vector<Value> values;
  values.reserve(keys.size());
  int again = 0;
  while (values.size() < keys.size()) {
    if (keys[values.size()].size() > kKvKeyBytesMax) {
      values.emplace_back();
      continue;
    }
    auto next = keys.subspan(values.size());
    const auto too_long = std::find_if(
        next.begin(), next.end(), [](std::string_view key) { return key.size() > kKvKeyBytesMax; });
    next = next.first(static_cast<std::size_t>(too_long - next.begin()));
    PERDURE_TRY(got, read_some(next, values, deadline));
    if (got != 0) {
      again = 0;
    } else if (++again == kReadsAgain) {
      return Error{ErrorCode::Busy, "a value changed again and again while it was read"};
    }
  }
  return values;
}

Result<std::vector<KvClient::Value>> KvClient::get(std::span<const std::string_view> keys) {
  return state_->read(keys, state_->its_deadline());
}

Result<KvClient::Value> KvClient::get(std::string_view key) {
  PERDURE_TRY(values, get(std::span<const std::string_view>(&key, 1)));
  return std::move(values.front());
}

Result<KvKeys> KvClient::walk(std::uint64_t cursor, std::uint32_t slots) {
  std::vector<std::byte> question;
  kv::append(question, cursor);
  kv::append(question, std::max<std::uint32_t>(slots, 1));
  PERDURE_TRY(answer, state_->ask(KvQuery::Walk, question, state_->its_deadline()));
  KvBytes read(answer);
  KvKeys keys;
  const auto next = read.take<std::uint64_t>();
  if (!next) return nonsense_answer();
  keys.cursor = *next;
  while (!read.empty()) {
    const auto key = read.take_key();
    if (!key) return nonsense_answer();
    keys.keys.emplace_back(*key);
  }
  return keys;
}

Result<std::vector<KvEntry>> KvClient::range(std::string_view key, std::size_t limit,
                                             bool with_values, bool behind) {
  const Deadline deadline = state_->its_deadline();
  std::vector<KvEntry> entries;
  std::string from(key.substr(0, kKvKeyBytesMax));
  behind = behind || key.size() > kKvKeyBytesMax;
  for (bool more = true; more && entries.size() < limit;) {
    std::vector<std::byte> question;
    const std::size_t left = std::min<std::size_t>(limit - entries.size(), kv::kRangeKeysMax);
    kv::append(question, static_cast<std::uint32_t>(left));
    kv::append(question, (behind ? kv::kBehindKey : 0) | (with_values ? kv::kWithValues : 0));
    kv::append_key(question, from);
    PERDURE_TRY(answer, state_->ask(KvQuery::Range, question, deadline));
    KvBytes read(answer);
    const auto goes_on = read.take<std::uint32_t>();
    if (!goes_on) return nonsense_answer();
    const std::size_t before = entries.size();
    while (!read.empty()) {
      const auto key_bytes = read.take<std::uint16_t>();
      const auto presence = read.take<std::uint16_t>();
      const auto value_bytes = read.take<std::uint32_t>();
      const auto crc = read.take<std::uint32_t>();
      if (!crc) return nonsense_answer();
      const auto name = read.take(*key_bytes);
      if (!name) return nonsense_answer();
      KvEntry entry;
      entry.key.assign(reinterpret_cast<const char*>(name->data()), name->size());
      entry.value_bytes = *value_bytes;
      from = entry.key;
      behind = true;
      if (*presence == static_cast<std::uint16_t>(KvPresence::Whole)) {
        const auto value = read.take(*value_bytes);
        if (!value) return nonsense_answer();
        if (record_crc(entry.key, *value) != *crc) return wrong_checksum();
        entry.value.assign(value->begin(), value->end());
      } else if (with_values) {
        const std::string_view name_of_value = entry.key;
        PERDURE_TRY(values, state_->read({&name_of_value, 1}, deadline));
        if (!values.front()) continue;  // it was erased meanwhile
        entry.value = std::move(*values.front());
        entry.value_bytes = static_cast<std::uint32_t>(entry.value.size());
      }
      entries.push_back(std::move(entry));
    }
    more = *goes_on != 0;
    if (more && entries.size() == before && !behind) return nonsense_answer();
  }
  return entries;
}

Result<KvInfo> KvClient::info() { return state_->ask_info(true); }

Result<KvInfo> KvClient::State::ask_info(bool own_calls) {
  PERDURE_TRY(answer, rpc.query(static_cast<std::uint32_t>(KvQuery::Info), {}, own_calls,
                                bounded(timeout)));
  KvBytes read(answer);
  const auto numbers = read.take<kv::KvNumbers>();
  if (!numbers || numbers->block_bytes < kv::kBlockBytesMin ||
      numbers->value_bytes_max > kKvValueBytesMax) {
    return nonsense_answer();
  }
  KvInfo info;
  info.keys = numbers->keys;
  info.record_bytes = numbers->record_bytes;
  info.version = numbers->version;
  info.keys_max = numbers->slots;
  info.keys_available = numbers->slots_available;
  info.block_bytes = numbers->block_bytes;
  info.blocks = numbers->blocks;
  info.blocks_available = numbers->blocks_available;
  info.keys_granted = numbers->granted_slots;
  info.blocks_granted = numbers->granted_blocks;
  info.value_bytes_max = numbers->value_bytes_max;
  return info;
}

}  // namespace perdure
