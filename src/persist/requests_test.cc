// Requests are handled once, in their turn, and answered when what they did is durable; whatever
// else arrives in their place is refused and changes nothing, at either end.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "core/bytes.h"
#include "core/random.h"
#include "fabric/emu/world.h"
#include "persist/atomics.h"
#include "persist/requester.h"
#include "persist/responder.h"
#include "persist/wire.h"
#include "plan/plan.h"

namespace perdure::persist {
namespace {

std::vector<std::byte> request_of(const RequestHeader& header, std::span<const std::byte> payload) {
  std::vector<std::byte> bytes(kRequestHeaderBytes + payload.size());
  std::copy(payload.begin(), payload.end(), bytes.begin() + kRequestHeaderBytes);
  encode_request(header, bytes.data());
  return bytes;
}

RequestHeader request_header(std::uint64_t sequence, std::size_t payload_bytes) {
  RequestHeader header;
  header.message = static_cast<std::uint8_t>(MessageKind::Atomic);
  header.sequence = sequence;
  header.payload_bytes = static_cast<std::uint32_t>(payload_bytes);
  header.session = 7;
  header.reply_bytes = kAtomicBytes;
  return header;
}

std::vector<std::byte> request_of(const Atomic& atomic, std::uint64_t sequence = 1) {
  return request_of(request_header(sequence, kAtomicPayloadBytes), encode_atomic(atomic));
}

template <typename Decode>
void expect_every_flip_is_seen(const std::vector<std::byte>& bytes, Decode decode) {
  ASSERT_TRUE(decode(bytes).ok());
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    auto flipped = bytes;
    flipped[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_FALSE(decode(flipped).ok()) << "bit " << bit;
  }
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode(std::vector(bytes.begin(), bytes.begin() + static_cast<long>(length))).ok())
        << "length " << length;
  }
}

TEST(RequestWire, ReadsBackAndAnyFlippedBitOrMissingByteIsSeen) {
  const auto request = request_of(Atomic{AtomicOperation::FetchAdd, 64, 3, 0}, 5);
  EXPECT_EQ(decode_request(request)->sequence, 5u);
  EXPECT_EQ(decode_request(request)->reply_bytes, kAtomicBytes);
  expect_every_flip_is_seen(request, [](const auto& bytes) { return decode_request(bytes); });

  std::vector<std::byte> reply(kReplyHeaderBytes + 8, std::byte{9});
  ReplyHeader header;
  header.ack = {0, 6, 7, 8};
  header.message = 1;
  header.payload_bytes = 8;
  encode_reply(header, reply.data());
  EXPECT_EQ(decode_reply(reply)->ack.sequence, 6u);
  EXPECT_EQ(decode_reply(reply)->ack.written, 8u);
  expect_every_flip_is_seen(reply, [](const auto& bytes) { return decode_reply(bytes); });
  header.ack.status = 3;
  encode_reply(header, reply.data());
  EXPECT_FALSE(decode_reply(reply).ok()) << "a refusal with a payload";
}

// What recovery reads from a persistent receive buffer is an update or nothing; and so a responder
// of a version without requests refuses one.
TEST(RequestWire, IsNoUpdateAndNoAcknowledgement) {
  const auto request = request_of(Atomic{AtomicOperation::Store, 0, 1, 0});
  EXPECT_EQ(decode_message(request).code(), ErrorCode::ProtocolError);
  std::vector<std::byte> reply(kReplyHeaderBytes);
  encode_reply({{0, 1, 7, 0}, 1, 0}, reply.data());
  EXPECT_EQ(decode_ack(reply).code(), ErrorCode::ProtocolError);
}

/// Does nothing, and answers with what it was sent.
class Echo final : public RequestHandler {
 public:
  bool writes() const override { return false; }
  Result<std::size_t> handle(Request& request) override {
    ++handled;
    if (request.payload().size() > request.reply().size()) {
      return Error{ErrorCode::NoSpace, "no room"};
    }
    std::copy(request.payload().begin(), request.payload().end(), request.reply().begin());
    return request.payload().size();
  }
  int handled = 0;
};
constexpr std::uint8_t kEcho = 9;

/// A connection whose send queue can be full.
class StuckEndpoint final : public fabric::Endpoint {
 public:
  explicit StuckEndpoint(std::unique_ptr<fabric::Endpoint> inner) : inner_(std::move(inner)) {}
  Result<std::size_t> post(std::span<const fabric::WorkRequest> requests) override {
    if (room == 0) return std::size_t{0};
    if (before_post) before_post();
    room -= std::min(room, requests.size());
    return inner_->post(requests);
  }
  Result<void> post_receive(const fabric::Segment& buffer, std::uint64_t context) override {
    return inner_->post_receive(buffer, context);
  }
  std::size_t poll(std::span<fabric::Completion> completions) override {
    return inner_->poll(completions);
  }
  bool arm() override { return inner_->arm(); }
  int wait_fd() const override { return inner_->wait_fd(); }
  bool connected() const override { return inner_->connected(); }
  void disconnect() override { inner_->disconnect(); }
  const fabric::Limits& limits() const override { return inner_->limits(); }
  Transport transport() const override { return inner_->transport(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }

  std::size_t room = SIZE_MAX;  // for so many requests
  std::function<void()> before_post;

 private:
  std::unique_ptr<fabric::Endpoint> inner_;
};

constexpr std::uint64_t kPool = 8192;
constexpr ReceiveQueue kQueueSizes{32, 1024};
constexpr ReceiveQueue kDeep{1024, 1024};

/// Two machines, a responder with a pool on one of them, and the other's end of its connection.
class Requests : public ::testing::Test {
 protected:
  void SetUp() override { open(true); }

  void open(bool may_write, ReceiveBuffers buffers = ReceiveBuffers::Dram) {
    requester_.reset();
    responder_.reset();
    profile_.domain = PersistenceDomain::Dmp;
    profile_.ddio = Ddio::Off;
    profile_.transport = Transport::InfiniBand;
    profile_.write_order = WriteOrder::Ordered;
    profile_.receive_buffers = buffers;
    profile_.capabilities.native_flush = true;
    server_ = &world_.add_machine("server", profile_);
    client_ = &world_.add_machine("client", profile_);
    region_ = &server_->add_region(kPool + 64 * 1024);
    auto ends = world_.connect(*client_, *server_);
    near_ = std::move(ends.first);
    far_ = std::make_unique<StuckEndpoint>(std::move(ends.second));
    options_ = {};
    options_.exported = {0, kPool};
    options_.queue = queue_;
    options_.session = 7;
    options_.may_write = may_write;
    options_.handlers[kEcho] = &echo_;
    if (buffers == ReceiveBuffers::Pm) {
      options_.persistent_buffers = {kPool, kQueueSizes.persistent_bytes()};
    }
    pool_ =
        *server_->register_memory(region_->bytes().first(kPool), fabric::Access::RemoteReadWrite);
    auto responder = Responder::open(*far_, *server_, *region_, options_);
    ASSERT_TRUE(responder.ok()) << responder.error().message;
    responder_ = std::move(*responder);
    bytes_memory_ = *client_->register_memory(bytes_, fabric::Access::Local);
  }

  void connect(Primary primary = Primary::Send) {
    Requester::Options options;
    options.remote = {pool_->key(), pool_->base(), kPool};
    options.queue = queue_;
    options.session = 7;
    options.updates_max = 16;
    options.request_bytes_max = 64;
    options.reply_bytes_max = 32;
    plan::Update update;
    update.shape = singleton();
    update.primary = primary;
    const auto method = plan::plan(profile_, update);
    ASSERT_TRUE(method.ok()) << method.error().message;
    ASSERT_FALSE(replays(*method));
    auto requester = Requester::open(*near_, *client_, profile_, {*method}, options);
    ASSERT_TRUE(requester.ok()) << requester.error().message;
    requester_ = std::move(*requester);
  }

  /// Sends bytes as a message, bare, and lets the responder handle it.
  Result<std::size_t> deliver(const std::vector<std::byte>& bytes) {
    std::copy(bytes.begin(), bytes.end(), bytes_.begin());
    fabric::WorkRequest request;
    request.segments[0] = {bytes_.data(), bytes.size(), bytes_memory_.get()};
    request.segment_count = 1;
    EXPECT_TRUE(near_->post_receive({bytes_.data() + 1024, 512, bytes_memory_.get()}, 1).ok());
    EXPECT_TRUE(near_->post({&request, 1}).ok());
    world_.settle();
    auto handled = responder_->pump();
    world_.settle();
    return handled;
  }
  std::span<const std::byte> answer() const { return std::span(bytes_).subspan(1024, 512); }

  Result<std::uint64_t> begin(const Atomic& atomic, std::uint64_t& before) {
    return requester_->begin_request(MessageKind::Atomic, encode_atomic(atomic),
                                     std::as_writable_bytes(std::span(&before, 1)));
  }
  /// Until everything has resolved, or something is wrong.
  Result<void> resolve() {
    Result<void> polled;
    for (int round = 0; round < 20'000; ++round) {
      (void)responder_->pump();
      polled = requester_->poll();
      if (!polled.ok() || requester_->resolved() == requester_->begun()) break;
    }
    return polled;
  }
  std::uint64_t word(std::uint64_t at) const {
    return load<std::uint64_t>(region_->bytes().data() + at);
  }

  Random random_{11};
  fabric::emu::World world_{random_};
  ReceiveQueue queue_ = kQueueSizes;
  ServerProfile profile_;
  Echo echo_;
  Responder::Options options_;
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  std::unique_ptr<fabric::Memory> pool_;
  std::array<std::byte, 4096> bytes_{};
  std::unique_ptr<fabric::Memory> bytes_memory_;
  std::unique_ptr<fabric::Endpoint> near_;
  std::unique_ptr<StuckEndpoint> far_;
  std::unique_ptr<Responder> responder_;
  std::unique_ptr<Requester> requester_;
};

// Of a pool, or of another build's daemon: deeper than the endpoints of this process. Expect: what
// finds no buffer waits, at both ends.
TEST_F(Requests, AQueueMayBeDeeperThanItsConnection) {
  ASSERT_LT(near_->limits().receive_depth, kDeep.depth);
  queue_ = kDeep;
  open(true);
  connect();
  for (std::uint64_t update = 0; update < 3 * kDeep.depth; ++update) {
    const UpdateItem item{8 * (update % 512), {bytes_.data(), 8, bytes_memory_.get()}};
    auto begun = requester_->begin(0, std::span(&item, 1));
    if (!begun.ok() && begun.code() == ErrorCode::QueueFull) {
      ASSERT_TRUE(resolve().ok());
      begun = requester_->begin(0, std::span(&item, 1));
    }
    ASSERT_TRUE(begun.ok()) << begun.error().message;
  }
  ASSERT_TRUE(resolve().ok());
  EXPECT_EQ(requester_->resolved(), requester_->begun());
}

TEST_F(Requests, AnAtomicIsDoneOnceAndDurableBeforeItsReply) {
  ASSERT_TRUE(deliver(request_of(Atomic{AtomicOperation::FetchAdd, 64, 3, 0})).ok());
  EXPECT_EQ(word(64), 3u);
  EXPECT_TRUE(region_->is_durable({64, 8}));
  const auto reply = decode_reply(answer());
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->ack.status, 0);
  EXPECT_EQ(reply->ack.sequence, 1u);
  EXPECT_EQ(load<std::uint64_t>(answer().data() + kReplyHeaderBytes), 0u);
  EXPECT_EQ(responder_->counters().acks, 1u);
  // The same message again: refused, not executed.
  EXPECT_EQ(deliver(request_of(Atomic{AtomicOperation::FetchAdd, 64, 3, 0})).code(),
            ErrorCode::ProtocolError);
  EXPECT_EQ(word(64), 3u);
}

TEST_F(Requests, EachAtomicBringsWhatTheWordWasBefore) {
  connect();
  std::array<std::uint64_t, 6> before{};
  before.fill(99);
  const std::vector<Atomic> all = {
      {AtomicOperation::Store, 128, 5, 0},        {AtomicOperation::FetchAdd, 128, 7, 0},
      {AtomicOperation::CompareSwap, 128, 1, 5},  {AtomicOperation::CompareSwap, 128, 20, 12},
      {AtomicOperation::FetchAdd, 128, ~0ull, 0}, {AtomicOperation::Store, 128, 1, 0}};
  for (std::size_t each = 0; each < all.size(); ++each) {
    ASSERT_TRUE(begin(all[each], before[each]).ok());
  }
  const auto resolved = resolve();
  ASSERT_TRUE(resolved.ok()) << resolved.error().message;
  EXPECT_EQ(before, (std::array<std::uint64_t, 6>{0, 5, 12, 12, 20, 19}));
  EXPECT_EQ(word(128), 1u);
  EXPECT_TRUE(region_->is_durable({128, 8}));
}

// A power failure right behind the reply, or the flush that never came: the negative control.
TEST_F(Requests, ARefusedFlushIsNeverReplied) {
  connect();
  std::uint64_t before = 99;
  region_->refuse_flushes(ErrorCode::SystemError, 1, random_);
  ASSERT_TRUE(begin({AtomicOperation::FetchAdd, 0, 1, 0}, before).ok());
  const auto resolved = resolve();
  EXPECT_EQ(resolved.code(), ErrorCode::SystemError);
  EXPECT_EQ(requester_->resolved(), 0u);
  EXPECT_EQ(before, 99u);
}

TEST_F(Requests, IsHandledBehindTheUpdatesBeforeItAndAheadOfThoseAfterIt) {
  connect();
  for (std::uint64_t round = 0; round < 50; ++round) {
    const std::uint64_t at = 8 * random_.below(100);
    store<std::uint64_t>(bytes_.data(), 1000 * round);
    store<std::uint64_t>(bytes_.data() + 8, 1000 * round + 500);
    std::uint64_t before = 0;
    const UpdateItem older{at, {bytes_.data(), 8, bytes_memory_.get()}};
    const UpdateItem newer{at, {bytes_.data() + 8, 8, bytes_memory_.get()}};
    ASSERT_TRUE(requester_->begin(0, {&older, 1}).ok());
    ASSERT_TRUE(begin({AtomicOperation::FetchAdd, at, 1, 0}, before).ok());
    ASSERT_TRUE(requester_->begin(0, {&newer, 1}).ok());
    ASSERT_TRUE(resolve().ok());
    EXPECT_EQ(before, 1000 * round);
    EXPECT_EQ(word(at), 1000 * round + 500);
  }
}

TEST_F(Requests, WhatIsRefusedIsCountedChangesNothingAndTheSessionGoesOn) {
  connect();
  std::uint64_t before = 99;
  const std::vector<std::pair<Atomic, ErrorCode>> bad = {
      {{AtomicOperation::Store, kPool, 1, 0}, ErrorCode::OutOfRange},
      {{AtomicOperation::Store, kPool - 4, 1, 0}, ErrorCode::InvalidArgument},
      {{AtomicOperation::Store, UINT64_MAX - 7, 1, 0}, ErrorCode::OutOfRange},
      {{AtomicOperation::Store, 12, 1, 0}, ErrorCode::InvalidArgument},
      {{AtomicOperation::Store, 8, 1, 1}, ErrorCode::InvalidArgument},
      {{static_cast<AtomicOperation>(4), 8, 1, 0}, ErrorCode::InvalidArgument},
  };
  for (std::size_t each = 0; each < bad.size(); ++each) {
    const auto number = begin(bad[each].first, before);
    ASSERT_TRUE(number.ok() && resolve().ok()) << each;
    EXPECT_EQ(requester_->reply(*number).refused, bad[each].second) << each;
    EXPECT_EQ(before, 99u) << each;
  }
  const auto unknown =
      requester_->begin_request(static_cast<MessageKind>(200), {}, std::span<std::byte>());
  ASSERT_TRUE(unknown.ok() && resolve().ok());
  EXPECT_EQ(requester_->reply(*unknown).refused, ErrorCode::Unsupported);
  EXPECT_EQ(responder_->counters().refused, bad.size() + 1);
  const auto zero = [](std::byte byte) { return byte == std::byte{0}; };
  const auto pool = region_->bytes().first(kPool);
  EXPECT_TRUE(std::all_of(pool.begin(), pool.end(), zero));
  ASSERT_TRUE(begin({AtomicOperation::Store, 8, 1, 0}, before).ok() && resolve().ok());
  EXPECT_EQ(word(8), 1u);
}

TEST_F(Requests, ASessionThatMayOnlyReadIsRefusedWhatWrites) {
  open(false);
  connect();
  std::uint64_t before = 0;
  const auto number = begin({AtomicOperation::Store, 8, 1, 0}, before);
  ASSERT_TRUE(number.ok() && resolve().ok());
  EXPECT_EQ(requester_->reply(*number).refused, ErrorCode::PermissionDenied);
  EXPECT_EQ(word(8), 0u);
  const auto echoed = requester_->begin_request(static_cast<MessageKind>(kEcho), {}, {});
  ASSERT_TRUE(echoed.ok() && resolve().ok());
  EXPECT_FALSE(requester_->reply(*echoed).refused);
}

// More requests than there is room for replies, none of which the RNIC has sent yet. Expect: they
// wait in their receive buffers, in order, with all that came after them.
TEST_F(Requests, ThatFindNoRoomForTheirReplyWaitInTheirTurn) {
  connect();
  std::array<std::array<std::byte, 24>, 16> replies{};
  std::array<std::byte, 24> payload{};
  for (std::uint64_t round = 0; round < 40; ++round) {
    for (std::size_t each = 0; each < replies.size(); ++each) {
      store<std::uint64_t>(payload.data(), 100 * round + each);
      const auto number =
          requester_->begin_request(static_cast<MessageKind>(kEcho), payload, replies[each]);
      ASSERT_TRUE(number.ok()) << number.error().message;
    }
    if (round % 2 == 0) world_.settle();  // all arrive before any is handled
    const auto resolved = resolve();
    ASSERT_TRUE(resolved.ok()) << resolved.error().message;
    for (std::size_t each = 0; each < replies.size(); ++each) {
      ASSERT_EQ(load<std::uint64_t>(replies[each].data()), 100 * round + each);
    }
  }
  EXPECT_EQ(echo_.handled, 640);
}

// The responder's send queue takes one reply, then nothing for long. Expect: the requester waits
// for the others, and no acknowledgement of what came behind them passes them.
TEST_F(Requests, NoAcknowledgementPassesAReply) {
  connect();
  std::array<std::uint64_t, 4> before{};
  for (std::uint64_t& each : before) {
    ASSERT_TRUE(begin({AtomicOperation::FetchAdd, 0, 1, 0}, each).ok());
  }
  const UpdateItem item{64, {bytes_.data(), 8, bytes_memory_.get()}};
  ASSERT_TRUE(requester_->begin(0, {&item, 1}).ok());
  world_.settle();
  far_->room = 1;
  for (int round = 0; round < 500; ++round) {
    ASSERT_TRUE(responder_->pump().ok());
    const auto polled = requester_->poll();
    ASSERT_TRUE(polled.ok()) << polled.error().message;
  }
  EXPECT_EQ(word(0), 4u);
  EXPECT_EQ(requester_->resolved(), 1u);
  far_->room = SIZE_MAX;
  ASSERT_TRUE(resolve().ok());
  EXPECT_EQ(requester_->resolved(), 5u);
  EXPECT_EQ(before, (std::array<std::uint64_t, 4>{0, 1, 2, 3}));
}

/// A requester that posts without minding the credit it has.
TEST_F(Requests, AFloodIsHandledOnceEachAndTakesNoMoreRoom) {
  std::vector<std::vector<std::byte>> messages;
  std::vector<std::byte> landing(64 * 64);
  const auto landed = *client_->register_memory(landing, fabric::Access::Local);
  for (std::uint64_t sequence = 1; sequence <= 30; ++sequence) {
    messages.push_back(request_of(Atomic{AtomicOperation::FetchAdd, 0, 1, 0}, sequence));
    ASSERT_TRUE(near_->post_receive({landing.data() + sequence * 64, 64, landed.get()}, 1).ok());
  }
  std::vector<std::unique_ptr<fabric::Memory>> kept;
  for (auto& message : messages) {
    kept.push_back(*client_->register_memory(message, fabric::Access::Local));
    fabric::WorkRequest request;
    request.segments[0] = {message.data(), message.size(), kept.back().get()};
    request.segment_count = 1;
    ASSERT_TRUE(near_->post({&request, 1}).ok());
  }
  // Handle without letting the RNIC say that a reply is sent, as long as there is anything.
  for (int round = 0; round < 10'000; ++round) {
    const auto handled = responder_->pump();
    ASSERT_TRUE(handled.ok()) << handled.error().message;
    (void)world_.step();
  }
  EXPECT_EQ(word(0), 30u);
  EXPECT_EQ(responder_->counters().messages, 30u);
  for (std::uint64_t sequence = 1; sequence <= 30; ++sequence) {
    const auto bytes = std::span(landing).subspan(sequence * 64, 64);
    ASSERT_EQ(decode_reply(bytes)->ack.sequence, sequence);
    ASSERT_EQ(load<std::uint64_t>(bytes.data() + kReplyHeaderBytes), sequence - 1);
  }
  near_->disconnect();
}

// A responder that lies. Expect: a protocol error, and nothing has resolved.
TEST_F(Requests, ARequesterTakesNoOtherAnswerForAReply) {
  struct Lie {
    const char* what;
    std::uint8_t message;
    std::uint64_t sequence;
    std::uint32_t session;
    std::uint32_t payload_bytes;
    std::uint8_t status;
  };
  const std::vector<Lie> lies = {
      {"none", 1, 1, 7, 8, 0},
      {"of another kind", 2, 1, 7, 8, 0},
      {"to another message", 1, 2, 7, 8, 0},
      {"to an earlier one", 1, 0, 7, 8, 0},
      {"of another session", 1, 1, 8, 8, 0},
      {"longer than was asked for", 1, 1, 7, 9, 0},
      {"with an unknown status", 1, 1, 7, 0, 255},
  };
  for (const Lie& lie : lies) {
    SCOPED_TRACE(lie.what);
    open(true);
    connect();
    std::uint64_t before = 99;
    ASSERT_TRUE(begin({AtomicOperation::Store, 8, 1, 0}, before).ok());
    world_.settle();
    std::vector<std::byte> reply(64);
    encode_reply({{lie.status, lie.sequence, lie.session, 0}, lie.message, lie.payload_bytes},
                 reply.data());
    const auto memory = *server_->register_memory(reply, fabric::Access::Local);
    fabric::WorkRequest request;
    request.segments[0] = {reply.data(), reply.size(), memory.get()};
    request.segment_count = 1;
    ASSERT_TRUE(far_->post({&request, 1}).ok());
    Result<void> polled;
    for (int round = 0; round < 1000 && polled.ok(); ++round) polled = requester_->poll();
    const bool truth = &lie == &lies.front();
    EXPECT_EQ(polled.ok(), truth);
    EXPECT_EQ(requester_->resolved(), truth ? 1u : 0u);
    if (!truth) {
      EXPECT_EQ(polled.code(), ErrorCode::ProtocolError);
    }
    near_->disconnect();
  }
}

TEST_F(Requests, AnAcknowledgementIsNoReply) {
  connect();
  std::uint64_t before = 99;
  ASSERT_TRUE(begin({AtomicOperation::Store, 8, 1, 0}, before).ok());
  world_.settle();
  std::vector<std::byte> ack(kAckBytes);
  encode_ack({0, 1, 7, 0}, ack.data());
  const auto memory = *server_->register_memory(ack, fabric::Access::Local);
  fabric::WorkRequest request;
  request.segments[0] = {ack.data(), ack.size(), memory.get()};
  request.segment_count = 1;
  ASSERT_TRUE(far_->post({&request, 1}).ok());
  Result<void> polled;
  for (int round = 0; round < 1000 && polled.ok(); ++round) polled = requester_->poll();
  EXPECT_EQ(polled.code(), ErrorCode::ProtocolError);
  EXPECT_EQ(requester_->resolved(), 0u);
  near_->disconnect();
}

// Recovery stops at a request. So before anybody can count on its reply, it has nothing more to do
// with it.
TEST_F(Requests, ThereIsNothingToReplayAtOrBeforeARequestWhenItsReplyLeaves) {
  open(true, ReceiveBuffers::Pm);
  const std::uint64_t mark_at = options_.persistent_buffers.at;
  int replies = 0;
  far_->before_post = [&] {
    ++replies;
    EXPECT_EQ(decode_watermark(word(mark_at)).applied, 1u);
    EXPECT_TRUE(region_->is_durable({mark_at, 8}));
  };
  ASSERT_TRUE(deliver(request_of(Atomic{AtomicOperation::FetchAdd, 64, 3, 0})).ok());
  EXPECT_EQ(replies, 1);
  far_->before_post = nullptr;
}

// In persistent receive buffers: an update, an atomic that nobody has handled, another update.
// Expect: recovery applies the first and never executes the atomic, however often.
TEST_F(Requests, RecoveryExecutesNone) {
  open(true, ReceiveBuffers::Pm);
  const auto area = options_.persistent_buffers;
  const auto put = [&](std::size_t slot, const std::vector<std::byte>& bytes) {
    std::copy(
        bytes.begin(), bytes.end(),
        region_->bytes().begin() + static_cast<long>(area.at + kWatermarkBytes + slot * 1024));
  };
  const auto update = [](std::uint64_t sequence, std::uint64_t at) {
    MessageHeader header;
    header.entries = 1;
    header.flags = kReplayable | kPayloadCrc;
    header.sequence = sequence;
    header.payload_bytes = 8;
    header.session = 7;
    std::vector<std::byte> bytes(header.bytes() + 8, std::byte{0x11});
    put_entry(bytes.data(), 0, {at, 8, kCopy | kFlush});
    const std::span<const std::byte> payload = std::span(bytes).subspan(header.bytes());
    encode_message(header, {&payload, 1}, bytes.data());
    return bytes;
  };
  put(0, update(1, 0));
  put(1, request_of(Atomic{AtomicOperation::FetchAdd, 64, 3, 0}, 2));
  put(2, update(3, 128));
  for (int again = 0; again < 3; ++again) {
    const auto replayed = replay_messages(*region_, {0, kPool}, area, kQueueSizes);
    ASSERT_TRUE(replayed.ok());
    EXPECT_EQ(*replayed, again == 0 ? 1u : 0u);
  }
  EXPECT_EQ(word(0), 0x1111111111111111u);
  EXPECT_EQ(word(64), 0u);
  EXPECT_EQ(word(128), 0u);
}

}  // namespace
}  // namespace perdure::persist
