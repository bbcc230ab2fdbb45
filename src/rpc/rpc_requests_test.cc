// What a client may ask, torn, forged and asked again: each frame is answered or refused, within
// its room, and nothing of the pool changes by it.
#include "rpc/rpc_requests.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "core/try.h"
#include "pmem/crashable_region.h"
#include "pmem/lent_region.h"
#include "pmem/pool.h"
#include "pmem/pool_format.h"
#include "rpc/rpc_host.h"

namespace perdure::rpc {
namespace {

constexpr std::uint32_t kAsked = 1;
constexpr std::size_t kAnswerBytes = 500;
const std::function<void(std::size_t)> kNobody = [](std::size_t) {};

class RpcRequestsTest : public testing::Test {
 protected:
  RpcRequestsTest() {
    PoolShape& shape = shape_;
    shape.clients = 2;
    shape.ring_bytes = 4096;
    shape.window_bytes = pmem::kPoolDataOffset + kRingAt + shape.ring_bytes;
    shape.replies = 4;
    shape.reply_bytes_max = 256;
    shape.transaction_bytes = 16384;
    shape.data_bytes = 4096;
    region_ = *pmem::CrashableRegion::open(
        {.bytes = pmem::kPoolDataOffset + shape.bytes(), .domain = PersistenceDomain::Dmp});
    EXPECT_TRUE(pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), {}).ok());
    auto pool = pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region_));
    auto opened = RpcPool::open(std::move(*pool), shape);
    ExecutorOptions options;
    options.handlers[kAsked] = [](const RpcCall&, RpcTransaction& data,
                                  std::span<std::byte> reply) -> Result<std::size_t> {
      PERDURE_TRY_VOID(data.store(0, std::uint64_t{7}));
      std::fill_n(reply.begin(), 200, std::byte{7});
      return 200;
    };
    options.queries[kAsked] = [](std::span<const std::byte>, const RpcData&,
                                 std::span<std::byte> reply) -> Result<std::size_t> {
      std::fill_n(reply.begin(), kAnswerBytes, std::byte{9});
      return kAnswerBytes;
    };
    executor_ = std::move(*Executor::open(std::move(*opened), std::move(options)));
    EXPECT_TRUE(
        executor_->add_client("one", [](std::size_t at) { return Result<std::size_t>(at); }).ok());
    client_ = executor_->welcome(0, 0)->client;
    Entry entry;
    entry.client = client_;
    entry.sequence = 1;
    entry.operation = kAsked;
    encode_entry(entry, {}, region_->bytes().data() + pmem::kPoolDataOffset + shape.ring_at(0));
    EXPECT_EQ(*executor_->process(), 1u);
    requests_ = std::make_unique<ClientRequests>(*executor_, 0, ClientRequestOptions{}, kNobody);
    handlers_ = requests_->handlers();
  }

  Result<std::size_t> ask(persist::MessageKind kind, std::span<const std::byte> payload,
                          std::span<std::byte> reply) {
    persist::Request request(payload, reply, *region_, {}, pending_, false);
    return handlers_[static_cast<std::size_t>(kind)]->handle(request);
  }

  /// By a session that may touch the ring of the first client.
  Result<std::size_t> ask_in_pool(std::span<const std::byte> payload, std::span<std::byte> reply) {
    const pmem::Range exported{pmem::kPoolDataOffset + shape_.ring_at(0) - kRingAt,
                               kRingAt + shape_.ring_bytes};
    persist::Request request(payload, reply, *region_, exported, pending_, false);
    return handlers_[static_cast<std::size_t>(kCallKind)]->handle(request);
  }
  /// A call as it goes with the question for its reply: the second one of the client.
  std::vector<std::byte> call_frame(std::uint64_t client, std::uint64_t offset) const {
    std::vector<std::byte> bytes(kCallHeadBytes + kEntryAlignment);
    store(bytes.data(), client);
    store(bytes.data() + 8, std::uint64_t{2});
    store(bytes.data() + 16, offset);
    Entry entry;
    entry.client = client_;
    entry.sequence = 2;
    entry.position = kEntryAlignment;
    entry.operation = kAsked;
    encode_entry(entry, {}, bytes.data() + kCallHeadBytes);
    return bytes;
  }

  /// A frame of each kind as a client sends it.
  std::vector<std::byte> frame(persist::MessageKind kind) const {
    std::vector<std::byte> bytes(kind == kWelcomeKind   ? 8
                                 : kind == kCollectKind ? kCollectRequestBytes
                                 : kind == kQueryKind   ? kQueryHeadBytes
                                                        : kPieceRequestBytes);
    store(bytes.data(), client_);
    if (kind == kCollectKind || kind == kQueryKind) store(bytes.data() + 8, std::uint64_t{1});
    if (kind == kQueryKind) store(bytes.data() + 16, kAsked);
    if (kind == kPieceKind) {
      const auto piece = encode_piece_question({client_, 1, 0, PieceQuestion::Of::Reply});
      std::copy(piece.begin(), piece.end(), bytes.begin());
    }
    return bytes;
  }

  PoolShape shape_;
  std::unique_ptr<pmem::CrashableRegion> region_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ClientRequests> requests_;
  persist::RequestHandlers handlers_{};
  std::vector<pmem::Range> pending_;
  std::uint64_t client_ = 0;
};

constexpr std::array kAllKinds = {kWelcomeKind, kCollectKind, kQueryKind, kPieceKind};

// Its client has gone before it has the whole of it.
TEST_F(RpcRequestsTest, AnAnswerIsKeptNoLongerThanItsSession) {
  std::array<std::byte, kQueryReplyHeadBytes + 100> answer{};
  ASSERT_TRUE(ask(kQueryKind, frame(kQueryKind), answer).ok());
  const auto piece = encode_piece_question({client_, 1, 100, PieceQuestion::Of::Answer});
  std::array<std::byte, 100> more{};
  ASSERT_TRUE(ask(kPieceKind, piece, more).ok());
  requests_->forget_answer();
  EXPECT_EQ(ask(kPieceKind, piece, more).code(), ErrorCode::NotFound);
}

TEST_F(RpcRequestsTest, AFrameThatIsAskedAgainIsAnsweredAsBefore) {
  for (const persist::MessageKind kind : kAllKinds) {
    std::array<std::byte, 1024> first{};
    std::array<std::byte, 1024> second{};
    const auto once = ask(kind, frame(kind), first);
    const auto twice = ask(kind, frame(kind), second);
    ASSERT_TRUE(once.ok() && twice.ok()) << once.error().message;
    EXPECT_EQ(*once, *twice);
    // But for an answer's number, which only grows.
    const std::size_t from = kind == kQueryKind ? kQueryReplyHeadBytes : 0;
    EXPECT_TRUE(std::equal(first.begin() + static_cast<std::ptrdiff_t>(from), first.end(),
                           second.begin() + static_cast<std::ptrdiff_t>(from)));
  }
  EXPECT_EQ(executor_->status().applied, 1u);
}

TEST_F(RpcRequestsTest, ATornOrForgedFrameIsAnsweredOrRefusedAndChangesNothing) {
  constexpr std::uint64_t kSeed = 14;
  Random random(kSeed);
  const std::vector<std::byte> before(region_->bytes().begin(), region_->bytes().end());
  int answered = 0;
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    const persist::MessageKind kind = kAllKinds[random.below(kAllKinds.size())];
    std::vector<std::byte> bytes = frame(kind);
    if (random.below(2) == 0) bytes.resize(random.below(2 * bytes.size()));
    for (std::uint64_t flips = random.below(4); flips != 0 && !bytes.empty(); --flips) {
      bytes[random.below(bytes.size())] ^= static_cast<std::byte>(1U << random.below(8));
    }
    std::vector<std::byte> reply(random.below(300));
    const auto asked = ask(kind, bytes, reply);
    asked.ok() ? ++answered : ++refused;
    if (asked.ok()) {
      ASSERT_LE(*asked, reply.size()) << "seed " << kSeed << ", round " << round;
      continue;
    }
    const ErrorCode code = asked.code();
    ASSERT_TRUE(code == ErrorCode::ProtocolError || code == ErrorCode::NotFound)
        << asked.error().message << ", round " << round;
  }
  EXPECT_GT(answered, 1000);
  EXPECT_GT(refused, 1000);
  EXPECT_TRUE(pending_.empty());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), region_->bytes().begin()));
  EXPECT_EQ(executor_->status().applied, 1u);
}

// What a server says would have its client take memory without an end.
TEST_F(RpcRequestsTest, ACallIsDurableInItsPlaceBeforeItIsAnswered) {
  const std::vector<std::byte> frame = call_frame(client_, kEntryAlignment);
  std::array<std::byte, 1024> reply{};
  const auto answered = ask_in_pool(frame, reply);
  ASSERT_TRUE(answered.ok()) << answered.error().message;
  Collected collected;
  ASSERT_TRUE(decode_collected(std::span(reply).first(*answered), collected).ok());
  EXPECT_EQ(collected.applied.sequence, 1u);  // nobody has executed it yet
  const std::uint64_t at = pmem::kPoolDataOffset + shape_.ring_at(0) + kEntryAlignment;
  EXPECT_TRUE(std::equal(frame.begin() + kCallHeadBytes, frame.end(),
                         region_->bytes().begin() + static_cast<std::ptrdiff_t>(at)));
  EXPECT_TRUE(region_->is_durable({at, kEntryAlignment}));
  EXPECT_EQ(*executor_->process(), 1u);
  EXPECT_EQ(executor_->applied(0), 2u);
}

TEST_F(RpcRequestsTest, ACallThatHasNoPlaceIsRefusedAndWritesNothing) {
  const std::vector<std::byte> before(region_->bytes().begin(), region_->bytes().end());
  std::array<std::byte, 1024> reply{};
  EXPECT_EQ(ask_in_pool(call_frame(client_ + 1, kEntryAlignment), reply).code(),
            ErrorCode::NotFound);
  for (const std::uint64_t offset : {shape_.ring_bytes, std::uint64_t{32}, ~std::uint64_t{63}}) {
    EXPECT_EQ(ask_in_pool(call_frame(client_, offset), reply).code(), ErrorCode::ProtocolError);
  }
  std::vector<std::byte> frame = call_frame(client_, shape_.ring_bytes - kEntryAlignment);
  frame.resize(frame.size() + kEntryAlignment);  // beyond the ring's end
  EXPECT_EQ(ask_in_pool(frame, reply).code(), ErrorCode::ProtocolError);
  for (const std::size_t size : {std::size_t{0}, kCallHeadBytes, kCallHeadBytes + 60}) {
    frame = call_frame(client_, kEntryAlignment);
    frame.resize(size);
    EXPECT_EQ(ask_in_pool(frame, reply).code(), ErrorCode::ProtocolError);
  }
  EXPECT_EQ(ask_in_pool(call_frame(client_, kEntryAlignment), std::span(reply).first(8)).code(),
            ErrorCode::ProtocolError);
  EXPECT_EQ(ask(kCallKind, call_frame(client_, kEntryAlignment), reply).code(),
            ErrorCode::ProtocolError);  // by a session that may touch nothing
  EXPECT_TRUE(pending_.empty());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), region_->bytes().begin()));
  EXPECT_EQ(*executor_->process(), 0u);
}

TEST(RpcRequests, AWelcomeOfMoreThanThereCanBeIsRefused) {
  WelcomeReply reply;
  reply.welcome = {.client = 7, .applied = 10, .position = 640, .durable = 14, .end = 1280};
  reply.ring_bytes = 4096;
  reply.replies = 4;
  reply.reply_bytes_max = 64;
  const auto decoded = [](const WelcomeReply& said) {
    return decode_welcome(encode_welcome(said)).ok();
  };
  ASSERT_TRUE(decoded(reply));
  WelcomeReply more = reply;
  more.welcome.durable = 15;  // than may be in flight
  EXPECT_FALSE(decoded(more));
  more = reply;
  more.welcome.end = 640 + 4097;
  EXPECT_FALSE(decoded(more));
}

// Calls appear in a ring whose client has no session, so nobody hints at them. Expect: the host's
// thread finds them, each in its turn, with nobody asking for a reply.
TEST(RpcHostTest, CallsThatNoSessionHasSeenAreFoundByTheScan) {
  PoolShape shape;
  shape.clients = 2;
  shape.ring_bytes = 4096;
  shape.window_bytes = pmem::kPoolDataOffset + kRingAt + shape.ring_bytes;
  shape.replies = 4;
  shape.reply_bytes_max = 256;
  shape.transaction_bytes = 16384;
  shape.data_bytes = 4096;
  const auto region = std::move(*pmem::CrashableRegion::open(
      {.bytes = pmem::kPoolDataOffset + shape.bytes(), .domain = PersistenceDomain::Wsp}));
  ASSERT_TRUE(pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region), {}).ok());
  auto pool = pmem::Pool::attach(std::make_unique<pmem::LentRegion>(*region));
  RpcHostOptions options;
  options.executor.handlers[kAsked] = [](const RpcCall&, RpcTransaction&, std::span<std::byte>) {
    return Result<std::size_t>(0);
  };
  auto host = RpcHost::open(std::move(*pool), shape, std::move(options), {});
  ASSERT_TRUE(host.ok()) << host.error().message;
  Executor& executor = (*host)->executor();
  ASSERT_TRUE(
      executor.add_client("one", [](std::size_t at) { return Result<std::size_t>(at); }).ok());
  Entry entry;
  entry.client = executor.welcome(0, 0)->client;
  entry.operation = kAsked;
  std::vector<std::byte> bytes(entry_bytes(0));
  const Deadline until = Deadline::after(std::chrono::seconds(60));
  for (std::uint64_t call = 1; call <= 20; ++call) {
    entry.sequence = call;
    entry.position = (call - 1) * bytes.size();
    encode_entry(entry, {}, bytes.data());
    std::byte* const to =
        region->bytes().data() + pmem::kPoolDataOffset + shape.ring_at(0) + entry.position;
    std::copy(bytes.begin() + 8, bytes.end(), to + 8);
    std::atomic_ref(*reinterpret_cast<std::uint64_t*>(to))
        .store(load<std::uint64_t>(bytes.data()), std::memory_order_release);
    while (executor.applied(0) < call && !until.passed()) std::this_thread::yield();
    ASSERT_EQ(executor.applied(0), call) << "nobody has looked";
  }
}

}  // namespace
}  // namespace perdure::rpc
