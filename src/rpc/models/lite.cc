// LITE: RPC in the kernel. A WRITE_WITH_IMM of the request into a ring of (peer, port); a
// WRITE_WITH_IMM of the reply to the address that the request gives. Programs cross into the
// kernel.
//
//   client memory   a slot for the reply of each call of the window, then a word: how many requests
//                   the server has consumed, then what the receives of immediates name
//   server memory   ring of requests, then what the receives of immediates name
//
//   immediate of a request   bits 31-30 flags, 29-24 port, 23-0 offset in the ring
//   immediate of a reply     the semaphore to wake: here the slot
//   tag of a request         offset of the reply's place in the client's memory
#include "rpc/models/design.h"

#include <atomic>

namespace perdure::rpc::models {
namespace {

constexpr std::uint64_t kLiteHeadEvery = kRingSlots / 4;
constexpr std::uint32_t kLitePort = 1;

constexpr Step kLiteSteps[]{
    {At::Client, Verb::SystemCall, "into the kernel"},
    {At::Client, Verb::WriteImm, "request, reply's address; port, offset"},
    {At::Server, Verb::Receive, "the kernel's polling thread takes it"},
    {At::Server, Verb::SystemCall, "reply, wait for the next request"},
    {At::Server, std::nullopt, "runs the handler"},
    {At::Server, Verb::Write, "head of the ring", {1, kLiteHeadEvery}},
    {At::Server, Verb::WriteImm, "reply; which semaphore"},
    {At::Client, Verb::Receive, "the kernel wakes the caller"},
};

constexpr std::string_view kLiteSources[]{
    "S.-Y. Tsai, Y. Zhang: LITE Kernel RDMA Support for Datacenter Applications. SOSP 2017",
    "its sources, `WukLab/LITE`: a ring of 4 MiB for each peer and port, the layout of the "
    "immediate, the head acknowledged at each quarter of the ring",
    "*durable RPC*, table 1, figure 2(i)",
};

constexpr std::string_view kLiteDepartures[]{
    "It runs in the process. What crossing costs is a real system call that does nothing: one at "
    "the client, one at the server, whose call that replies and waits for the next request is one.",
    "By which verb the head is acknowledged is not established here; it is a WRITE.",
    "An entry of the ring takes a slot of the largest size.",
    "One connection has one completion queue; LITE's polling thread serves all.",
};

struct LiteLayout {
  explicit LiteLayout(const EndOptions& options)
      : ring(frame_slots(0, kRingSlots, options)),
        replies(frame_slots(0, options.window, options)) {}

  std::uint32_t immediate(std::uint64_t sequence) const {
    return kLitePort << 24 | static_cast<std::uint32_t>(ring.offset(sequence));
  }
  std::size_t head() const { return replies.end(); }
  std::size_t client_receives() const { return replies.end() + kCacheLineBytes; }
  std::size_t server_receives() const { return ring.end(); }

  Slots ring;     // in the server's memory
  Slots replies;  // in the client's
};
static_assert(kRingSlots * (kPayloadBytesMax + 2 * kCacheLineBytes) < 1 << 24);

class LiteClient final : public Client {
 public:
  explicit LiteClient(const EndOptions& options)
      : Client(options, LiteLayout(options).client_receives() + kCacheLineBytes),
        layout_(options) {}

 private:
  Result<void> post_receives() override {
    for (std::uint64_t i = 1; i <= options().window; ++i) PERDURE_TRY_VOID(release_reply(i));
    return {};
  }
  bool has_room(std::uint64_t sequence) override {
    auto& word = *reinterpret_cast<std::uint64_t*>(at(layout_.head(), kCacheLineBytes).data());
    const std::uint64_t head = std::atomic_ref(word).load(std::memory_order_acquire);
    return sequence - head <= kRingSlots;
  }
  std::uint32_t request_tag(std::uint64_t sequence) const override {
    return static_cast<std::uint32_t>(layout_.replies.offset(sequence));
  }
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    cross_into_kernel();
    return write_imm(frame, layout_.ring.offset(sequence), layout_.immediate(sequence));
  }
  Result<void> received(const fabric::Completion& completion) override {
    ++arrived_;
    if (completion.has_immediate && completion.immediate == layout_.replies.index(arrived_)) {
      return {};
    }
    return Error{ErrorCode::ProtocolError, "an immediate names a semaphore that nobody waits for"};
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    if (sequence > arrived_) return std::optional<Frame>{};
    std::optional<Frame> frame = find_frame(slot(layout_.replies, sequence), sequence);
    if (!frame) return Error{ErrorCode::ProtocolError, "an immediate came without its reply"};
    return frame;
  }
  Result<void> release_reply(std::uint64_t) override {
    return post_receive(layout_.client_receives(), kCacheLineBytes);
  }

  const LiteLayout layout_;
  std::uint64_t arrived_ = 0;
};

class LiteServer final : public Server {
 public:
  LiteServer(const EndOptions& options, Handler& handler)
      : Server(options, LiteLayout(options).server_receives() + kCacheLineBytes, handler),
        layout_(options) {}

 private:
  Result<void> post_receives() override {
    for (std::size_t i = 0; i < options().window; ++i) PERDURE_TRY_VOID(repost());
    return {};
  }
  Result<void> repost() { return post_receive(layout_.server_receives(), kCacheLineBytes); }
  Result<void> received(const fabric::Completion& completion) override {
    ++arrived_;
    if (completion.has_immediate && completion.immediate == layout_.immediate(arrived_)) return {};
    return Error{ErrorCode::ProtocolError, "an immediate does not name the ring's next entry"};
  }
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    if (sequence > arrived_) return std::optional<Frame>{};
    std::optional<Frame> frame = find_frame(slot(layout_.ring, sequence), sequence);
    if (!frame || !peer_has(frame->tag, layout_.replies.stride)) {
      return Error{ErrorCode::ProtocolError, "an immediate came without a request to answer"};
    }
    cross_into_kernel();
    return frame;
  }
  Result<void> release_request(std::uint64_t sequence) override {
    PERDURE_TRY_VOID(repost());
    if (sequence % kLiteHeadEvery != 0) return {};
    return write(word(sequence, sequence), layout_.head());
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    const auto semaphore = static_cast<std::uint32_t>(layout_.replies.index(request.sequence));
    return write_imm(frame, request.tag, semaphore);
  }

  const LiteLayout layout_;
  std::uint64_t arrived_ = 0;
};

}  // namespace

const Design kLite{
    .name = "lite",
    .title = "LITE",
    .steps = kLiteSteps,
    .sources = kLiteSources,
    .departures = kLiteDepartures,
    .make_client = [](const EndOptions& options) { return End::open<Client, LiteClient>(options); },
    .make_server = [](const EndOptions& options,
                      Handler& handler) { return End::open<Server, LiteServer>(options, handler); },
};

}  // namespace perdure::rpc::models
