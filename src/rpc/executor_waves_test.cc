// Calls that are executed at the same time: what their handlers see, in which order they are, and
// what power failures leave of them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "core/bytes.h"
#include "core/clock.h"
#include "core/random.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"
#include "rpc/executor.h"
#include "rpc/handler_threads.h"

namespace perdure::rpc {
namespace {

constexpr std::uint32_t kBook = 1;       // in the journal of its key
constexpr std::uint32_t kMeet = 2;       // waits until as many handlers are there as are to meet
constexpr std::uint32_t kLoud = 3;       // throws
constexpr std::uint32_t kBulky = 4;      // books, and writes half of a transaction
constexpr std::uint32_t kToTheBrim = 5;  // writes all that a transaction takes
constexpr std::uint64_t kKeys = 3;       // and 0: goes beside nothing
constexpr std::size_t kCallers = 5;
constexpr std::uint64_t kWavesRing = 8192;
constexpr std::uint64_t kJournalBytes = 32768;
constexpr std::uint64_t kBulkAt = (kKeys + 1) * kJournalBytes;  // of each key

struct Booking {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;
};

PoolShape waves_shape() {
  PoolShape shape;
  shape.clients = kCallers;
  shape.ring_bytes = kWavesRing;
  shape.window_bytes = pmem::kPoolDataOffset + kRingAt + kWavesRing;
  shape.replies = 8;
  shape.reply_bytes_max = 32;
  shape.transaction_bytes = 16384;
  shape.data_bytes = kBulkAt + (kKeys + 1) * 8192 + 64 * kCallers;
  return shape;
}
constexpr std::uint64_t kLastAt = kBulkAt + (kKeys + 1) * 8192;  // by client: its last sequence

struct Booker {
  std::size_t place = 0;
  std::uint64_t id = 0;
  std::uint64_t sequence = 0;
  std::uint64_t durable = 0;
  std::uint64_t applied = 0;
  std::uint64_t end = 0;
  std::uint64_t freed = 0;
};

class ExecutorWaves : public testing::Test {
 protected:
  void make(PersistenceDomain domain, std::uint64_t seed, std::size_t threads) {
    executor_.reset();
    random_ = Random(seed);
    threads_ = threads;
    cut_in_ = 0;
    region_ = *pmem::CrashableRegion::open(
        {.bytes = pmem::kPoolDataOffset + waves_shape().bytes(), .domain = domain});
    region_->watch_flushes([this](std::uint64_t) {
      if (cut_in_ != 0 && --cut_in_ == 0) region_->power_cut(random_);
    });
    ASSERT_TRUE(pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), {}).ok());
    ASSERT_TRUE(open().ok());
    for (std::size_t index = 0; index < kCallers; ++index) {
      const auto added = executor_->add_client(
          fmt::format("booker{}", index), [](std::size_t at) { return Result<std::size_t>(at); });
      ASSERT_TRUE(added.ok()) << added.error().message;
      bookers_[index] = {};
      bookers_[index].place = *added;
      bookers_[index].id = executor_->welcome(*added, 0)->client;
    }
  }

  Result<void> open() {
    executor_.reset();
    PERDURE_TRY(attached, pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_)));
    PERDURE_TRY(pool, RpcPool::open(std::move(attached), waves_shape()));
    ExecutorOptions options;
    options.threads = threads_;
    options.clock = &clock_;
    options.handlers[kBook] = [this](const RpcCall& call, RpcTransaction& data,
                                     std::span<std::byte> reply) {
      return book(call, data, reply);
    };
    options.handlers[kBulky] = [this](const RpcCall& call, RpcTransaction& data,
                                      std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY_VOID(data.write(kBulkAt + call.order_key * 8192, std::vector<std::byte>(8000)));
      return book(call, data, reply);
    };
    options.handlers[kToTheBrim] = [this](const RpcCall&, RpcTransaction& data,
                                          std::span<std::byte> reply) -> Result<std::size_t> {
      ++executed_;
      // The largest that is taken: what is too large fails the whole call.
      PERDURE_TRY_VOID(data.write(kBulkAt, std::vector<std::byte>(brim_)));
      store(reply.data(), brim_);
      return sizeof brim_;
    };
    options.handlers[kMeet] = [this](const RpcCall& call, RpcTransaction& data,
                                     std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY_VOID(meet());
      return book(call, data, reply);
    };
    options.handlers[kLoud] = [](const RpcCall&, RpcTransaction& data,
                                 std::span<std::byte>) -> Result<std::size_t> {
      (void)data.store(kJournalBytes, UINT64_MAX);
      throw std::runtime_error("loud");
    };
    PERDURE_TRY(executor, Executor::open(std::move(pool), std::move(options)));
    executor_ = std::move(executor);
    return {};
  }

  /// Into the journal of its key. Nobody else may be at it meanwhile, and it is the next call of
  /// its client.
  Result<std::size_t> book(const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply) {
    ++executed_;
    const int others = inside_.fetch_add(1);
    const int same_key = by_key_[call.order_key].fetch_add(1);
    if (same_key != 0 || (call.order_key == 0 && others != 0)) ++collisions_;
    if (call.order_key != 0 && by_key_[0].load() != 0) ++collisions_;
    const auto booked = book_in(call, data, reply);
    --by_key_[call.order_key];
    --inside_;
    return booked;
  }
  static Result<std::size_t> book_in(const RpcCall& call, RpcTransaction& data,
                                     std::span<std::byte> reply) {
    const std::uint64_t journal = call.order_key * kJournalBytes;
    const std::uint64_t last_at = kLastAt + 64 * std::uint64_t(call.client.back() - '0');
    PERDURE_TRY(last, data.load<std::uint64_t>(last_at));
    if (last + 1 != call.sequence) return Error{ErrorCode::Corrupt, "out of order"};
    PERDURE_TRY(count, data.load<std::uint64_t>(journal));
    PERDURE_TRY_VOID(
        data.store(journal + 8 + count * sizeof(Booking), Booking{call.client_id, call.sequence}));
    PERDURE_TRY_VOID(data.store(journal, count + 1));
    PERDURE_TRY_VOID(data.store(last_at, call.sequence));
    store(reply.data(), call.sequence);
    return sizeof call.sequence;
  }

  /// Until `to_meet_` handlers are there at the same time. Errors: TimedOut.
  Result<void> meet() {
    std::unique_lock lock(meeting_);
    ++there_;
    arrived_.notify_all();
    const bool met =
        arrived_.wait_for(lock, std::chrono::seconds(20), [&] { return there_ >= to_meet_; });
    if (met) return {};
    return Error{ErrorCode::TimedOut, "nobody came"};
  }

  bool call(Booker& client, std::uint64_t key, std::uint32_t operation = kBook) {
    constexpr std::size_t kBytes = 16;
    const std::uint64_t at = place_entry(client.end, entry_bytes(kBytes), kWavesRing);
    if (at + entry_bytes(kBytes) - client.freed > kWavesRing) return false;
    if (client.sequence - client.applied >= waves_shape().replies) return false;
    Entry entry;
    entry.client = client.id;
    entry.sequence = client.sequence + 1;
    entry.position = at;
    entry.order_key = key;
    entry.operation = operation;
    entry.payload_bytes = kBytes;
    const std::uint64_t place =
        pmem::kPoolDataOffset + waves_shape().ring_at(client.place) + at % kWavesRing;
    encode_entry(entry, std::vector<std::byte>(kBytes), region_->bytes().data() + place);
    client.end = at + entry_bytes(kBytes);
    ++client.sequence;
    if (region_->flush(place, entry_bytes(kBytes)).ok()) client.durable = client.sequence;
    return true;
  }

  void execute_all() {
    for (int round = 0; round < 1000; ++round) {
      const auto done = executor_->process();
      ASSERT_TRUE(done.ok()) << done.error().message;
      if (*done == 0) return;
    }
    FAIL() << "it goes on and on";
  }

  void collect(Booker& client) {
    const auto applied =
        executor_->collect(client.place, client.id, client.applied + 1,
                           [&](const ReplyHead& head, std::span<const std::byte> bytes) {
                             EXPECT_EQ(head.status, 0u) << "call " << head.sequence;
                             EXPECT_EQ(load<std::uint64_t>(bytes.data()), head.sequence);
                             return true;
                           });
    ASSERT_TRUE(applied.ok());
    client.applied = applied->sequence;
    client.freed = applied->position;
  }

  std::uint64_t word(std::uint64_t at) const {
    return load<std::uint64_t>(region_->bytes().data() + pmem::kPoolDataOffset +
                               waves_shape().data_at() + at);
  }

  /// All journals together have each call of a client once, and its calls in each in order.
  void judge() {
    for (const Booker& each : bookers_) {
      std::vector<std::uint64_t> all;
      for (std::uint64_t key = 0; key <= kKeys; ++key) {
        std::uint64_t last = 0;
        for (std::uint64_t line = 0; line < word(key * kJournalBytes); ++line) {
          const std::uint64_t at = key * kJournalBytes + 8 + line * sizeof(Booking);
          if (word(at) != each.id) continue;
          ASSERT_GT(word(at + 8), last) << "out of order";
          last = word(at + 8);
          all.push_back(last);
        }
      }
      std::sort(all.begin(), all.end());
      for (std::size_t index = 0; index < all.size(); ++index) {
        ASSERT_EQ(all[index], index + 1) << "a call was lost, or executed twice";
      }
      ASSERT_GE(all.size(), each.durable) << "a durable call was not executed";
    }
  }

  Random random_{1};
  std::unique_ptr<pmem::CrashableRegion> region_;
  const ManualClock clock_;
  std::unique_ptr<Executor> executor_;
  std::array<Booker, kCallers> bookers_;
  std::size_t threads_ = 1;
  std::uint64_t cut_in_ = 0;
  std::atomic<int> inside_{0};
  std::array<std::atomic<int>, kKeys + 1> by_key_{};
  std::atomic<int> collisions_{0};
  std::atomic<std::uint64_t> executed_{0};
  std::mutex meeting_;
  std::condition_variable arrived_;
  int there_ = 0;
  std::uint64_t brim_ = 0;
  int to_meet_ = 0;
};

TEST(HandlerThreads, EachPieceIsDoneOnceAndWhatItStoresIsSeen) {
  HandlerThreads threads(3);
  std::vector<int> done(100);
  for (int round = 1; round <= 200; ++round) {
    const std::size_t count = static_cast<std::size_t>(round) % done.size();
    threads.run(count, [&](std::size_t piece) { done[piece] = round; });
    for (std::size_t piece = 0; piece < count; ++piece) ASSERT_EQ(done[piece], round);
  }
}

// Expect: handlers of other keys are there at the same time, or nobody would come.
TEST_F(ExecutorWaves, CallsOfOtherKeysAreExecutedAtTheSameTime) {
  make(PersistenceDomain::Wsp, 1, 3);
  ASSERT_FALSE(HasFatalFailure());
  to_meet_ = 3;
  for (std::uint64_t key = 1; key <= 3; ++key) ASSERT_TRUE(call(bookers_[key], key, kMeet));
  execute_all();
  for (Booker& each : bookers_) collect(each);
  EXPECT_EQ(there_, 3);
  EXPECT_EQ(executor_->status().transactions, 1u + kCallers);  // clients were added in others
  judge();
}

// Wherever the power fails: each once, a client's in order, those of a key one after the other, and
// nothing beside one without a key.
TEST_F(ExecutorWaves, EachDurableCallIsExecutedOnceWhereverThePowerFails) {
  constexpr std::array kDomains = {PersistenceDomain::Dmp, PersistenceDomain::Mhp,
                                   PersistenceDomain::Page};
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    make(kDomains[seed % kDomains.size()], seed, 2 + seed % 3);
    ASSERT_FALSE(HasFatalFailure());
    for (int life = 0; life < 4; ++life) {
      cut_in_ = 1 + random_.below(60);
      for (int step = 0; step < 40 && region_->powered(); ++step) {
        Booker& booker = bookers_[random_.below(kCallers)];
        for (std::uint64_t more = random_.below(6); more != 0 && region_->powered(); --more) {
          (void)call(booker, random_.below(kKeys + 1), random_.below(6) == 0 ? kBulky : kBook);
        }
        if (random_.below(3) == 0) (void)executor_->process();
        if (region_->powered()) collect(booker);
      }
      cut_in_ = random_.below(2) == 0 ? 0 : 1 + random_.below(10);
      if (region_->powered()) region_->power_cut(random_);
      region_->power_on();
      while (!open().ok() || !region_->powered()) {
        cut_in_ = 0;
        if (region_->powered()) region_->power_cut(random_);
        region_->power_on();
      }
      cut_in_ = 0;
      execute_all();
      judge();
      ASSERT_FALSE(HasFatalFailure());
      for (Booker& each : bookers_) {
        collect(each);
        const auto welcome = executor_->welcome(each.place, each.id);
        each.sequence = each.durable = each.applied = welcome->applied;  // what was torn is none
        each.end = each.freed = welcome->position;
      }
    }
  }
  EXPECT_EQ(collisions_, 0);
  EXPECT_GT(executed_, 1000u);
}

// One of three throws: nothing of it is there, the others are not touched, and it is set aside.
TEST_F(ExecutorWaves, AHandlerThatThrowsBesideOthersIsSetAsideAlone) {
  make(PersistenceDomain::Dmp, 3, 3);
  ASSERT_FALSE(HasFatalFailure());
  ASSERT_TRUE(call(bookers_[0], 1, kLoud));
  ASSERT_TRUE(call(bookers_[1], 2));
  ASSERT_TRUE(call(bookers_[2], 3));
  execute_all();
  const RpcServerStatus status = executor_->status();
  EXPECT_EQ(status.applied, 2u);
  EXPECT_EQ(status.set_aside, 1u);
  EXPECT_TRUE(status.clients[0].held);
  EXPECT_EQ(status.clients[0].attempts, 3u);
  EXPECT_EQ(status.clients[1].attempts, 0u);
  EXPECT_EQ(word(kJournalBytes), 0u);
}

// Calls of one key wait for each other, and what does not fit in a transaction for the next one.
// Expect: what was hinted once is executed without a further hint, and no other ring is looked at.
TEST_F(ExecutorWaves, HintedCallsThatWaitForEachOtherNeedNoFurtherHint) {
  make(PersistenceDomain::Page, 6, 3);
  ASSERT_FALSE(HasFatalFailure());
  for (std::size_t index = 0; index < kCallers; ++index) ASSERT_TRUE(call(bookers_[index], 1));
  for (std::size_t index = 0; index < 2; ++index) {
    ASSERT_TRUE(call(bookers_[index], 1 + index, kBulky));
    ASSERT_TRUE(call(bookers_[index], 1 + index, kBulky));
    executor_->hint(bookers_[index].place);
  }
  std::size_t executed = 0;
  for (int round = 0; round < 8; ++round) executed += *executor_->process_hinted();
  EXPECT_EQ(executed, 6u);
  for (std::size_t index = 2; index < kCallers; ++index) {
    EXPECT_EQ(executor_->applied(bookers_[index].place), 0u);
  }
  execute_all();
  judge();
}

// What one of two calls writes is as much as a transaction takes, to the byte. Expect: wherever
// that ends, both are applied, and not executed again and again.
TEST_F(ExecutorWaves, ACallThatFillsATransactionIsTakenBesideOthers) {
  make(PersistenceDomain::Page, 7, 3);
  ASSERT_FALSE(HasFatalFailure());
  std::uint64_t applied = 0;
  for (brim_ = 15'900; brim_ <= 16'200; ++brim_) {
    SCOPED_TRACE(brim_);
    const std::uint64_t before = executed_;
    ASSERT_TRUE(call(bookers_[0], 1, kToTheBrim));
    ASSERT_TRUE(call(bookers_[1], 2, kToTheBrim));
    execute_all();
    for (std::size_t index = 0; index < 2; ++index) {
      ASSERT_EQ(executor_->applied(bookers_[index].place), bookers_[index].sequence);
      const auto collected =
          executor_->collect(bookers_[index].place, bookers_[index].id, bookers_[index].sequence,
                             [&](const ReplyHead& head, std::span<const std::byte>) {
                               applied += head.status == 0 ? 1 : 0;
                               return true;
                             });
      ASSERT_TRUE(collected.ok());
      bookers_[index].applied = collected->sequence;
      bookers_[index].freed = collected->position;
    }
    ASSERT_LE(executed_ - before, 4u);
  }
  EXPECT_GT(applied, 0u);
  EXPECT_LT(applied, 2u * 300u);  // the last ones are too large
}

// The server dies while three are executed. Expect: nobody is blamed, until it dies in one alone.
TEST_F(ExecutorWaves, WhoKilledTheServerIsFoundAmongThoseBesideIt) {
  make(PersistenceDomain::Page, 4, 3);
  ASSERT_FALSE(HasFatalFailure());
  for (std::size_t index = 0; index < 3; ++index) ASSERT_TRUE(call(bookers_[index], 1 + index));
  for (std::size_t index = 0; index < 3; ++index) {
    executor_->pool().note_executing(Executing{bookers_[index].place, 1}, index);
  }
  ASSERT_TRUE(open().ok());
  for (std::size_t index = 0; index < 3; ++index) {
    EXPECT_EQ(executor_->status().clients[index].attempts, 0u);
  }
  // Each is executed by itself now, and until it is known who it was, all rings are looked at.
  EXPECT_EQ(*executor_->process_hinted(), 1u);
  EXPECT_EQ(*executor_->process(), 1u);
  executor_->pool().note_executing(Executing{bookers_[2].place, 1});  // and it dies in the third
  ASSERT_TRUE(open().ok());
  EXPECT_EQ(executor_->status().clients[2].attempts, 1u);
  execute_all();
  judge();
}

}  // namespace
}  // namespace perdure::rpc
