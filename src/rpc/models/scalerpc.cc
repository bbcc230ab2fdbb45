// ScaleRPC: in the warm-up phase the client WRITEs only where its request lies, and the server
// READs it; in the process phase it WRITEs requests as FaRM does. Replies by WRITE.
//
//   client memory   a slot for the reply of each call of the window; warm-up requests are READ out
//                   of its staging slots
//   server memory   a slot for the request of each, then where a READ puts one
//
// A warm-up call comes before each hundred others (durable RPC, section 5.1). Its message is a
// frame with a tag; payload: offset in the client's memory, length, 8 bytes each.
#include "rpc/models/design.h"

namespace perdure::rpc::models {
namespace {

constexpr std::uint32_t kScalerpcCycle = 1 + 100;
constexpr std::uint32_t kScalerpcWarmUpTag = 1;

constexpr Step kScalerpcSteps[]{
    {At::Client, Verb::Write, "warm-up: where the request lies", {1, kScalerpcCycle}},
    {At::Server, Verb::Read, "warm-up: the request", {1, kScalerpcCycle}},
    {At::Client, Verb::Write, "process: request", {kScalerpcCycle - 1, kScalerpcCycle}},
    {At::Server, std::nullopt, "polls its pool, runs the handler"},
    {At::Server, Verb::Write, "reply"},
    {At::Client, std::nullopt, "polls its buffer"},
};

constexpr std::string_view kScalerpcSources[]{
    "Y. Chen, Y. Lu, J. Shu: Scalable RDMA RPC on Reliable Connection with Efficient Resource "
    "Sharing. EuroSys 2019",
    "*durable RPC*, figure 2(g), section 5.1: one warm-up phase to 100 process phases",
};

constexpr std::string_view kScalerpcDepartures[]{
    "Table 1 of *durable RPC* has it under UC/UD; the title of its own paper says reliable "
    "connection, and so does this.",
    "What it is for, groups of connections that take turns with one pool, concerns many "
    "connections; here is one.",
    "Memory is registered once. The published artifact of *durable RPC* registers and deregisters "
    "a region at each warm-up, in the time that it measures: a confounder that can be switched on.",
    "Both ends know a message by its sequence and a checksum.",
};

bool scalerpc_is_warm_up(std::uint64_t sequence) { return sequence % kScalerpcCycle == 1; }

class ScalerpcClient final : public Client {
 public:
  explicit ScalerpcClient(const EndOptions& options)
      : Client(options, frame_slots(0, options.window, options).end()),
        slots_(frame_slots(0, options.window, options)) {}

 private:
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    if (!scalerpc_is_warm_up(sequence)) return write(frame, slots_.offset(sequence));
    if (options().confounders.registers_at_warm_up) {
      const std::span<std::byte> range = at(frame.offset, frame.length);
      PERDURE_TRY(registered,
                  options().device->register_memory(range, fabric::Access::RemoteReadWrite));
      PERDURE_TRY_VOID(registered->deregister());
    }
    Source where = word(sequence, 0);
    std::byte* message = at(where.offset, kCacheLineBytes).data();
    store(message + kFrameHeaderBytes, std::uint64_t{frame.offset});
    store(message + kFrameHeaderBytes + 8, std::uint64_t{frame.length});
    where.length = encode_frame(message, sequence, kScalerpcWarmUpTag, 16);
    return write(where, slots_.offset(sequence));
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    return find_frame(slot(slots_, sequence), sequence);
  }

  const Slots slots_;  // of replies here, of requests there
};

class ScalerpcServer final : public Server {
 public:
  ScalerpcServer(const EndOptions& options, Handler& handler)
      : Server(options, frame_slots(0, options.window + 1, options).end(), handler),
        slots_(frame_slots(0, options.window, options)),
        landing_(frame_slots(slots_.end(), 1, options)) {}

 private:
  enum class Fetch : std::uint8_t { None, Reading, Here };

  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    const std::optional<Frame> frame = find_frame(slot(slots_, sequence), sequence);
    if (!frame || frame->tag != kScalerpcWarmUpTag) return frame;
    if (fetch_ == Fetch::None) PERDURE_TRY_VOID(fetch(*frame));
    if (fetch_ == Fetch::Reading) return std::optional<Frame>{};
    std::optional<Frame> fetched = find_frame(slot(landing_, sequence), sequence);
    if (!fetched) return Error{ErrorCode::ProtocolError, "no request where a warm-up says it is"};
    return fetched;
  }
  Result<void> fetch(const Frame& warm_up) {
    if (warm_up.payload.size() == 16) {
      const auto from = load<std::uint64_t>(warm_up.payload.data());
      const auto length = load<std::uint64_t>(warm_up.payload.data() + 8);
      if (length <= landing_.stride && peer_has(from, length)) {
        fetch_ = Fetch::Reading;
        return read(landing_.at, from, length);
      }
    }
    return Error{ErrorCode::ProtocolError, "a warm-up names no request"};
  }
  void read_completed() override { fetch_ = Fetch::Here; }
  Result<void> release_request(std::uint64_t) override {
    fetch_ = Fetch::None;
    return {};
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    return write(frame, slots_.offset(request.sequence));
  }

  const Slots slots_;  // of requests here, of replies there
  const Slots landing_;
  Fetch fetch_ = Fetch::None;
};

}  // namespace

const Design kScalerpc{
    .name = "scalerpc",
    .title = "ScaleRPC",
    .steps = kScalerpcSteps,
    .sources = kScalerpcSources,
    .departures = kScalerpcDepartures,
    .make_client =
        [](const EndOptions& options) { return End::open<Client, ScalerpcClient>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, ScalerpcServer>(options, handler);
        },
};

}  // namespace perdure::rpc::models
