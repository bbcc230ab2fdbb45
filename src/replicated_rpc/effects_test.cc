// What a log of effects says is the same from wherever it may begin, however often a server has
// died between two records: bytes, marks and replies of whole calls.
#include "replicated_rpc/effects.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "core/try.h"

namespace perdure::replicated_rpc {
namespace {

constexpr std::uint64_t kData = 5 * kPageBytes + 100;

Sizes small_sizes() {
  Sizes sizes;
  sizes.data_bytes = kData;
  sizes.transaction_bytes = 4096;
  sizes.clients_max = 8;
  sizes.replies = 3;
  sizes.reply_bytes_max = 16;
  return sizes;
}

std::vector<std::byte> bytes_like(Random& random, std::size_t length) {
  return std::vector<std::byte>(length, static_cast<std::byte>(random.below(256)));
}

/// A log, and a server that writes it.
class Server {
 public:
  Server() { append(Effects::first_record(small_sizes())); }

  void append(std::vector<std::byte> record) {
    log.push_back(std::move(record));
    const auto applied = effects.apply(log.back(), Lsn{log.size()});
    ASSERT_TRUE(applied.ok()) << applied.error().message;
  }
  /// The records with numbers from `first` to `end` - 1, as a server that takes over reads them.
  static Effects read(const std::vector<std::vector<std::byte>>& log, std::size_t first,
                      std::size_t end) {
    Effects effects;
    for (std::size_t index = first; index < end; ++index) {
      const auto applied = effects.apply(log[index], Lsn{index + 1});
      EXPECT_TRUE(applied.ok()) << index << ": " << applied.error().message;
    }
    return effects;
  }
  /// One transaction of some calls of `client`, whose handlers write, are refused, or write too
  /// much.
  void execute(const std::string& client, Random& random) {
    const RpcHandler handler = [&](const RpcCall&, RpcTransaction& data,
                                   std::span<std::byte> reply) -> Result<std::size_t> {
      for (std::uint64_t write = 0; write < 1 + random.below(3); ++write) {
        const auto bytes = bytes_like(random, 1 + random.below(1500));
        PERDURE_TRY_VOID(data.write(random.below(kData - bytes.size() + 1), bytes));
      }
      if (random.chance(1, 8)) throw std::runtime_error("a mistake");
      if (random.chance(1, 8)) return Error{ErrorCode::PermissionDenied, "no"};
      std::fill(reply.begin(), reply.end(), static_cast<std::byte>(random.below(256)));
      return random.below(reply.size() + 1);
    };
    for (std::uint64_t count = 0; count < 1 + random.below(3); ++count) {
      (void)effects.execute(next_call(client), &handler);
    }
    log.push_back(effects.take_record());
  }
  RpcCall next_call(const std::string& client) const {
    RpcCall call;
    call.client = client;
    call.client_id = 100 + static_cast<std::uint64_t>(client.back());
    const auto place = effects.places().find(client);
    call.sequence = place == effects.places().end() ? 1 : place->second.applied + 1;
    call.generation = 7;
    return call;
  }
  /// What a server says of itself: that it tries a call, begins, or ends.
  void note(const std::string& client, Random& random) {
    const std::uint64_t what = random.below(7);
    if (what == 6) {
      log.push_back(effects.note_calm());
    } else if (what == 5) {
      log.push_back(effects.note_held(next_call(client)));
    } else if (what == 0) {
      log.push_back(effects.note_ended());
    } else if (what < 3) {
      log.push_back(effects.note_opened(random.chance(2, 3), random.chance(1, 2)));
    } else {
      log.push_back(effects.note_trying(next_call(client)));
    }
  }

  Effects effects;
  std::vector<std::vector<std::byte>> log;
};

void expect_same_tried(const Effects& one, const Effects& other) {
  ASSERT_EQ(one.tried().size(), other.tried().size());
  for (const auto& [name, tried] : one.tried()) {
    const auto found = other.tried().find(name);
    ASSERT_NE(found, other.tried().end()) << name;
    EXPECT_EQ(tried.client_id, found->second.client_id);
    EXPECT_EQ(tried.sequence, found->second.sequence);
    EXPECT_EQ(tried.generation, found->second.generation);
    EXPECT_EQ(tried.ends, found->second.ends);
    EXPECT_EQ(tried.held, found->second.held);
  }
}

void expect_same(const Effects& one, const Effects& other) {
  EXPECT_EQ(one.is_open(), other.is_open());
  EXPECT_EQ(one.is_careful(), other.is_careful());
  ASSERT_NO_FATAL_FAILURE(expect_same_tried(one, other));
  // And if the server has died in what it tries.
  Effects one_later = one;
  Effects other_later = other;
  (void)one_later.note_opened(true, false);
  (void)other_later.note_opened(true, false);
  ASSERT_NO_FATAL_FAILURE(expect_same_tried(one_later, other_later));
  ASSERT_TRUE(std::equal(one.bytes().begin(), one.bytes().end(), other.bytes().begin(),
                         other.bytes().end()));
  ASSERT_EQ(one.places().size(), other.places().size());
  for (const auto& [name, place] : one.places()) {
    const auto found = other.places().find(name);
    ASSERT_NE(found, other.places().end()) << name;
    EXPECT_EQ(place.client_id, found->second.client_id);
    EXPECT_EQ(place.applied, found->second.applied);
    EXPECT_EQ(place.generation, found->second.generation);
    ASSERT_EQ(place.replies.size(), found->second.replies.size());
    for (std::size_t index = 0; index < place.replies.size(); ++index) {
      EXPECT_EQ(place.replies[index].sequence, found->second.replies[index].sequence);
      EXPECT_EQ(place.replies[index].status, found->second.replies[index].status);
      EXPECT_EQ(place.replies[index].bytes, found->second.replies[index].bytes);
    }
  }
}

TEST(Effects, AreTheSameFromTheLastWholeRoundOnAndGoOnAfterAnyRecord) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Random random(seed);
    Server server;
    std::uint64_t rounds = 0;
    for (int step = 0; step < 300; ++step) {
      server.execute("client-" + std::to_string(random.below(5)), random);
      if (random.chance(1, 2)) {
        server.note("client-" + std::to_string(random.below(5)), random);
      }
      if (!server.effects.round() && random.chance(1, 20)) {
        server.append(server.effects.begin_round());
      }
      if (server.effects.round() && random.chance(1, 2)) {
        server.append(server.effects.next_piece());
        if (!server.effects.round()) ++rounds;
      }
      // The server dies, and another one reads what is kept.
      if (!random.chance(1, 10)) continue;
      const Lsn from = server.effects.complete_from();
      const std::size_t first = from.value == 0 ? 0 : from.value - 1;
      Effects read = Server::read(server.log, first, server.log.size());
      ASSERT_NO_FATAL_FAILURE(expect_same(server.effects, read)) << "reproduce: seed " << seed;
      EXPECT_TRUE(read.is_whole());
      server.effects = std::move(read);
    }
    EXPECT_GT(rounds, 3U);
  }
}

TEST(Effects, OfACallThatIsRefusedNothingIsLeftButItsMark) {
  Server server;
  const RpcHandler too_much = [](const RpcCall&, RpcTransaction& data,
                                 std::span<std::byte>) -> Result<std::size_t> {
    const std::vector<std::byte> bytes(3000, std::byte{1});
    (void)data.write(0, bytes);
    EXPECT_EQ(data.load<std::uint8_t>(0).value(), 1);  // it sees its own writes
    (void)data.write(kPageBytes, bytes);               // and this is too much, which it ignores
    return std::size_t{0};
  };
  RpcCall call;
  call.client = "one";
  call.client_id = 1;
  call.sequence = 1;
  EXPECT_EQ(server.effects.execute(call, &too_much), ErrorCode::NoSpace);
  call.sequence = 2;
  EXPECT_EQ(server.effects.execute(call, nullptr), ErrorCode::Unsupported);
  server.log.push_back(server.effects.take_record());
  const Effects read = Server::read(server.log, 0, server.log.size());
  expect_same(server.effects, read);
  EXPECT_TRUE(std::all_of(read.bytes().begin(), read.bytes().end(),
                          [](std::byte each) { return each == std::byte{0}; }));
  EXPECT_EQ(read.places().at("one").applied, 2U);
}

/// Of a log that was trimmed the first round is no state of anything before it has ended.
TEST(Effects, AreWholeFromTheFirstRecordOnOrBehindARound) {
  Random random(1);
  Server server;
  server.execute("client-1", random);
  EXPECT_TRUE(server.effects.is_whole());
  EXPECT_TRUE(Server::read(server.log, 0, 1).is_whole());
  const std::size_t begun = server.log.size();
  server.append(server.effects.begin_round());
  EXPECT_TRUE(server.effects.is_whole());
  while (server.effects.round()) {
    EXPECT_FALSE(Server::read(server.log, begun, server.log.size()).is_whole());
    server.append(server.effects.next_piece());
  }
  EXPECT_TRUE(Server::read(server.log, begun, server.log.size()).is_whole());
  EXPECT_FALSE(Effects().is_whole());
}

/// A server dies in a call, then one before it tries anything; one is fenced in the call, and one
/// ends in order. Expect: one end, until the call is applied.
TEST(Effects, AnEndIsThatOfTheCallThatTheServerTried) {
  Server server;
  Effects& effects = server.effects;
  const std::string name = "client-1";
  const RpcCall call = server.next_call(name);
  EXPECT_FALSE(effects.is_open());
  (void)effects.note_opened(false, false);
  EXPECT_TRUE(effects.is_open());
  (void)effects.note_trying(call);
  EXPECT_EQ(effects.ends_in(call), 0U);
  (void)effects.note_opened(true, true);
  EXPECT_TRUE(effects.is_careful());
  EXPECT_EQ(effects.ends_in(call), 1U);
  (void)effects.note_opened(true, true);
  EXPECT_EQ(effects.ends_in(call), 1U);
  (void)effects.note_calm();
  EXPECT_TRUE(effects.is_open());
  EXPECT_FALSE(effects.is_careful());
  EXPECT_EQ(effects.ends_in(call), 1U);
  (void)effects.note_trying(call);
  (void)effects.note_opened(false, true);
  (void)effects.note_trying(call);
  (void)effects.note_ended();
  EXPECT_FALSE(effects.is_open());
  EXPECT_FALSE(effects.is_careful());
  (void)effects.note_opened(true, true);
  EXPECT_EQ(effects.ends_in(call), 1U);
  // Another call of the same number is another one.
  RpcCall other = call;
  other.generation = 8;
  EXPECT_EQ(effects.ends_in(other), 0U);
  (void)effects.execute(call, nullptr);
  (void)effects.take_record();
  EXPECT_TRUE(effects.tried().empty());
  (void)effects.note_opened(true, true);
  EXPECT_TRUE(effects.tried().empty());
}

/// One call has ended a server, and another one is tried, when a round begins.
TEST(Effects, ARoundHasWhatIsKnownOfServersThatEnded) {
  Server server;
  const std::string one = "client-1";
  const std::string other = "client-2";
  server.log.push_back(server.effects.note_trying(server.next_call(one)));
  server.log.push_back(server.effects.note_opened(true, true));
  server.log.push_back(server.effects.note_trying(server.next_call(other)));
  const std::size_t begun = server.log.size();
  server.append(server.effects.begin_round());
  while (server.effects.round()) server.append(server.effects.next_piece());
  Effects read = Server::read(server.log, begun, server.log.size());
  ASSERT_NO_FATAL_FAILURE(expect_same(server.effects, read));
  EXPECT_TRUE(read.is_careful());
  EXPECT_EQ(read.ends_in(server.next_call(one)), 1U);
  (void)read.note_opened(true, true);
  EXPECT_EQ(read.ends_in(server.next_call(other)), 1U);
  // Who has read all of it knows no more.
  expect_same(server.effects, Server::read(server.log, 0, server.log.size()));
}

TEST(Effects, ACallThatIsDroppedIsAppliedAsRefused) {
  Server server;
  const std::string name = "client-1";
  const RpcCall call = server.next_call(name);
  server.log.push_back(server.effects.note_trying(call));
  server.log.push_back(server.effects.note_opened(true, true));
  server.effects.drop(call);
  server.log.push_back(server.effects.take_record());
  const Effects read = Server::read(server.log, 0, server.log.size());
  expect_same(server.effects, read);
  const Place& place = read.places().at(name);
  EXPECT_EQ(place.applied, 1U);
  ASSERT_EQ(place.replies.size(), 1U);
  EXPECT_EQ(place.replies[0].status,
            kDropped | (1 + static_cast<std::uint32_t>(ErrorCode::SystemError)));
  EXPECT_EQ(read.ends_in(call), 0U);
}

/// One server has ended in the call, which is held. Expect: nothing is decided before the record
/// has its place; retried, it is tried as if for the first time, and known as a suspect.
TEST(Effects, ACallThatIsHeldWaitsForADecision) {
  Server server;
  Effects& effects = server.effects;
  const std::string name = "client-1";
  const RpcCall call = server.next_call(name);
  EXPECT_EQ(effects.decide(name, 1, Decision::Drop).code(), ErrorCode::NotFound);
  server.log.push_back(effects.note_trying(call));
  server.log.push_back(effects.note_opened(true, true));
  EXPECT_EQ(effects.decide(name, 1, Decision::Drop).code(), ErrorCode::InvalidArgument);
  server.log.push_back(effects.note_held(call));
  EXPECT_TRUE(effects.is_held(call));
  EXPECT_TRUE(effects.is_held(name));
  EXPECT_EQ(effects.ends_in(call), 1U);
  RpcCall other = call;
  other.client_id = 1;
  EXPECT_FALSE(effects.is_held(other));
  EXPECT_EQ(effects.decide(name, 2, Decision::Drop).code(), ErrorCode::InvalidArgument);
  const auto retried = effects.decide(name, 1, Decision::Retry);
  ASSERT_TRUE(retried.ok()) << retried.error().message;
  EXPECT_TRUE(effects.is_held(call));
  server.append(*retried);
  EXPECT_FALSE(effects.is_held(call));
  EXPECT_TRUE(effects.is_suspect(call));
  EXPECT_EQ(effects.ends_in(call), 0U);
  EXPECT_EQ(effects.decide(name, 1, Decision::Retry).code(), ErrorCode::InvalidArgument);
  server.log.push_back(effects.note_trying(call));
  server.log.push_back(effects.note_opened(true, true));
  EXPECT_EQ(effects.ends_in(call), 1U);
  server.log.push_back(effects.note_held(call));
  const auto dropped = effects.decide(name, 1, Decision::Drop);
  ASSERT_TRUE(dropped.ok()) << dropped.error().message;
  server.append(*dropped);
  const Effects read = Server::read(server.log, 0, server.log.size());
  expect_same(effects, read);
  EXPECT_FALSE(read.is_suspect(call));
  const Place& place = read.places().at(name);
  EXPECT_EQ(place.client_id, call.client_id);
  EXPECT_EQ(place.applied, 1U);
  EXPECT_EQ(place.generation, call.generation);
  ASSERT_EQ(place.replies.size(), 1U);
  EXPECT_EQ(place.replies[0].status,
            kDropped | (1 + static_cast<std::uint32_t>(ErrorCode::SystemError)));
}

/// Of version 1, which says nothing of openings.
TEST(Effects, ALogOfTheVersionBeforeIsRead) {
  auto record = Effects::first_record(small_sizes());
  EXPECT_EQ(record[23], std::byte{2});
  record[23] = std::byte{1};
  Effects effects;
  ASSERT_TRUE(effects.apply(record, Lsn{1}).ok());
  EXPECT_FALSE(effects.is_open());
  record[23] = std::byte{3};
  Effects later;
  EXPECT_EQ(later.apply(record, Lsn{1}).code(), ErrorCode::VersionMismatch);
}

TEST(Effects, WhatMakesNoSenseIsRefused) {
  const auto first = Effects::first_record(small_sizes());
  const auto refused = [&](std::vector<std::byte> record) {
    Effects effects;
    if (!effects.apply(first, Lsn{1}).ok()) return false;
    return effects.apply(record, Lsn{2}).code() == ErrorCode::Corrupt;
  };
  const std::vector<std::byte> bytes(10);
  std::vector<std::byte> record;
  RecordItem outside;
  outside.number = kData - 9;
  outside.bytes = bytes;
  append_item(record, outside);
  EXPECT_TRUE(refused(record));
  // Every cut and every length of one that was right.
  record.clear();
  outside.number = 0;
  append_item(record, outside);
  for (std::size_t length = 1; length < record.size(); ++length) {
    EXPECT_TRUE(refused({record.begin(), record.begin() + static_cast<std::ptrdiff_t>(length)}));
  }
  store(record.data() + 32, UINT64_MAX);
  EXPECT_TRUE(refused(record));
  Effects none;
  EXPECT_EQ(none.apply(record, Lsn{1}).code(), ErrorCode::Corrupt);
}

TEST(Calls, AreReadAsTheyWereWritten) {
  CallRecord call;
  call.operation = 3;
  call.client_id = 4;
  call.sequence = 5;
  call.order_key = 6;
  auto record = encode_call_head(call);
  record.push_back(std::byte{7});
  const auto read = decode_call(record);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->operation, 3U);
  EXPECT_EQ(read->client_id, 4U);
  EXPECT_EQ(read->sequence, 5U);
  EXPECT_EQ(read->order_key, 6U);
  EXPECT_EQ(read->payload.size(), 1U);
  record.resize(kCallHeadBytes - 1);
  EXPECT_EQ(decode_call(record).code(), ErrorCode::Corrupt);
}

}  // namespace
}  // namespace perdure::replicated_rpc
