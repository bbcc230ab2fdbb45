// Calls are executed exactly once wherever the power fails, judged by what the handlers have left
// in the pool: a journal of every call, in the order of execution.
#include "rpc/executor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>

#include "core/bytes.h"
#include "core/random.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"

namespace perdure::rpc {
namespace {

constexpr Nanoseconds kNoTime{0};
constexpr std::uint32_t kNote = 1;    // notes the call in the journal
constexpr std::uint32_t kRefuse = 2;  // writes something, then refuses
constexpr std::uint32_t kThrow = 3;
constexpr std::uint32_t kHuge = 4;     // more than a transaction takes
constexpr std::uint32_t kLarge = 5;    // notes it, and writes so much that few fit in a transaction
constexpr std::uint32_t kFilling = 6;  // notes it, and writes most of what a transaction takes
constexpr std::uint32_t kSlow = 7;     // takes as long as the handlers of a transaction may
constexpr std::uint32_t kAsk = 8;      // asks its own server to decide about a call
constexpr std::uint32_t kStrict = 9;   // as kFilling, but throws where that does not fit
constexpr std::uint64_t kExecutorRing = 4096;

constexpr std::uint32_t kDroppedStatus =
    kStatusDropped | (1 + static_cast<std::uint32_t>(ErrorCode::SystemError));

struct JournalLine {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;
};

PoolShape executor_shape() {
  PoolShape shape;
  shape.clients = 3;
  shape.ring_bytes = kExecutorRing;
  shape.window_bytes = pmem::kPoolDataOffset + kRingAt + kExecutorRing;
  shape.replies = 8;
  shape.reply_bytes_max = 32;
  shape.transaction_bytes = 16384;
  shape.data_bytes = 65536;
  return shape;
}

Result<std::size_t> note_call(const RpcCall& call, RpcTransaction& data,
                              std::span<std::byte> reply) {
  PERDURE_TRY(count, data.load<std::uint64_t>(0));
  PERDURE_TRY_VOID(
      data.store(8 + count * sizeof(JournalLine), JournalLine{call.client_id, call.sequence}));
  PERDURE_TRY_VOID(data.store(0, count + 1));
  store(reply.data(), count);
  return sizeof count;
}

ExecutorOptions executor_options() {
  ExecutorOptions options;
  options.handlers[kNote] = note_call;
  options.handlers[kRefuse] = [](const RpcCall&, RpcTransaction& data,
                                 std::span<std::byte>) -> Result<std::size_t> {
    PERDURE_TRY_VOID(data.store(0, UINT64_MAX));
    return Error{ErrorCode::PermissionDenied, "no"};
  };
  options.handlers[kHuge] = [](const RpcCall&, RpcTransaction& data,
                               std::span<std::byte>) -> Result<std::size_t> {
    const std::vector<std::byte> bytes(16384, std::byte{1});
    (void)data.write(8192, bytes);  // what it returns does not count
    return std::size_t{0};
  };
  options.handlers[kLarge] = [](const RpcCall& call, RpcTransaction& data,
                                std::span<std::byte> reply) -> Result<std::size_t> {
    PERDURE_TRY_VOID(data.write(32768, std::vector<std::byte>(2000, std::byte{1})));
    return note_call(call, data, reply);
  };
  options.queries[kNote] = [](std::span<const std::byte>, const RpcData& data,
                              std::span<std::byte> reply) -> Result<std::size_t> {
    PERDURE_TRY(count, data.load<std::uint64_t>(0));
    store(reply.data(), count);
    return sizeof count;
  };
  return options;
}

/// A client as the ring sees it, which writes with the processor and flushes.
struct TestClient {
  std::size_t place = 0;
  std::uint64_t id = 0;
  std::uint64_t sequence = 0;  // of its last call
  std::uint64_t durable = 0;
  std::uint64_t applied = 0;  // that it was told
  std::uint64_t end = 0;
  std::uint64_t freed = 0;
  std::uint32_t generation = 0;
};

class ExecutorTest : public testing::Test {
 protected:
  void make(PersistenceDomain domain, std::uint64_t seed) {
    executor_.reset();
    clients_.clear();
    random_ = Random(seed);
    cut_in_ = 0;
    region_ = *pmem::CrashableRegion::open(
        {.bytes = pmem::kPoolDataOffset + executor_shape().bytes(), .domain = domain});
    region_->watch_flushes([this](std::uint64_t) {
      if (cut_in_ != 0 && --cut_in_ == 0) region_->power_cut(random_);
    });
    ASSERT_TRUE(pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), {}).ok());
    ASSERT_TRUE(open().ok());
    for (std::size_t client = 0; client < 2; ++client) add(fmt::format("client{}", client));
  }

  Result<void> open() {
    executor_.reset();
    PERDURE_TRY(attached, pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_)));
    PERDURE_TRY(pool, RpcPool::open(std::move(attached), executor_shape()));
    ExecutorOptions options = executor_options();
    options.refuse_failed = refuse_failed_;
    options.handlers[kThrow] = [this](const RpcCall& call, RpcTransaction& data,
                                      std::span<std::byte> reply) -> Result<std::size_t> {
      ++thrown_;
      if (repaired_) return note_call(call, data, reply);
      (void)data.store(0, UINT64_MAX);
      throw std::runtime_error("broken");
    };
    options.handlers[kFilling] = [](const RpcCall& call, RpcTransaction& data,
                                    std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY_VOID(data.write(32768, std::vector<std::byte>(15900, std::byte{1})));
      return note_call(call, data, reply);
    };
    options.handlers[kStrict] = [this](const RpcCall& call, RpcTransaction& data,
                                       std::span<std::byte> reply) -> Result<std::size_t> {
      const std::vector<std::byte> much(15900, std::byte{1});
      if (!data.write(32768, much).ok()) {
        ++thrown_;
        throw std::runtime_error("no room");
      }
      return note_call(call, data, reply);
    };
    options.handlers[kSlow] = [this](const RpcCall& call, RpcTransaction& data,
                                     std::span<std::byte> reply) {
      clock_.advance(kHandlersWithin);
      return note_call(call, data, reply);
    };
    options.handlers[kAsk] = [this](const RpcCall& call, RpcTransaction& data,
                                    std::span<std::byte> reply) {
      generations_.push_back(call.generation);
      ask();
      return note_call(call, data, reply);
    };
    options.queries[kAsk] = [this](std::span<const std::byte>, const RpcData&,
                                   std::span<std::byte>) -> Result<std::size_t> {
      ask();
      return std::size_t{0};
    };
    options.clock = &clock_;
    PERDURE_TRY(executor, Executor::open(std::move(pool), std::move(options)));
    executor_ = std::move(executor);
    return {};
  }

  void ask() {
    told_.push_back(executor_->retry("client0", 1).code());
    told_.push_back(executor_->drop("client0", 1).code());
  }

  void add(const std::string& name) {
    const auto added =
        executor_->add_client(name, [](std::size_t place) { return Result<std::size_t>(place); });
    ASSERT_TRUE(added.ok()) << added.error().message;
    TestClient client;
    client.place = *added;
    client.id = executor_->welcome(*added, 0)->client;
    clients_.push_back(client);
  }

  /// Writes the next call of a client as a method does: the commit word behind the rest.
  bool call(TestClient& client, std::uint32_t operation = kNote, std::size_t bytes = 16) {
    return write_call(client, operation, bytes, true);
  }
  /// Without `flush` it is visible and no more.
  bool write_call(TestClient& client, std::uint32_t operation, std::size_t bytes = 16,
                  bool flush = false) {
    const std::uint64_t at = place_entry(client.end, entry_bytes(bytes), kExecutorRing);
    if (at + entry_bytes(bytes) - client.freed > kExecutorRing) return false;
    if (client.sequence - client.applied >= executor_shape().replies) return false;
    Entry entry;
    entry.client = client.id;
    entry.sequence = client.sequence + 1;
    entry.position = at;
    entry.operation = operation;
    entry.generation = client.generation;
    entry.payload_bytes = static_cast<std::uint32_t>(bytes);
    std::vector<std::byte> encoded(entry_bytes(bytes));
    encode_entry(entry, std::vector<std::byte>(bytes), encoded.data());
    const std::uint64_t place =
        pmem::kPoolDataOffset + executor_shape().ring_at(client.place) + at % kExecutorRing;
    std::byte* const to = region_->bytes().data() + place;
    client.end = at + encoded.size();
    ++client.sequence;
    std::copy(encoded.begin() + 8, encoded.end(), to + 8);
    if (flush && !region_->flush(place, encoded.size()).ok()) return true;
    std::copy_n(encoded.begin(), 8, to);
    if (flush && region_->flush(place, 8).ok()) client.durable = client.sequence;
    return true;
  }

  void collect(TestClient& client) {
    const auto applied =
        executor_->collect(client.place, client.id, client.applied + 1,
                           [](const ReplyHead&, std::span<const std::byte>) { return true; });
    ASSERT_TRUE(applied.ok());
    ASSERT_LE(applied->sequence, client.sequence);
    client.applied = applied->sequence;
    client.freed = applied->position;
  }

  void execute_all() {
    for (int round = 0; round < 100; ++round) {
      const auto done = executor_->process();
      ASSERT_TRUE(done.ok()) << done.error().message;
      if (*done == 0) return;
    }
    FAIL() << "it goes on and on";
  }

  /// Of the replies that are kept.
  std::vector<std::uint32_t> statuses_of(const TestClient& client) {
    std::vector<std::uint32_t> statuses;
    const auto collected = executor_->collect(
        client.place, client.id, 1, [&](const ReplyHead& head, std::span<const std::byte>) {
          statuses.push_back(head.status);
          return true;
        });
    EXPECT_TRUE(collected.ok());
    return statuses;
  }

  std::uint64_t word(std::uint64_t at) const {
    return load<std::uint64_t>(region_->bytes().data() + pmem::kPoolDataOffset +
                               executor_shape().data_at() + at);
  }

  /// By client: the sequences in the journal, in order.
  std::vector<std::uint64_t> journal_of(const TestClient& client) const {
    std::vector<std::uint64_t> found;
    for (std::uint64_t line = 0; line < word(0); ++line) {
      const std::uint64_t at = 8 + line * sizeof(JournalLine);
      if (word(at) == client.id) found.push_back(word(at + 8));
    }
    return found;
  }

  /// Each once, in order, and all that were durable.
  void judge(const TestClient& client) {
    const auto journal = journal_of(client);
    for (std::size_t index = 0; index < journal.size(); ++index) {
      ASSERT_EQ(journal[index], index + 1) << "a call was lost, executed twice or out of order";
    }
    ASSERT_GE(journal.size(), client.durable) << "a durable call was not executed";
  }

  Random random_{1};
  std::unique_ptr<pmem::CrashableRegion> region_;
  std::unique_ptr<Executor> executor_;
  std::vector<TestClient> clients_;
  std::uint64_t cut_in_ = 0;
  bool refuse_failed_ = false;
  bool repaired_ = false;  // kThrow does what kNote does
  int thrown_ = 0;         // how often kThrow was executed
  ManualClock clock_;
  std::vector<ErrorCode> told_;             // what kAsk was answered
  std::vector<std::uint32_t> generations_;  // of its calls
};

TEST_F(ExecutorTest, EachDurableCallIsExecutedOnceWhereverThePowerFails) {
  int cuts = 0;
  int unreported = 0;  // calls that were executed though nobody was told that they are durable
  std::uint64_t executed = 0;
  for (const auto domain :
       {PersistenceDomain::Dmp, PersistenceDomain::Page, PersistenceDomain::Wsp}) {
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", to_string(domain), seed));
      make(domain, seed);
      for (int life = 0; life < 8; ++life) {
        cut_in_ = 1 + random_.below(40);
        for (int step = 0; step < 40 && region_->powered(); ++step) {
          TestClient& client = clients_[random_.below(2)];
          switch (random_.below(4)) {
            case 0: (void)executor_->process(); break;
            case 1: collect(client); break;
            default: (void)call(client, kNote, random_.below(300));
          }
          if (random_.below(4) == 0) region_->drain_some(random_);
        }
        const bool cut = !region_->powered();
        cuts += cut ? 1 : 0;
        executor_.reset();
        cut_in_ = 0;
        if (!cut) region_->power_cut(random_);
        region_->power_on();
        // Recovery may be cut short, too.
        for (int attempt = 0; attempt < 3; ++attempt) {
          cut_in_ = attempt < 2 ? random_.below(8) : 0;
          auto recovered = open();
          while (recovered.ok()) {
            const auto done = executor_->process();
            if (!done.ok()) recovered = done.error();
            if (!done.ok() || *done == 0) break;
          }
          cut_in_ = 0;
          if (recovered.ok()) break;
          executor_.reset();
          region_->power_on();
        }
        for (TestClient& client : clients_) {
          judge(client);
          if (HasFatalFailure()) return;
          const auto welcome = executor_->welcome(client.place, client.id);
          ASSERT_TRUE(welcome.ok());
          ASSERT_EQ(welcome->applied, journal_of(client).size());
          ASSERT_EQ(welcome->durable, welcome->applied);  // nothing is left unapplied
          unreported += welcome->applied > client.durable ? 1 : 0;
          client.sequence = client.durable = client.applied = welcome->applied;
          client.end = client.freed = welcome->end;
        }
        executed = word(0);
      }
      EXPECT_GT(executed, 0u);
    }
  }
  EXPECT_GT(cuts, 300);
  EXPECT_GT(unreported, 5);
}

// One client has as many calls as it may have, of which no transaction takes all; the others have
// one each. Expect: theirs are executed in the same transaction.
TEST_F(ExecutorTest, EachClientGetsItsTurnHoweverMuchOthersCall) {
  make(PersistenceDomain::Wsp, 11);
  ASSERT_FALSE(HasFatalFailure());
  add("client2");
  for (int round = 0; round < 50; ++round) {
    while (call(clients_[0], kLarge)) {
    }
    ASSERT_TRUE(call(clients_[1]));
    ASSERT_TRUE(call(clients_[2]));
    const auto executed = executor_->process();
    ASSERT_TRUE(executed.ok());
    for (TestClient& each : clients_) collect(each);
    EXPECT_LT(clients_[0].applied, clients_[0].sequence);
    EXPECT_EQ(clients_[1].applied, clients_[1].sequence);
    EXPECT_EQ(clients_[2].applied, clients_[2].sequence);
  }
  execute_all();
  for (const TestClient& each : clients_) judge(each);
}

// One of them writes most of what a transaction takes. Expect: it is executed although the others
// always have something that goes before it.
TEST_F(ExecutorTest, ACallThatFillsATransactionIsExecutedBesideBusyClients) {
  make(PersistenceDomain::Wsp, 12);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(call(clients_[1], kFilling));
  for (int round = 0; round < 4; ++round) {
    while (call(clients_[0])) {
    }
    ASSERT_TRUE(executor_->process().ok());
    collect(clients_[0]);
  }
  EXPECT_EQ(executor_->applied(clients_[1].place), 1u);
  execute_all();
  for (const TestClient& each : clients_) judge(each);
}

// Others' calls have taken the room, and its handler says so by throwing. Expect: that is no
// failure of the call, which is executed in a transaction of its own.
TEST_F(ExecutorTest, ACallThatThrowsBecauseItDoesNotFitIsExecutedAlone) {
  make(PersistenceDomain::Wsp, 12);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(call(clients_[1], kStrict));
  for (int round = 0; round < 6; ++round) {
    while (call(clients_[0])) {
    }
    ASSERT_TRUE(executor_->process().ok());
    collect(clients_[0]);
  }
  EXPECT_EQ(thrown_, 1);
  EXPECT_EQ(executor_->status().clients[1].set_aside, 0u);
  EXPECT_EQ(executor_->applied(clients_[1].place), 1u);
  execute_all();
  for (const TestClient& each : clients_) judge(each);
}

// Counted: what a hint costs does not depend on how many clients there are.
TEST_F(ExecutorTest, AHintHasOneRingLookedAtAndALostOneIsFoundByTheScan) {
  make(PersistenceDomain::Dmp, 1);
  add("client2");
  for (TestClient& each : clients_) ASSERT_TRUE(call(each));
  EXPECT_EQ(*executor_->process_hinted(), 0u);  // nothing was hinted
  EXPECT_EQ(executor_->looks(), 0u);
  executor_->hint(clients_[1].place);
  EXPECT_EQ(*executor_->process_hinted(), 1u);
  EXPECT_EQ(executor_->looks(), 2u);  // there was one, and none behind it
  EXPECT_EQ(journal_of(clients_[1]).size(), 1u);
  EXPECT_EQ(*executor_->process_hinted(), 0u);
  EXPECT_EQ(executor_->looks(), 2u);
  EXPECT_EQ(*executor_->process(), 2u);
  for (const TestClient& each : clients_) judge(each);
}

// A session asks whether there may be a call before it hints at one. Expect: never that there is
// none while there is.
TEST_F(ExecutorTest, WhereACallWaitsThereMayBeOne) {
  make(PersistenceDomain::Dmp, 1);
  TestClient& client = clients_[0];
  EXPECT_FALSE(executor_->may_hold_call(client.place));
  for (int round = 0; round < 100; ++round) {  // several laps of the ring
    ASSERT_TRUE(call(client, kNote, 300));
    ASSERT_TRUE(executor_->may_hold_call(client.place));
    executor_->hint(client.place);
    ASSERT_EQ(*executor_->process_hinted(), 1u);
    ASSERT_FALSE(executor_->may_hold_call(client.place));
    collect(client);
  }
  judge(client);
}

// The transaction ends before all that was hinted is executed. Expect: the rest needs no new hint.
TEST_F(ExecutorTest, WhatATransactionLeavesIsHintedAgain) {
  make(PersistenceDomain::Dmp, 1);
  for (int count = 0; count < 2; ++count) {
    for (TestClient& each : clients_) ASSERT_TRUE(call(each, kSlow));
  }
  for (TestClient& each : clients_) executor_->hint(each.place);
  for (int count = 0; count < 4; ++count) EXPECT_EQ(*executor_->process_hinted(), 1u);
  EXPECT_EQ(*executor_->process_hinted(), 0u);
  ASSERT_TRUE(call(clients_[0], kThrow));
  ASSERT_TRUE(call(clients_[1], kFilling));
  ASSERT_TRUE(call(clients_[1], kFilling));
  EXPECT_EQ(*executor_->process(), 1u);  // and so does what a look at all rings leaves
  for (int round = 0; round < 6; ++round) ASSERT_TRUE(executor_->process_hinted().ok());
  judge(clients_[1]);
  EXPECT_EQ(executor_->applied(clients_[1].place), 4u);
  EXPECT_TRUE(executor_->status().clients[0].held);
  repaired_ = true;
  ASSERT_TRUE(executor_->retry("client0", 3).ok());
  EXPECT_EQ(*executor_->process_hinted(), 1u);  // an operator's decision is a hint
  judge(clients_[0]);
}

// Whoever waits for a transaction to end waits for one handler that is slow, not for 64.
TEST_F(ExecutorTest, ASlowHandlerIsTheLastOfItsTransaction) {
  make(PersistenceDomain::Dmp, 1);
  for (int count = 0; count < 3; ++count) call(clients_[0], kSlow);
  for (int count = 0; count < 3; ++count) EXPECT_EQ(*executor_->process(), 1u);
  for (int count = 0; count < 3; ++count) call(clients_[0]);
  EXPECT_EQ(*executor_->process(), 3u);
}

// What the thread of a client's session executes is that client's, whoever else has something: a
// handler that is slow all the same holds its own client's session up, and no other.
TEST_F(ExecutorTest, ASessionExecutesItsOwnClientsCallsAlone) {
  make(PersistenceDomain::Dmp, 1);
  for (TestClient& client : clients_) {
    call(client);
    call(client);
    executor_->hint(client.place);
  }
  const auto executed = executor_->try_process_at(clients_[1].place);
  ASSERT_TRUE(executed && executed->ok());
  EXPECT_EQ(**executed, 2u);
  EXPECT_TRUE(journal_of(clients_[0]).empty());
  EXPECT_EQ(*executor_->process_hinted(), 2u);  // it is hinted still
  // Nor does it where one of several calls may have ended the last server.
  call(clients_[0]);
  call(clients_[1]);
  executor_->pool().note_executing(Executing{clients_[0].place, 3}, 0);
  executor_->pool().note_executing(Executing{clients_[1].place, 3}, 1);
  ASSERT_TRUE(open().ok());
  EXPECT_FALSE(executor_->try_process_at(clients_[1].place));
  EXPECT_EQ(*executor_->process_hinted(), 1u);
}

// As `perdure rpc retry` does it, which executes nothing. Expect: the next server still knows whom
// to suspect.
TEST_F(ExecutorTest, WhoExecutesNothingForgetsNoSuspect) {
  make(PersistenceDomain::Dmp, 1);
  call(clients_[0]);
  call(clients_[1]);
  executor_->pool().note_executing(Executing{clients_[0].place, 1}, 0);
  executor_->pool().note_executing(Executing{clients_[1].place, 1}, 1);
  executor_.reset();
  auto attached = pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_));
  ASSERT_TRUE(attached.ok());
  auto pool = RpcPool::open(std::move(*attached), executor_shape());
  ASSERT_TRUE(pool.ok());
  ExecutorOptions options;
  options.executes = false;
  const auto opened = Executor::open(std::move(*pool), std::move(options));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->pool().executing().size(), 2u);
}

// It would wait for itself.
TEST_F(ExecutorTest, AHandlerThatDecidesAboutCallsIsRefused) {
  make(PersistenceDomain::Dmp, 1);
  call(clients_[0], kAsk);
  execute_all();
  std::vector<std::byte> whole;
  const auto answered =
      executor_->query(clients_[0].place, clients_[0].id, 0, kAsk, {}, {{}, whole}, kNoTime);
  ASSERT_TRUE(answered.ok() && answered->has_value() && (*answered)->ok());
  EXPECT_EQ(told_, std::vector<ErrorCode>(4, ErrorCode::InvalidArgument));
}

// A call that is in the ring and not durable is executed; the power fails, and its process has
// died. Expect: the handler can tell the call of the next process, which has its sequence.
TEST_F(ExecutorTest, CallsOfTwoProcessesAreTwoThoughTheyHaveOneSequence) {
  int lost = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    make(PersistenceDomain::Dmp, seed);
    generations_.clear();
    TestClient& client = clients_[0];
    client.generation = 1;
    write_call(client, kAsk);
    cut_in_ = 1;  // before the transaction is durable
    EXPECT_FALSE(executor_->process().ok());
    EXPECT_EQ(generations_, std::vector<std::uint32_t>{1});
    region_->power_on();
    ASSERT_TRUE(open().ok());
    if (executor_->welcome(client.place, 0)->durable != 0) continue;
    ++lost;
    client = {client.place, client.id, 0, 0, 0, 0, 0, 2};
    call(client, kAsk);
    execute_all();
    EXPECT_EQ(generations_, (std::vector<std::uint32_t>{1, 2}));
  }
  EXPECT_GT(lost, 0);
}

TEST_F(ExecutorTest, WhatAHandlerRefusesLeavesNothingAndIsAnsweredOnce) {
  make(PersistenceDomain::Dmp, 1);
  TestClient& client = clients_[0];
  call(client);
  call(client, kRefuse);
  call(client, 99);  // nobody handles that
  call(client, kHuge);
  call(client);
  std::size_t done = 0;
  for (int round = 0; round < 10; ++round) done += *executor_->process();
  EXPECT_EQ(done, 5u);
  EXPECT_EQ(journal_of(client), (std::vector<std::uint64_t>{1, 5}));
  std::vector<std::uint32_t> statuses;
  ASSERT_TRUE(executor_
                  ->collect(client.place, client.id, 1,
                            [&](const ReplyHead& head, std::span<const std::byte> bytes) {
                              statuses.push_back(head.status);
                              EXPECT_EQ(bytes.size(), head.status == 0 ? 8u : 0u);
                              return true;
                            })
                  .ok());
  const auto status = [](ErrorCode code) { return 1 + static_cast<std::uint32_t>(code); };
  EXPECT_EQ(statuses, (std::vector<std::uint32_t>{0, status(ErrorCode::PermissionDenied),
                                                  status(ErrorCode::Unsupported),
                                                  status(ErrorCode::NoSpace), 0}));
  const RpcServerStatus counted = executor_->status();
  EXPECT_EQ(counted.applied, 5u);
  EXPECT_EQ(counted.refused, 2u);
  EXPECT_EQ(counted.unknown, 1u);
}

TEST_F(ExecutorTest, AHandlerThatThrowsIsTriedAgainThenRefused) {
  refuse_failed_ = true;
  make(PersistenceDomain::Dmp, 1);
  TestClient& client = clients_[0];
  call(client, kThrow);
  call(client);
  call(clients_[1]);
  ASSERT_TRUE(executor_->process().ok());
  EXPECT_EQ(executor_->status().clients[0].attempts, 1u);
  ASSERT_TRUE(open().ok());  // attempts outlive the server
  for (int round = 0; round < 6; ++round) ASSERT_TRUE(executor_->process().ok());
  EXPECT_EQ(journal_of(client), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(journal_of(clients_[1]), (std::vector<std::uint64_t>{1}));  // others go on
  EXPECT_EQ(executor_->status().clients[0].set_aside, 1u);
  EXPECT_EQ(executor_->status().clients[0].attempts, 0u);
}

// A handler that takes the whole process with it, each time.
TEST_F(ExecutorTest, ACallThatKillsTheServerIsSetAside) {
  refuse_failed_ = true;
  make(PersistenceDomain::Page, 1);
  TestClient& client = clients_[0];
  call(client);
  call(client);
  for (std::uint32_t attempt = 1; attempt <= 3; ++attempt) {
    executor_->pool().note_executing(Executing{client.place, 1});  // and it is gone
    ASSERT_TRUE(open().ok());
    EXPECT_EQ(executor_->status().clients[0].attempts, attempt);
  }
  ASSERT_TRUE(open().ok());  // that it ended well in between changes nothing
  EXPECT_EQ(executor_->status().clients[0].attempts, 3u);
  ASSERT_TRUE(executor_->process().ok());
  EXPECT_EQ(executor_->status().clients[0].set_aside, 1u);
  EXPECT_EQ(journal_of(client), (std::vector<std::uint64_t>{2}));
}

// A call that kills the server behind another one of its client, which shared a transaction with
// it.
TEST_F(ExecutorTest, ACallThatKillsTheServerIsFoundBehindOthers) {
  refuse_failed_ = true;
  make(PersistenceDomain::Page, 1);
  TestClient& client = clients_[0];
  for (int call_count = 0; call_count < 3; ++call_count) call(client);
  executor_->pool().note_executing(Executing{client.place, 2});
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(executor_->status().clients[0].attempts, 0u);
  EXPECT_EQ(*executor_->process(), 1u);  // one at a time, until it is known which one it was
  EXPECT_EQ(journal_of(client), (std::vector<std::uint64_t>{1}));
  for (std::uint32_t attempt = 1; attempt <= 3; ++attempt) {
    executor_->pool().note_executing(Executing{client.place, 2});
    ASSERT_TRUE(open().ok());
    EXPECT_EQ(executor_->status().clients[0].attempts, attempt);
  }
  EXPECT_EQ(*executor_->process(), 1u);
  EXPECT_EQ(executor_->status().clients[0].set_aside, 1u);
  EXPECT_EQ(*executor_->process(), 1u);
  EXPECT_EQ(journal_of(client), (std::vector<std::uint64_t>{1, 3}));
}

// Client 0 has a call that throws and one behind it; client 1 has one.
TEST_F(ExecutorTest, ACallThatIsSetAsideWaitsForAnOperator) {
  make(PersistenceDomain::Dmp, 1);
  TestClient& client = clients_[0];
  call(client, kThrow);
  call(client);
  call(clients_[1]);
  execute_all();
  ASSERT_TRUE(open().ok());  // no other server tries it either
  execute_all();
  EXPECT_EQ(thrown_, 3);
  EXPECT_TRUE(journal_of(client).empty());  // what is behind it waits
  EXPECT_EQ(journal_of(clients_[1]), (std::vector<std::uint64_t>{1}));
  const RpcClientPlace shown = executor_->status().clients[0];
  EXPECT_TRUE(shown.held);
  EXPECT_EQ(shown.set_aside, 1u);
  EXPECT_EQ(shown.waiting, 2u);
  // Everybody who asks is told at once.
  const auto told =
      executor_->collect(client.place, client.id, 1,
                         [](const ReplyHead&, std::span<const std::byte>) { return true; });
  EXPECT_TRUE(told.ok() && told->held && told->sequence == 0);
  executor_->await_applied(client.place, 2, std::chrono::hours(1));
  std::array<std::byte, 8> reply{};
  std::vector<std::byte> whole;
  EXPECT_EQ(
      (*executor_->query(client.place, client.id, 2, kNote, {}, {reply, whole}, kNoTime))->code(),
      ErrorCode::Busy);
  EXPECT_TRUE(
      (*executor_->query(client.place, client.id, 0, kNote, {}, {reply, whole}, kNoTime))->ok());
  EXPECT_EQ(executor_->remove_client("client0").code(), ErrorCode::Busy);  // nor does it expire
  clock_.advance(std::chrono::hours(1));
  EXPECT_EQ(executor_->silent_for(std::chrono::hours(1)), std::vector<std::string>{"client1"});
  // What an operator may not decide.
  for (const auto decide : {&Executor::retry, &Executor::drop}) {
    EXPECT_EQ((executor_.get()->*decide)("client0", 2).code(), ErrorCode::InvalidArgument);
    EXPECT_EQ((executor_.get()->*decide)("client1", 2).code(), ErrorCode::InvalidArgument);
    EXPECT_EQ((executor_.get()->*decide)("nobody", 1).code(), ErrorCode::NotFound);
  }
  ASSERT_TRUE(executor_->drop("client0", 1).ok());
  EXPECT_EQ(executor_->drop("client0", 1).code(), ErrorCode::InvalidArgument);  // once
  EXPECT_EQ(executor_->retry("client0", 1).code(), ErrorCode::InvalidArgument);
  execute_all();
  EXPECT_EQ(thrown_, 3);
  EXPECT_EQ(journal_of(client), (std::vector<std::uint64_t>{2}));
  EXPECT_EQ(statuses_of(client), (std::vector<std::uint32_t>{kDroppedStatus, 0}));
  EXPECT_EQ(executor_->status().dropped, 1u);
  EXPECT_EQ(executor_->status().clients[0].dropped, 1u);
  EXPECT_FALSE(executor_->status().clients[0].held);
}

// A call that its client made visible and no more fails, or the server dies of it; and the power
// fails. Expect: what is noted of it is not held against another call.
TEST_F(ExecutorTest, WhatIsNotedOfACallSurvivesOnlyWithTheCall) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    make(PersistenceDomain::Dmp, seed);
    TestClient& client = clients_[0];
    write_call(client, kThrow, 200);
    if (seed % 3 == 0) {
      executor_->pool().note_executing(Executing{client.place, 1});
      ASSERT_TRUE(open().ok());
    } else if (seed % 3 == 1) {
      ASSERT_TRUE(executor_->process().ok());
    } else {
      execute_all();
    }
    EXPECT_EQ(executor_->status().clients[0].held, seed % 3 == 2);
    region_->power_cut(random_);
    executor_.reset();
    region_->power_on();
    ASSERT_TRUE(open().ok());
    const auto welcome = executor_->welcome(client.place, client.id);
    ASSERT_TRUE(welcome.ok());
    const RpcClientPlace place = executor_->status().clients[0];
    EXPECT_EQ(welcome->durable == 1, place.held || place.attempts != 0);
    EXPECT_EQ(welcome->durable, 1u);  // it failed once at least
  }
}

TEST_F(ExecutorTest, ACallThatIsRetriedIsExecutedInItsPlace) {
  make(PersistenceDomain::Dmp, 1);
  TestClient& client = clients_[0];
  call(client, kThrow);
  call(client);
  execute_all();
  ASSERT_EQ(thrown_, 3);
  ASSERT_TRUE(executor_->retry("client0", 1).ok());
  execute_all();
  EXPECT_EQ(thrown_, 6);  // as if for the first time, and set aside again
  EXPECT_EQ(executor_->status().clients[0].set_aside, 2u);
  repaired_ = true;
  ASSERT_TRUE(executor_->retry("client0", 1).ok());
  execute_all();
  EXPECT_EQ(thrown_, 7);
  EXPECT_EQ(journal_of(client), (std::vector<std::uint64_t>{1, 2}));
  EXPECT_EQ(statuses_of(client), (std::vector<std::uint32_t>{0, 0}));
}

// The suspect of the last server's death is set aside. Expect: calls share transactions again,
// though there is always one to execute.
TEST_F(ExecutorTest, ASuspectThatIsSetAsideHoldsNobodyUp) {
  make(PersistenceDomain::Page, 1);
  call(clients_[0]);
  for (int attempt = 0; attempt < 3; ++attempt) {
    executor_->pool().note_executing(Executing{clients_[0].place, 1});
    ASSERT_TRUE(open().ok());
  }
  for (int count = 0; count < 8; ++count) call(clients_[1]);
  std::size_t most = 0;
  for (int round = 0; round < 4; ++round) most = std::max(most, *executor_->process());
  EXPECT_GE(most, 6u);
  EXPECT_TRUE(executor_->status().clients[0].held);
  EXPECT_EQ(journal_of(clients_[1]).size(), 8u);
}

// A server that refuses such calls, on the pool of one that did not.
TEST_F(ExecutorTest, ACallThatWasSetAsideIsRefusedByAServerThatRefuses) {
  make(PersistenceDomain::Dmp, 1);
  call(clients_[0], kThrow);
  call(clients_[0]);
  execute_all();
  refuse_failed_ = true;
  ASSERT_TRUE(open().ok());
  execute_all();
  EXPECT_EQ(thrown_, 3);
  EXPECT_EQ(statuses_of(clients_[0]), (std::vector<std::uint32_t>{kDroppedStatus, 0}));
  EXPECT_EQ(executor_->status().clients[0].set_aside, 1u);
}

// Expect: a decision that was reported holds, one that was not is made or not; and either way the
// calls are executed once, or the one that was dropped never.
TEST_F(ExecutorTest, ADecisionIsDurableWhereverThePowerFails) {
  int reported = 0;
  int lost = 0;  // not reported, and not made
  for (const auto domain :
       {PersistenceDomain::Dmp, PersistenceDomain::Page, PersistenceDomain::Wsp}) {
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", to_string(domain), seed));
      repaired_ = false;
      make(domain, seed);
      TestClient& client = clients_[0];
      call(client, kThrow);
      call(client);
      execute_all();
      ASSERT_TRUE(executor_->status().clients[0].held);
      repaired_ = true;  // a retry succeeds
      thrown_ = 0;
      const bool drops = random_.below(2) == 0;
      const auto decide = [&] {
        return drops ? executor_->drop("client0", 1) : executor_->retry("client0", 1);
      };
      cut_in_ = random_.below(2) == 0 ? 1 : 0;  // in its flush, or behind it
      if (random_.below(2) == 0) region_->drain_some(random_);
      const bool made = decide().ok();
      cut_in_ = 0;
      executor_.reset();
      if (region_->powered()) region_->power_cut(random_);
      region_->power_on();
      ASSERT_TRUE(open().ok());
      const bool held = executor_->status().clients[0].held;
      ASSERT_FALSE(made && held) << "a decision that was reported is gone";
      reported += made ? 1 : 0;
      lost += held ? 1 : 0;
      if (held) {
        ASSERT_TRUE(decide().ok());
      }
      execute_all();
      EXPECT_EQ(thrown_, drops ? 0 : 1);
      EXPECT_EQ(journal_of(client),
                drops ? (std::vector<std::uint64_t>{2}) : (std::vector<std::uint64_t>{1, 2}));
      EXPECT_EQ(statuses_of(client)[0], drops ? kDroppedStatus : 0u);
    }
  }
  EXPECT_GT(reported, 40);
  EXPECT_GT(lost, 10);
}

TEST_F(ExecutorTest, AWelcomeSaysWhatIsDurableAndWhatIsApplied) {
  make(PersistenceDomain::Dmp, 1);
  TestClient& client = clients_[0];
  call(client);
  ASSERT_TRUE(executor_->process().ok());
  call(client);
  call(client, kNote, 500);
  const auto welcome = executor_->welcome(client.place, 0);
  ASSERT_TRUE(welcome.ok());
  EXPECT_EQ(welcome->applied, 1u);
  EXPECT_EQ(welcome->position, entry_bytes(16));
  EXPECT_EQ(welcome->durable, 3u);
  EXPECT_EQ(welcome->end, client.end);
  EXPECT_EQ(executor_->status().clients[0].waiting, 2u);
}

TEST_F(ExecutorTest, AClientThatExpiredIsNoOther) {
  make(PersistenceDomain::Dmp, 1);
  const TestClient old = clients_[0];
  call(clients_[0]);
  EXPECT_EQ(executor_->remove_client("client0").code(), ErrorCode::Busy);  // it has a call
  ASSERT_TRUE(executor_->process().ok());
  ASSERT_TRUE(executor_->remove_client("client0").ok());
  EXPECT_EQ(executor_->remove_client("client0").code(), ErrorCode::NotFound);
  clients_.clear();
  add("client0");
  EXPECT_EQ(clients_[0].place, old.place);
  EXPECT_NE(clients_[0].id, old.id);
  EXPECT_EQ(executor_->welcome(old.place, old.id).code(), ErrorCode::NotFound);
  // What the old one has left in the ring is no call of the new one.
  EXPECT_EQ(*executor_->process(), 0u);
  EXPECT_EQ(executor_->welcome(old.place, clients_[0].id)->durable, 0u);
  add("client2");
  EXPECT_EQ(
      executor_->add_client("client3", [](std::size_t place) { return Result<std::size_t>(place); })
          .code(),
      ErrorCode::NoSpace);
}

TEST_F(ExecutorTest, AQueryWaitsForTheCallsThatItIsToSee) {
  make(PersistenceDomain::Dmp, 1);
  TestClient& client = clients_[0];
  call(client);
  std::array<std::byte, 8> reply{};
  std::vector<std::byte> whole;
  EXPECT_FALSE(*executor_->query(client.place, client.id, 1, kNote, {}, {reply, whole}, kNoTime));
  ASSERT_TRUE(executor_->process().ok());
  const auto answered =
      executor_->query(client.place, client.id, 1, kNote, {}, {reply, whole}, kNoTime);
  ASSERT_TRUE(answered.ok() && *answered && (*answered)->ok());
  EXPECT_EQ(load<std::uint64_t>(reply.data()), 1u);
  EXPECT_EQ(
      (*executor_->query(client.place, client.id, 1, 77, {}, {reply, whole}, kNoTime))->code(),
      ErrorCode::Unsupported);
  EXPECT_EQ(
      executor_->query(client.place, client.id + 1, 1, kNote, {}, {reply, whole}, kNoTime).code(),
      ErrorCode::NotFound);
}

TEST_F(ExecutorTest, AMediumThatRefusesEndsExecution) {
  make(PersistenceDomain::Dmp, 1);
  TestClient& client = clients_[0];
  call(client);
  region_->refuse_flushes(ErrorCode::SystemError, 1, random_);
  EXPECT_EQ(executor_->process().code(), ErrorCode::SystemError);
  EXPECT_TRUE(journal_of(client).empty());
  EXPECT_EQ(executor_->process().code(), ErrorCode::SystemError);  // it is not trusted again
  EXPECT_TRUE(executor_->status().failure);
  EXPECT_EQ(executor_->welcome(client.place, client.id)->applied, 0u);
}

}  // namespace
}  // namespace perdure::rpc
