// Every document survives the way there and back, and nothing else is taken for one.
#include "control/json_codec.h"

#include <gtest/gtest.h>

#include <vector>

#include "control/json_fields.h"

namespace perdure::control {
namespace {

PoolDescription some_pool() {
  PoolDescription pool;
  pool.name = "orders-2.b";
  pool.state = PoolStatus::Unavailable;
  pool.reason = "checksum of \"slot 1\" fails\n";
  pool.uuid = "2f1c9e0a-0000-4000-8000-000000000001";
  pool.bytes = 123456;
  pool.profile = {PersistenceDomain::Wsp,
                  Ddio::Off,
                  ReceiveBuffers::Pm,
                  Transport::Roce,
                  {true, false, true, false}};
  pool.epoch = Epoch{4'294'967'295u};
  pool.writer = 0xfedcba9876543210u;
  pool.writer_name = "schöpfer@host";
  pool.writer_present = true;
  pool.evidence = "declared";
  return pool;
}

TEST(JsonCodec, RequestsSurvive) {
  const auto pool = decode_pool_request(encode(PoolRequest{"a", 1u << 20}));
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->name, "a");
  EXPECT_EQ(pool->bytes, 1u << 20);
  EXPECT_EQ(pool->required_domain, PersistenceDomain::None);
  EXPECT_EQ(pool->receive_buffers, std::nullopt);

  SessionAsk ask;
  ask.request = {"a", true, Epoch{7}, 0x8000000000000001u, "me", true};
  ask.transport = Transport::Shm;
  const auto read = decode_session_ask(encode(ask), "a");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->request.write);
  EXPECT_TRUE(read->request.take_over);
  EXPECT_EQ(read->request.epoch, Epoch{7});
  EXPECT_EQ(read->request.writer, 0x8000000000000001u);
  EXPECT_EQ(read->request.writer_name, "me");
  EXPECT_EQ(read->transport, Transport::Shm);
  EXPECT_FALSE(read->request.for_writer);

  SessionAsk looking;
  looking.request.pool = "a";
  looking.request.for_writer = true;
  const auto look = decode_session_ask(encode(looking), "a");
  ASSERT_TRUE(look.ok()) << look.error().message;
  EXPECT_TRUE(look->request.for_writer);
  EXPECT_FALSE(look->request.write);

  EXPECT_EQ(*decode_fence(encode_fence(Epoch{9})), Epoch{9});
  EXPECT_TRUE(decode_empty("").ok());
  EXPECT_TRUE(decode_empty("{}").ok());
}

// An older daemon refuses what it does not know, so it is not asked where nothing is required.
TEST(JsonCodec, WhatIsRequiredOfAPoolSurvivesAndIsLeftOutWhereNothingIs) {
  for (const auto domain : {PersistenceDomain::Page, PersistenceDomain::Dmp, PersistenceDomain::Mhp,
                            PersistenceDomain::Wsp}) {
    for (const auto buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
      const auto read = decode_pool_request(encode(PoolRequest{"a", 4096, domain, buffers}));
      ASSERT_TRUE(read.ok()) << read.error().message;
      EXPECT_EQ(read->required_domain, domain);
      EXPECT_EQ(read->receive_buffers, buffers);
    }
  }
  EXPECT_EQ(encode(PoolRequest{"a", 4096}), R"({"bytes":4096,"format":1,"name":"a"})");
}

TEST(JsonCodec, AnswersSurvive) {
  EXPECT_EQ(*decode_pool(encode(some_pool())), some_pool());
  const std::vector pools{some_pool(), some_pool()};
  EXPECT_EQ(*decode_pools(encode(pools)), pools);

  SessionGrant grant{1,           ~0ull, Transport::Tcp, "127.0.0.1:7471", {5, 6, 7},
                     some_pool(), 64,    16384,          std::nullopt};
  EXPECT_EQ(*decode_grant(encode(grant)), grant);  // of a peer that does not time its medium
  grant.medium = pmem::MediumCosts{90, 5300, 1'000'000'000'000};
  EXPECT_EQ(*decode_grant(encode(grant)), grant);
  grant.medium->sync_ns += 1;
  EXPECT_EQ(decode_grant(encode(grant)).code(), ErrorCode::ProtocolError);

  SessionDescription session;
  session.id = 0xffffffffffffffffu;
  session.pool = "a";
  session.phase = SessionPhase::Connected;
  session.counters.messages = 0xffffffffffffffffu;
  EXPECT_EQ(*decode_session(encode(session)), session);
  session.unrevoked = "the RNIC does not deregister 4096 B";
  EXPECT_EQ(*decode_session(encode(session)), session);

  const ServiceDescription service{
      "0.1.0", "boot", {Transport::Tcp, Transport::Shm}, {"one", "two"}, 1, 2, true, 3};
  EXPECT_EQ(*decode_service(encode(service)), service);

  const Error error = decode_error(encode(Error{ErrorCode::Fenced, "too late"}));
  EXPECT_EQ(error.code, ErrorCode::Fenced);
  EXPECT_EQ(error.message, "too late");
  EXPECT_TRUE(decode_accepted(encode_accepted()).ok());
}

struct BadRequest {
  const char* what;
  std::string text;
  ErrorCode code = ErrorCode::InvalidArgument;
};

TEST(JsonCodec, AnythingElseThanAPoolRequestIsRefused) {
  const std::vector<BadRequest> cases{
      {"nothing", ""},
      {"not JSON", "hello"},
      {"cut off", R"({"name":"a","bytes":4096)"},
      {"more after it", R"({"name":"a","bytes":4096} {})"},
      {"not an object", "[1]"},
      {"null", "null"},
      {"unknown field", R"({"name":"a","bytes":4096,"size":1})"},
      {"missing field", R"({"name":"a"})"},
      {"a field twice", R"({"name":"a","bytes":4096,"bytes":8192})"},
      {"wrong type", R"({"name":1,"bytes":4096})"},
      {"text for a number", R"({"name":"a","bytes":"4096"})"},
      {"negative", R"({"name":"a","bytes":-4096})"},
      {"fraction", R"({"name":"a","bytes":4096.5})"},
      {"exponent", R"({"name":"a","bytes":1e6})"},
      {"beyond 64 bits", R"({"name":"a","bytes":99999999999999999999})"},
      {"too small", R"({"name":"a","bytes":0})"},
      {"too large", R"({"name":"a","bytes":18446744073709551615})"},
      {"no name", R"({"name":"","bytes":4096})"},
      {"a path for a name", R"({"name":"../a","bytes":4096})"},
      {"a hidden name", R"({"name":".a","bytes":4096})"},
      {"zero byte in the name", "{\"name\":\"a\\u0000b\",\"bytes\":4096}"},
      {"long name", R"({"name":")" + std::string(65, 'a') + R"(","bytes":4096})"},
      {"not UTF-8", "{\"name\":\"\xff\xfe\",\"bytes\":4096}"},
      {"lone surrogate", R"({"name":"\ud800","bytes":4096})"},
      {"deep nesting", R"({"name":)" + std::string(30000, '[') + std::string(30000, ']') + "}"},
      {"unfinished deep nesting", std::string(60000, '[')},
      {"oversized", R"({"name":"a","bytes":4096)" + std::string(kJsonBytesMax, ' ') + "}"},
      {"comment", R"({"name":"a",/* */"bytes":4096})"},
      {"another format", R"({"format":2,"name":"a","bytes":4096})", ErrorCode::VersionMismatch},
      {"format as text", R"({"format":"1","name":"a","bytes":4096})"},
      {"no domain", R"({"name":"a","bytes":4096,"required_domain":"moon"})"},
      {"a domain that is none", R"({"name":"a","bytes":4096,"required_domain":"none"})"},
      {"a domain as a number", R"({"name":"a","bytes":4096,"required_domain":2})"},
      {"no domain at all", R"({"name":"a","bytes":4096,"required_domain":null})"},
      {"no receive buffers", R"({"name":"a","bytes":4096,"receive_buffers":"disk"})"},
  };
  for (const BadRequest& each : cases) {
    const auto read = decode_pool_request(each.text);
    ASSERT_FALSE(read.ok()) << each.what;
    EXPECT_EQ(read.code(), each.code) << each.what << ": " << read.error().message;
    EXPECT_LT(read.error().message.size(), 1000u) << each.what;
  }
}

TEST(JsonCodec, AnythingElseThanASessionRequestIsRefused) {
  const std::vector<BadRequest> cases{
      {"no rights", "{}"},
      {"a writer without epoch", R"({"write":true,"writer":"1"})"},
      {"a writer without id", R"({"write":true,"epoch":1})"},
      {"epoch 0", R"({"write":true,"epoch":0,"writer":"1"})"},
      {"writer 0", R"({"write":true,"epoch":1,"writer":"0"})"},
      {"epoch beyond 32 bits", R"({"write":true,"epoch":4294967296,"writer":"1"})"},
      {"writer as a number", R"({"write":true,"epoch":1,"writer":1})"},
      {"writer not hexadecimal", R"({"write":true,"epoch":1,"writer":"0x1"})"},
      {"writer too long", R"({"write":true,"epoch":1,"writer":"00000000000000001"})"},
      {"writer empty", R"({"write":true,"epoch":1,"writer":""})"},
      {"a reader with an epoch", R"({"write":false,"epoch":1})"},
      {"unknown transport", R"({"write":false,"transport":"pigeon"})"},
      {"a name with a line break", R"({"write":false,"writer_name":"a\nb"})"},
      {"a name too long", R"({"write":false,"writer_name":")" + std::string(65, 'a') + "\"}"},
      {"write as text", R"({"write":"yes"})"},
  };
  for (const BadRequest& each : cases) {
    const auto read = decode_session_ask(each.text, "a");
    ASSERT_FALSE(read.ok()) << each.what;
    EXPECT_EQ(read.code(), ErrorCode::InvalidArgument) << each.what;
  }
  EXPECT_FALSE(decode_session_ask(R"({"write":false})", "../a").ok());
}

TEST(JsonCodec, AnAnswerThatMakesNoSenseIsThePeersFault) {
  EXPECT_EQ(decode_pool("<html>").code(), ErrorCode::ProtocolError);
  EXPECT_EQ(decode_pool("{}").code(), ErrorCode::ProtocolError);
  EXPECT_EQ(decode_pools(R"({"format":1,"pools":[1]})").code(), ErrorCode::ProtocolError);
  EXPECT_EQ(decode_pools(R"({"format":1,"pools":[{}]})").code(), ErrorCode::ProtocolError);
  EXPECT_EQ(decode_grant(R"({"format":1})").code(), ErrorCode::ProtocolError);
  EXPECT_EQ(decode_accepted(R"({"format":2})").code(), ErrorCode::VersionMismatch);
  EXPECT_EQ(decode_error("nonsense").code, ErrorCode::ProtocolError);
  EXPECT_EQ(decode_error(R"({"format":1,"error":{"code":"odd","message":""}})").code,
            ErrorCode::ProtocolError);
}

TEST(JsonCodec, TextThatIsNotUtf8IsShownNotThrown) {
  PoolDescription pool = some_pool();
  pool.reason = "file \xff";
  EXPECT_EQ(decode_pool(encode(pool))->reason, "file \xef\xbf\xbd");
}

}  // namespace
}  // namespace perdure::control
