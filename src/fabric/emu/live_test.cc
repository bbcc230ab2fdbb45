// The emulated fabric in real time: between threads, and between two processes.
#include "core/bytes.h"
#include "fabric/emu/live_device.h"
#include "fabric/emu/live_frame.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

namespace perdure::fabric::emu {
namespace {

constexpr Nanoseconds kPatience = std::chrono::seconds(20);
constexpr Capabilities kNativeFlush{.native_flush = true, .atomic_write = true};
constexpr std::size_t kRegionBytes = 1 << 20;

LiveOptions options_of(PersistenceDomain domain, Ddio ddio, std::uint64_t seed = 1,
                       Transport transport = Transport::InfiniBand) {
  return {.profile = {domain, ddio, ReceiveBuffers::Pm, transport, kNativeFlush}, .seed = seed};
}

bool all(std::span<const std::byte> bytes, int value) {
  return std::ranges::all_of(bytes,
                             [&](std::byte b) { return b == static_cast<std::byte>(value); });
}

/// Two devices of one process, connected; the server exports a region.
struct LivePair {
  explicit LivePair(const LiveOptions& options) : source(kRegionBytes) {
    server = std::move(*LiveDevice::open(options));
    client = std::move(*LiveDevice::open(options));
    region = std::move(
        *pmem::CrashableRegion::open({.bytes = kRegionBytes, .domain = options.profile.domain}));
    server->attach(*region);
    memory = std::move(*server->register_memory(region->bytes(), Access::RemoteReadWrite));
    local = std::move(*client->register_memory(source, Access::Local));
    remote = {memory->key(), memory->base(), kRegionBytes};
    connect();
  }
  ~LivePair() {
    end.reset();
    server_end.reset();
  }

  void connect() {
    listener = std::move(*server->listen("", {.send_depth = 8, .receive_depth = 4}));
    std::thread other([&] {
      auto incoming = listener->next(Deadline::after(kPatience));
      ASSERT_TRUE(incoming.ok());
      server_end = std::move(*(*incoming)->accept(Deadline::after(kPatience)));
    });
    auto connected = client->connect(listener->address(), {}, {.send_depth = 8, .receive_depth = 4},
                                     Deadline::after(kPatience));
    other.join();
    ASSERT_TRUE(connected.ok()) << connected.error().message;
    end = std::move(*connected);
  }

  WorkRequest request(Opcode opcode, std::uint64_t at, std::size_t length, int value = 1) {
    WorkRequest work;
    work.opcode = opcode;
    work.remote = remote;
    work.remote_offset = at;
    work.flush_length = length;
    if (opcode != Opcode::Flush) {
      std::memset(source.data() + used, value, length);
      work.segments[0] = {source.data() + used, length, local.get()};
      work.segment_count = 1;
      used += round_up(length, 64);
    }
    work.context = next_context++;
    return work;
  }
  void post(const WorkRequest& work) { ASSERT_EQ(*end->post({&work, 1}), 1u); }

  /// The next completion at this end, sleeping in between, if one comes.
  static std::optional<Completion> next(Endpoint& at) {
    const Deadline deadline = Deadline::after(kPatience);
    Completion completion;
    Endpoint* const waited[] = {&at};
    while (!deadline.passed()) {
      if (at.poll({&completion, 1}) == 1) return completion;
      wait_any(waited, std::chrono::milliseconds(500));
    }
    return std::nullopt;
  }

  static bool eventually(const std::function<bool()>& holds) {
    const Deadline deadline = Deadline::after(kPatience);
    while (!holds()) {
      if (deadline.passed()) return false;
      std::this_thread::yield();
    }
    return true;
  }

  std::vector<std::byte> source;
  std::unique_ptr<pmem::CrashableRegion> region;  // outlives the device
  std::unique_ptr<LiveDevice> server;
  std::unique_ptr<LiveDevice> client;
  std::unique_ptr<Memory> memory;
  std::unique_ptr<Memory> local;
  std::unique_ptr<Listener> listener;
  std::unique_ptr<Endpoint> end;
  std::unique_ptr<Endpoint> server_end;
  RemoteMemory remote;
  std::size_t used = 0;
  std::uint64_t next_context = 1;
};

TEST(EmuLive, WriteFlushAndReadBack) {
  for (Transport transport : {Transport::InfiniBand, Transport::Tcp}) {
    // Over tcp the processor stores, into its caches.
    const bool by_cpu = transport == Transport::Tcp;
    const auto domain = by_cpu ? PersistenceDomain::Mhp : PersistenceDomain::Dmp;
    LivePair pair(options_of(domain, Ddio::Off, 1, transport));
    pair.post(pair.request(Opcode::Write, 100, 5000, 7));
    pair.post(pair.request(Opcode::Flush, 100, 5000));
    const auto read = pair.request(Opcode::Read, 100, 5000, 0);
    pair.post(read);
    for (std::uint64_t context = 1; context <= 3; ++context) {
      const auto completion = pair.next(*pair.end);
      ASSERT_TRUE(completion.has_value());
      EXPECT_EQ(completion->context, context);
      EXPECT_FALSE(completion->error.has_value());
    }
    EXPECT_TRUE(all({read.segments[0].data, 5000}, 7));
    EXPECT_TRUE(pair.region->is_durable({100, 5000}));
  }
}

TEST(EmuLive, WithDdioOffAFlushedWriteSurvivesWithDdioOnItNeedNot) {
  for (Ddio ddio : {Ddio::Off, Ddio::On}) {
    int survived = 0;
    constexpr int kTries = 20;
    for (std::uint64_t seed = 1; seed <= kTries; ++seed) {
      LivePair pair(options_of(PersistenceDomain::Dmp, ddio, seed));
      pair.post(pair.request(Opcode::Write, 0, 3000, 7));
      pair.post(pair.request(Opcode::Flush, 0, 3000));
      ASSERT_TRUE(pair.next(*pair.end).has_value());
      ASSERT_TRUE(pair.next(*pair.end).has_value());
      pair.server->power_cut();
      pair.server->power_on();
      survived += all(pair.region->bytes().first(3000), 7) ? 1 : 0;
    }
    if (ddio == Ddio::Off) {
      EXPECT_EQ(survived, kTries);
    } else {
      EXPECT_LT(survived, kTries);
    }
  }
}

TEST(EmuLive, MessagesAreAnsweredByASleepingResponder) {
  LivePair pair(options_of(PersistenceDomain::Dmp, Ddio::On));
  constexpr std::size_t kMessages = 200;
  auto* const base = pair.region->bytes().data();
  std::thread responder([&] {
    const auto offer = [&](std::uint64_t buffer) {
      const Segment segment{base + buffer * 64, 64, pair.memory.get()};
      EXPECT_TRUE(pair.server_end->post_receive(segment, buffer).ok());
    };
    for (std::uint64_t buffer = 0; buffer < 4; ++buffer) offer(buffer);
    for (std::size_t answered = 0; answered < kMessages;) {
      const auto completion = pair.next(*pair.server_end);
      ASSERT_TRUE(completion.has_value());
      if (completion->opcode == Opcode::Send) {
        // Only now may the buffer that was answered from be written to again.
        offer(completion->context);
        ++answered;
        continue;
      }
      EXPECT_TRUE(pair.region->flush(completion->context * 64, 64).ok());
      WorkRequest answer;
      answer.segments[0] = {base + completion->context * 64, 64, pair.memory.get()};
      answer.segment_count = 1;
      answer.context = completion->context;
      ASSERT_EQ(*pair.server_end->post({&answer, 1}), 1u);
    }
  });
  std::byte* const answer = pair.source.data() + kRegionBytes - 64;
  for (std::size_t i = 0; i < kMessages; ++i) {
    ASSERT_TRUE(pair.end->post_receive({answer, 64, pair.local.get()}, 0).ok());
    auto message = pair.request(Opcode::Send, 0, 64, static_cast<int>(i % 251));
    message.signalled = false;
    pair.post(message);
    const auto completion = pair.next(*pair.end);
    ASSERT_TRUE(completion.has_value());
    ASSERT_EQ(completion->opcode, Opcode::Receive);
    EXPECT_TRUE(all({answer, 64}, static_cast<int>(i % 251)));
  }
  responder.join();
}

TEST(EmuLive, AnEmptyReceiveQueueHoldsMessagesBackAndAnswersFlow) {
  LivePair pair(options_of(PersistenceDomain::Mhp, Ddio::On));
  for (int i = 0; i < 3; ++i) pair.post(pair.request(Opcode::Send, 0, 10, i + 1));
  // The other way is open: the server's write completes although it holds back the client's.
  WorkRequest write;
  write.opcode = Opcode::Send;
  write.segments[0] = {pair.region->bytes().data(), 8, pair.memory.get()};
  write.segment_count = 1;
  ASSERT_TRUE(pair.end->post_receive({pair.source.data() + 4096, 64, pair.local.get()}, 9).ok());
  ASSERT_EQ(*pair.server_end->post({&write, 1}), 1u);
  EXPECT_EQ(pair.next(*pair.server_end)->opcode, Opcode::Send);
  EXPECT_EQ(pair.next(*pair.end)->context, 9u);

  for (std::size_t i = 0; i < 3; ++i) {
    std::byte* const buffer = pair.region->bytes().data() + 1024 + i * 64;
    ASSERT_TRUE(pair.server_end->post_receive({buffer, 64, pair.memory.get()}, i).ok());
    EXPECT_EQ(pair.next(*pair.server_end)->context, i);
    EXPECT_TRUE(all({buffer, 10}, static_cast<int>(i) + 1));
  }
}

TEST(EmuLive, RefusesWhatIsNotExportedAndTheConnectionIsDown) {
  LivePair pair(options_of(PersistenceDomain::Mhp, Ddio::On));
  auto work = pair.request(Opcode::Write, kRegionBytes - 32, 64, 7);
  pair.post(work);
  EXPECT_EQ(pair.next(*pair.end)->error, ErrorCode::OutOfRange);
  EXPECT_FALSE(pair.end->connected());
  EXPECT_TRUE(pair.eventually([&] {
    Completion completion;
    return pair.server_end->poll({&completion, 1}) == 0 && !pair.server_end->connected();
  }));
  EXPECT_EQ(pair.server->counters().refused, 1u);
  EXPECT_TRUE(all(pair.region->bytes(), 0));
}

TEST(EmuLive, APowerCutEndsEverythingAtBothEnds) {
  LivePair pair(options_of(PersistenceDomain::Dmp, Ddio::On));
  for (int i = 0; i < 3; ++i) pair.post(pair.request(Opcode::Send, 0, 10));
  pair.server->power_cut();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(pair.next(*pair.end)->error, ErrorCode::OutcomeUnknown);
  }
  EXPECT_FALSE(pair.end->connected());
  EXPECT_FALSE(pair.server_end->connected());
  const auto work = pair.request(Opcode::Write, 0, 8);
  EXPECT_EQ(pair.server_end->post({&work, 1}).code(), ErrorCode::Disconnected);
  EXPECT_EQ(pair.listener->next(Deadline::after(kPatience)).code(), ErrorCode::Disconnected);
  EXPECT_EQ(
      pair.client->connect(pair.listener->address(), {}, {}, Deadline::after(kPatience)).code(),
      ErrorCode::Disconnected);
  EXPECT_EQ(pair.region->flush(0, 64).code(), ErrorCode::SystemError);

  pair.server->power_on();
  pair.memory =
      std::move(*pair.server->register_memory(pair.region->bytes(), Access::RemoteReadWrite));
  pair.remote = {pair.memory->key(), pair.memory->base(), kRegionBytes};
  pair.connect();
  pair.post(pair.request(Opcode::Write, 0, 8, 7));
  EXPECT_FALSE(pair.next(*pair.end)->error.has_value());
}

TEST(EmuLive, ASleeperIsWokenWhenThePeerGoes) {
  LivePair pair(options_of(PersistenceDomain::Mhp, Ddio::On));
  std::atomic<bool> woken{false};
  std::thread sleeper([&] {
    Completion completion;
    Endpoint* const waited[] = {pair.server_end.get()};
    while (pair.server_end->connected()) {
      wait_any(waited, std::chrono::seconds(10));
      (void)pair.server_end->poll({&completion, 1});
    }
    woken = true;
  });
  pair.end->disconnect();
  sleeper.join();
  EXPECT_TRUE(woken);
}

TEST(EmuLive, ALargeWriteIsWholeAndALostOneIsTornOrWhole) {
  LivePair pair(options_of(PersistenceDomain::Mhp, Ddio::On));
  auto work = pair.request(Opcode::Write, 0, kRegionBytes / 2, 7);
  pair.post(work);
  EXPECT_FALSE(pair.next(*pair.end)->error.has_value());
  EXPECT_TRUE(
      pair.eventually([&] { return all(pair.region->bytes().first(kRegionBytes / 2), 7); }));
}

TEST(EmuLive, SessionsOnDevicesOfTheirOwnDoNotReachEachOthersMemory) {
  LivePair pair(options_of(PersistenceDomain::Mhp, Ddio::On));
  auto session = LiveDevice::open(options_of(PersistenceDomain::Mhp, Ddio::On, 5));
  ASSERT_TRUE(session.ok());
  std::unique_ptr<Endpoint> accepted;
  std::thread other([&] {
    auto incoming = pair.listener->next(Deadline::after(kPatience));
    accepted = std::move(*(*incoming)->accept_into(**session, Deadline::after(kPatience)));
  });
  const std::byte hello[] = {std::byte{42}};
  auto end = pair.client->connect(pair.listener->address(), hello, {}, Deadline::after(kPatience));
  other.join();
  ASSERT_TRUE(end.ok());
  // The key is good on the listener's device only.
  auto work = pair.request(Opcode::Write, 0, 8, 7);
  ASSERT_EQ(*(*end)->post({&work, 1}), 1u);
  EXPECT_EQ(pair.next(**end)->error, ErrorCode::OutOfRange);
  EXPECT_TRUE(all(pair.region->bytes(), 0));
  accepted.reset();
}

TEST(EmuLive, AddressesAreChecked) {
  auto device = std::move(*LiveDevice::open({}));
  const auto soon = [] { return Deadline::after(std::chrono::milliseconds(10)); };
  EXPECT_EQ(device->listen("127.0.0.1:1", {}).code(), ErrorCode::InvalidArgument);
  EXPECT_EQ(device->connect("@perdure-nobody", {}, {}, soon()).code(), ErrorCode::Disconnected);
  auto listener = device->listen("", {});
  ASSERT_TRUE(listener.ok());
  EXPECT_EQ(device->listen((*listener)->address(), {}).code(), ErrorCode::Busy);
  EXPECT_EQ((*listener)->next(soon()).code(), ErrorCode::TimedOut);
  EXPECT_EQ(device->connect((*listener)->address(), {}, {}, soon()).code(), ErrorCode::TimedOut);
}

TEST(EmuLive, BetweenTwoProcessesWhichIsKilled) {
  const std::string address = "@perdure-emu-test-" + std::to_string(::getpid());
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    auto device = std::move(*LiveDevice::open(options_of(PersistenceDomain::Mhp, Ddio::On)));
    std::vector<std::byte> bytes(4096);
    auto memory = std::move(*device->register_memory(bytes, Access::RemoteReadWrite));
    auto listener = device->listen(address, {});
    auto incoming = (*listener)->next(Deadline::after(kPatience));
    auto end = (*incoming)->accept(Deadline::after(kPatience));
    const std::uint64_t where[] = {memory->key(), memory->base()};
    std::memcpy(bytes.data(), where, sizeof where);
    WorkRequest work;
    work.segments[0] = {bytes.data(), sizeof where, memory.get()};
    work.segment_count = 1;
    (void)(*end)->post({&work, 1});
    while (bytes[100] == std::byte{0}) (void)LivePair::next(**end);
    ::_exit(0);
  }
  auto device = std::move(*LiveDevice::open(options_of(PersistenceDomain::Mhp, Ddio::On)));
  std::vector<std::byte> bytes(4096);
  auto memory = std::move(*device->register_memory(bytes, Access::Local));
  Result<std::unique_ptr<Endpoint>> end = Error{};
  const Deadline deadline = Deadline::after(kPatience);
  while (!end.ok() && !deadline.passed()) end = device->connect(address, {}, {}, deadline);
  ASSERT_TRUE(end.ok());
  ASSERT_TRUE((*end)->post_receive({bytes.data(), 64, memory.get()}, 1).ok());
  ASSERT_EQ(LivePair::next(**end)->context, 1u);
  std::uint64_t where[2];
  std::memcpy(where, bytes.data(), sizeof where);
  WorkRequest read;
  read.opcode = Opcode::Read;
  read.remote = {where[0], where[1], 4096};
  read.segments[0] = {bytes.data() + 64, 16, memory.get()};
  read.segment_count = 1;
  ASSERT_EQ(*(*end)->post({&read, 1}), 1u);
  EXPECT_FALSE(LivePair::next(**end)->error.has_value());
  EXPECT_EQ(load<std::uint64_t>(bytes.data() + 64), where[0]);

  // A message for which the child has no buffer; then the child dies.
  WorkRequest send;
  send.segments[0] = {bytes.data(), 8, memory.get()};
  send.segment_count = 1;
  ASSERT_EQ(*(*end)->post({&send, 1}), 1u);
  ASSERT_EQ(::kill(child, SIGKILL), 0);
  EXPECT_EQ(LivePair::next(**end)->error, ErrorCode::OutcomeUnknown);
  EXPECT_FALSE((*end)->connected());
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
}

TEST(EmuLiveFrame, NonsenseIsRefused) {
  FrameHeader good;
  good.kind = FrameKind::Operation;
  good.opcode = static_cast<std::uint8_t>(Opcode::Write);
  const std::function<void(FrameHeader&)> spoils[] = {
      [](FrameHeader& header) { header.magic ^= 1; },
      [](FrameHeader& header) { header.kind = static_cast<FrameKind>(9); },
      [](FrameHeader& header) { header.kind = static_cast<FrameKind>(0); },
      [](FrameHeader& header) { header.opcode = static_cast<std::uint8_t>(Opcode::Receive); },
      [](FrameHeader& header) { header.opcode = 200; },
      [](FrameHeader& header) { header.error = 100; },
      [](FrameHeader& header) { header.length = 5; },
      [](FrameHeader& header) { header.data = header.length = ~0ULL; },
  };
  for (const auto& spoil : spoils) {
    int ends[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    FrameHeader bad = good;
    spoil(bad);
    ASSERT_EQ(::write(ends[0], &good, sizeof good), static_cast<ssize_t>(sizeof good));
    ASSERT_EQ(::write(ends[0], &bad, sizeof bad), static_cast<ssize_t>(sizeof bad));
    FrameReader reader(ends[1]);
    EXPECT_TRUE(*reader.ready());
    (void)reader.take();
    EXPECT_EQ(reader.ready().code(), ErrorCode::ProtocolError);
    ::close(ends[0]);
    FrameReader ended(ends[1]);
    EXPECT_EQ(ended.ready().code(), ErrorCode::Disconnected);
    ::close(ends[1]);
  }
}

TEST(EmuLiveFrame, FramesSurviveAnySplitting) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
  FrameWriter writer(ends[0]);
  FrameReader reader(ends[1]);
  Random random(1);
  std::uint64_t next = 0;
  std::uint64_t sent = 0;
  constexpr std::uint64_t kFrames = 300;
  while (next < kFrames) {
    if (sent < kFrames) {
      Operation operation;
      operation.sequence = sent++;
      operation.opcode = Opcode::Write;
      operation.data.assign(random.below(10) == 0 ? random.below(400'000) : random.below(300),
                            static_cast<std::byte>(operation.sequence % 256));
      operation.length = operation.data.size();
      writer.push(frame_of(std::move(operation)));
    }
    ASSERT_TRUE(writer.flush().ok());
    while (random.chance(1, 2) && *reader.ready()) {
      const Operation operation = operation_of(reader.take());
      EXPECT_EQ(operation.sequence, next++);
      EXPECT_EQ(operation.length, operation.data.size());
      EXPECT_TRUE(all(operation.data, static_cast<int>(operation.sequence % 256)));
    }
  }
  EXPECT_EQ(writer.waiting_bytes(), 0u);
  ::close(ends[0]);
  ::close(ends[1]);
}

}  // namespace
}  // namespace perdure::fabric::emu
