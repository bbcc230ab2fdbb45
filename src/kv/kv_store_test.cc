// The store against a map, with all of its laws audited; full stores, grants, damage.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <string>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/random.h"
#include "core/try.h"
#include "kv/kv_audit.h"
#include "kv/kv_calls.h"
#include "kv/kv_memory.h"
#include "kv/kv_writer.h"

namespace perdure::kv {
namespace {

KvShape shape_of(std::uint64_t keys, std::uint32_t block = 128, std::uint32_t grants = 4) {
  KvShape shape;
  shape.keys_max = keys;
  shape.block_bytes = block;
  shape.grants = grants;
  return shape;
}

std::span<const std::byte> bytes_in(const std::string& text) {
  return std::as_bytes(std::span(text));
}

class KvStore : public testing::Test {
 protected:
  Result<KvPutOutcome> try_put(const std::string& key, const std::string& value,
                               KvIf condition = KvIf::Always, std::uint64_t granted = 0) {
    PERDURE_TRY(writer, KvWriter::open(memory_, shape_));
    KvPut put;
    put.key = key;
    put.value = bytes_in(value);
    put.crc = crc32c(bytes_in(value), crc32c(bytes_in(key)));
    put.condition = condition;
    put.granted = granted;
    PERDURE_TRY(outcome, writer.put(put));
    PERDURE_TRY_VOID(writer.finish());
    return outcome;
  }
  /// As an executor does: an error leaves nothing.
  Result<KvPutOutcome> put(const std::string& key, const std::string& value,
                           KvIf condition = KvIf::Always, std::uint64_t granted = 0) {
    auto outcome = try_put(key, value, condition, granted);
    outcome.ok() ? memory_.commit() : memory_.roll_back();
    return outcome;
  }
  bool erase(const std::string& key) {
    auto writer = KvWriter::open(memory_, shape_);
    EXPECT_TRUE(writer.ok());
    const auto erased = writer->erase(key);
    EXPECT_TRUE(erased.ok()) << erased.error().message;
    EXPECT_TRUE(writer->finish().ok());
    memory_.commit();
    return erased.ok() && *erased;
  }
  KvGrant grant(std::uint64_t client, std::uint64_t slots, std::uint64_t blocks) {
    auto writer = KvWriter::open(memory_, shape_);
    EXPECT_TRUE(writer.ok());
    const auto granted = writer->grant(client, slots, blocks);
    EXPECT_TRUE(granted.ok());
    EXPECT_TRUE(writer->finish().ok());
    memory_.commit();
    return *granted;
  }
  std::optional<std::string> get(const std::string& key) {
    const auto reader = KvReader::open(memory_);
    EXPECT_TRUE(reader.ok());
    const auto found = reader->find(key);
    EXPECT_TRUE(found.ok());
    if (!found.ok() || !*found) return std::nullopt;
    const auto value = reader->value_of((*found)->slot);
    EXPECT_TRUE(value.ok());
    return std::string(reinterpret_cast<const char*>(value->data()), value->size());
  }
  KvAudit audited() {
    const auto found = audit(memory_);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found.ok() ? *found : KvAudit{};
  }

  KvMemory memory_{64 * 1024};
  KvShape shape_ = shape_of(64);
};

TEST_F(KvStore, IsEmptyBeforeItsFirstChange) {
  EXPECT_FALSE(get("a"));
  EXPECT_EQ(audited().keys, 0u);
  EXPECT_FALSE(erase("a"));
  EXPECT_EQ(audited().slots, 64u);
}

TEST_F(KvStore, IsAMapWhateverIsDoneToIt) {
  const std::uint64_t seed = 0x5eed;
  Random random(seed);
  std::map<std::string, std::string> model;
  for (int step = 0; step < 4000; ++step) {
    // Keys that begin alike, longer than a slot shows, and empty ones.
    const std::uint64_t which = random.below(90);
    std::string key = which == 0 ? "" : fmt::format("{}", which * 7919);
    if (which % 3 == 0) key = std::string(30 + which, 'x') + key;
    if (random.chance(1, 3)) {
      EXPECT_EQ(erase(key), model.erase(key) != 0) << "seed " << seed;
    } else {
      const std::string value(random.below(random.chance(1, 8) ? 4000 : 90),
                              static_cast<char>('a' + step % 26));
      const auto done = put(key, value);
      if (done.ok()) {
        EXPECT_EQ(done->was_there, model.count(key) != 0);
        model[key] = value;
      } else {
        EXPECT_EQ(done.code(), ErrorCode::NoSpace) << done.error().message;
      }
    }
    if (step % 50 != 0) continue;
    const KvAudit found = audited();
    ASSERT_FALSE(HasFailure()) << "step " << step << ", seed " << seed;
    ASSERT_EQ(found.keys, model.size());
    for (const auto& [each, value] : model) ASSERT_EQ(get(each), value);
  }
}

TEST_F(KvStore, AFullOneLosesNothingAndHasAllItsRoomAgain) {
  std::vector<std::string> stored;
  for (int each = 0;; ++each) {
    const std::string key = fmt::format("k{}", each);
    const auto done = put(key, std::string(1500, 'v'));
    if (!done.ok()) {
      EXPECT_EQ(done.code(), ErrorCode::NoSpace);
      break;
    }
    stored.push_back(key);
  }
  EXPECT_GT(stored.size(), 20u);
  const KvAudit full = audited();
  for (const std::string& key : stored) EXPECT_EQ(get(key), std::string(1500, 'v'));
  EXPECT_TRUE(put(stored[0], std::string(1500, 'w')).ok());  // in the room of what it replaces
  EXPECT_EQ(put(stored[1], std::string(3000, 'w')).code(), ErrorCode::NoSpace);
  EXPECT_EQ(get(stored[1]), std::string(1500, 'v'));
  for (const std::string& key : stored) EXPECT_TRUE(erase(key));
  const KvAudit empty = audited();
  EXPECT_EQ(empty.blocks_available, empty.blocks);
  EXPECT_EQ(empty.slots_available, empty.slots);
  for (const std::string& key : stored) EXPECT_TRUE(put(key, std::string(1500, 'z')).ok());
  EXPECT_EQ(audited().blocks_available, full.blocks_available);
}

TEST_F(KvStore, HasAsManyKeysAsItWasMadeFor) {
  for (int each = 0; each < 64; ++each) EXPECT_TRUE(put(fmt::format("{}", each), "").ok());
  EXPECT_EQ(put("one more", "").code(), ErrorCode::NoSpace);
  EXPECT_TRUE(put("63", "again").ok());
  EXPECT_TRUE(erase("0"));
  EXPECT_TRUE(put("one more", "").ok());
}

// A change that is acknowledged before it is executed must not be refused then.
TEST_F(KvStore, WhatIsGrantedIsKeptWhateverOthersStore) {
  const KvGrant granted = grant(7, 3, 100);
  EXPECT_EQ(granted.slots, 3u);
  EXPECT_EQ(granted.blocks, 100u);
  int others = 0;
  while (put(fmt::format("other {}", others), std::string(500, 'o')).ok()) ++others;
  EXPECT_GT(others, 10);
  const std::string large(100 * 120 + 40 - 1, 'm');
  EXPECT_EQ(put("m", large).code(), ErrorCode::NoSpace);
  EXPECT_EQ(put("m", large, KvIf::Always, 8).code(), ErrorCode::InvalidArgument);
  EXPECT_TRUE(put("m", large, KvIf::Always, 7).ok());
  EXPECT_EQ(put("n", large, KvIf::Always, 7).code(), ErrorCode::InvalidArgument);
  EXPECT_TRUE(put("n", "", KvIf::Always, 7).ok());
  EXPECT_TRUE(put("m", "", KvIf::Always, 7).ok());  // one that is there uses its grant, too
  EXPECT_EQ(put("o", "", KvIf::Always, 7).code(), ErrorCode::InvalidArgument);
  const KvAudit found = audited();
  EXPECT_EQ(found.granted_slots, 0u);
  EXPECT_EQ(found.granted_blocks, 0u);
}

TEST_F(KvStore, AGrantGrowsAsFarAsThereIsRoomAndNeverShrinks) {
  EXPECT_EQ(grant(1, 60, 10).slots, 60u);
  EXPECT_EQ(grant(2, 60, 10).slots, 4u);
  EXPECT_EQ(grant(1, 5, 20).slots, 60u);
  EXPECT_EQ(grant(1, 5, 20).blocks, 20u);
  EXPECT_EQ(put("a", "").code(), ErrorCode::NoSpace);
  EXPECT_TRUE(put("a", "", KvIf::Always, 2).ok());
  EXPECT_EQ(grant(3, 1, 1).blocks, 1u);
  EXPECT_EQ(grant(4, 1, 1).blocks, 1u);
  EXPECT_EQ(grant(5, 1, 1).client, 0u);  // the table has four places
  audited();
}

TEST_F(KvStore, ConditionsHoldOrNothingIsStored) {
  EXPECT_FALSE(put("a", "1", KvIf::Present)->stored);
  EXPECT_FALSE(get("a"));
  EXPECT_TRUE(put("a", "2", KvIf::Absent)->stored);
  EXPECT_FALSE(put("a", "3", KvIf::Absent)->stored);
  EXPECT_TRUE(put("a", "4", KvIf::Present)->stored);
  EXPECT_EQ(get("a"), "4");
}

TEST_F(KvStore, ItsOrderIsThatOfBytes) {
  std::set<std::string> keys;
  Random random(3);
  for (int each = 0; each < 60; ++each) {
    std::string key(random.below(70), 'k');
    key += static_cast<char>(random.below(256));
    keys.insert(key);
    ASSERT_TRUE(put(key, "v").ok());
  }
  for (const std::string& from : {std::string(), std::string("k"), *std::next(keys.begin(), 20),
                                  std::string(45, 'k'), std::string("\xff\xff")}) {
    for (const bool inclusive : {true, false}) {
      auto expected = inclusive ? keys.lower_bound(from) : keys.upper_bound(from);
      const auto reader = KvReader::open(memory_);
      auto found = reader->first_from(from, inclusive);
      for (; expected != keys.end(); ++expected) {
        ASSERT_TRUE(found.ok() && *found);
        EXPECT_EQ(*reader->key_of((*found)->slot), *expected);
        found = reader->behind(**found);
      }
      EXPECT_FALSE(*found);
    }
  }
}

// Any byte of it may be wrong: look-ups and changes end, and say so or go on.
TEST_F(KvStore, DamageIsFoundAndNothingRunsAway) {
  for (int each = 0; each < 40; ++each) {
    ASSERT_TRUE(
        put(fmt::format("key {}", each), std::string(static_cast<std::size_t>(each) * 20, 'd'))
            .ok());
  }
  ASSERT_TRUE(erase("key 7"));
  const std::vector<std::byte> whole = memory_.raw();
  Random random(11);
  int found = 0;
  for (int round = 0; round < 300; ++round) {
    memory_.raw() = whole;
    // Of the state, of buckets, slots or blocks; what no one uses may be anything.
    const std::uint64_t at = round % 2 == 0 ? 64 + random.below(120) : 4096 + random.below(16384);
    memory_.raw()[at] ^= std::byte{static_cast<unsigned char>(1 + random.below(255))};
    found += audit(memory_).ok() ? 0 : 1;
    (void)put("key 3", std::string(900, 'n'));
    auto writer = KvWriter::open(memory_, shape_);
    if (writer.ok()) (void)writer->erase("key 12");
    memory_.roll_back();
    const auto reader = KvReader::open(memory_);
    if (reader.ok()) (void)reader->first_from("key 2", false);
  }
  EXPECT_GT(found, 150);
}

// A set may be durable, and acknowledged, before the server that executes it is started.
// No answer would ever have room for it, and who asks again and again would get no further.
TEST_F(KvStore, AKeyThatIsTooLongIsDamageToWhoReadsARange) {
  ASSERT_TRUE(put("a", "1").ok());
  ASSERT_TRUE(put("b", "2").ok());
  const auto reader = KvReader::open(memory_);
  ASSERT_TRUE(reader.ok());
  const auto found = reader->find("b");
  ASSERT_TRUE(found.ok() && *found);
  const std::uint64_t at = reader->geometry().slot_at((*found)->number);
  perdure::store(memory_.raw().data() + at + offsetof(KvSlot, key_bytes), std::uint16_t{9000});
  EXPECT_EQ(reader->slot((*found)->number).code(), ErrorCode::Corrupt);
  EXPECT_EQ(reader->first_from("b", false).code(), ErrorCode::Corrupt);
}

TEST_F(KvStore, ASetOfAnEarlierServerIsExecutedWhateverThisOneTakes) {
  shape_.value_bytes_max = 1024;
  const std::string value(30'000, 'v');
  KvPut put;
  put.key = "k";
  put.value = bytes_in(value);
  put.crc = crc32c(put.value, crc32c(bytes_in("k")));
  const std::vector<std::byte> payload = encode_set(put, false);
  RpcCall call;
  call.payload = payload;
  std::array<std::byte, 64> reply;
  auto handlers = call_handlers(shape_);
  const auto stored = handlers[static_cast<std::uint32_t>(KvCall::Set)](call, memory_, reply);
  ASSERT_TRUE(stored.ok()) << stored.error().message;
  EXPECT_TRUE(get("k") == value);
}

// The value of an entry that does not fit is read later: what came with it behind it would be
// older.
TEST_F(KvStore, AStepOfARangeEndsBehindAValueThatIsReadLater) {
  ASSERT_TRUE(put("a", "1").ok());
  ASSERT_TRUE(put("b", std::string(9000, 'l')).ok());
  ASSERT_TRUE(put("c", "3").ok());
  auto queries = query_handlers(shape_);
  const auto keys_from = [&](std::string_view from, std::uint32_t flags) {
    std::vector<std::byte> question;
    append(question, std::uint32_t{10});
    append(question, flags);
    append_key(question, from);
    std::array<std::byte, 8000> answer;
    const auto bytes =
        queries[static_cast<std::uint32_t>(KvQuery::Range)](question, memory_, answer);
    EXPECT_TRUE(bytes.ok());
    std::string keys;
    KvBytes read(std::span<const std::byte>(answer).first(*bytes));
    const auto more = read.take<std::uint32_t>();
    while (!read.empty()) {
      const auto key_bytes = read.take<std::uint16_t>();
      const auto presence = read.take<std::uint16_t>();
      const auto value_bytes = read.take<std::uint32_t>();
      (void)read.take<std::uint32_t>();
      const auto key = read.take(*key_bytes);
      keys += static_cast<char>(key->front());
      if (*presence == 1) (void)read.take(*value_bytes);
    }
    return keys + (*more != 0 ? "+" : "");
  };
  EXPECT_EQ(keys_from("a", kWithValues), "a+");
  EXPECT_EQ(keys_from("b", kWithValues), "b+");
  EXPECT_EQ(keys_from("c", kWithValues), "c");
  EXPECT_EQ(keys_from("a", 0), "abc");
}

TEST(KvLayout, RefusesWhatMakesNoStore) {
  EXPECT_EQ(lay_out(1 << 20, shape_of(0), 1).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(lay_out(1 << 20, shape_of(1 << 20), 1).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(lay_out(1 << 20, shape_of(64, 100), 1).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(lay_out(1 << 20, shape_of(64, 64), 1).code(), ErrorCode::InvalidArgument);
  const auto geometry = lay_out(1 << 20, shape_of(64), 1);
  ASSERT_TRUE(geometry.ok());
  EXPECT_LE(geometry->block_at(geometry->blocks) + geometry->block_bytes, 1u << 20);
}

}  // namespace
}  // namespace perdure::kv
