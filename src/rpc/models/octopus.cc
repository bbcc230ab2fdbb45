// Octopus: a WRITE_WITH_IMM of the request, whose immediate says which slot of which node; the
// reply by a plain WRITE into the client's buffer.
//
//   client memory   a slot for the reply of each call of the window
//   server memory   a slot for the request of each, then what the receives of immediates name
#include "rpc/models/design.h"

namespace perdure::rpc::models {
namespace {

constexpr Step kOctopusSteps[]{
    {At::Client, Verb::WriteImm, "request; which slot, which node"},
    {At::Server, Verb::Receive, "a worker polls the completion queue"},
    {At::Server, std::nullopt, "runs the handler in place"},
    {At::Server, Verb::Write, "reply, into the client's buffer"},
    {At::Client, std::nullopt, "polls its buffer"},
};

constexpr std::string_view kOctopusSources[]{
    "Y. Lu, J. Shu, Y. Chen, T. Li: Octopus: an RDMA-enabled Distributed Persistent Memory File "
    "System. ATC 2017",
    "its sources, `thustorage/octopus`: the immediate is the buffer's offset and the node, the "
    "reply "
    "a plain WRITE (the published artifact of *durable RPC* answers by WRITE_WITH_IMM instead)",
    "*durable RPC*, figure 2(h)",
};

constexpr std::string_view kOctopusDepartures[]{
    "Octopus has one slot of 4 KiB for each client; here there is one for each call of the window, "
    "as large as the bench asks.",
    "The client knows the reply by its sequence and a checksum, not by a field of the message that "
    "changes.",
};

constexpr std::uint32_t kOctopusNode = 1;

struct OctopusLayout {
  explicit OctopusLayout(const EndOptions& options)
      : slots(frame_slots(0, options.window, options)) {}

  /// Which slot, and which node: 16 bits each.
  std::uint32_t immediate(std::uint64_t sequence) const {
    return static_cast<std::uint32_t>(slots.index(sequence)) << 16 | kOctopusNode;
  }

  Slots slots;  // replies in the client's memory, requests in the server's
};

class OctopusClient final : public Client {
 public:
  explicit OctopusClient(const EndOptions& options)
      : Client(options, OctopusLayout(options).slots.end()), layout_(options) {}

 private:
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    return write_imm(frame, layout_.slots.offset(sequence), layout_.immediate(sequence));
  }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    return find_frame(slot(layout_.slots, sequence), sequence);
  }

  const OctopusLayout layout_;
};

class OctopusServer final : public Server {
 public:
  OctopusServer(const EndOptions& options, Handler& handler)
      : Server(options, OctopusLayout(options).slots.end() + kCacheLineBytes, handler),
        layout_(options) {}

 private:
  Result<void> post_receives() override {
    for (std::uint64_t i = 1; i <= options().window; ++i) PERDURE_TRY_VOID(release_request(i));
    return {};
  }
  Result<void> received(const fabric::Completion& completion) override {
    ++arrived_;
    if (completion.has_immediate && completion.immediate == layout_.immediate(arrived_)) return {};
    return Error{ErrorCode::ProtocolError, "an immediate does not name the slot whose turn it is"};
  }
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    if (sequence > arrived_) return std::optional<Frame>{};
    std::optional<Frame> frame = find_frame(slot(layout_.slots, sequence), sequence);
    if (!frame) return Error{ErrorCode::ProtocolError, "an immediate came without its request"};
    return frame;
  }
  Result<void> release_request(std::uint64_t) override {
    return post_receive(layout_.slots.end(), kCacheLineBytes);
  }
  Result<void> post_reply(const Frame& request, const Source& frame) override {
    return write(frame, layout_.slots.offset(request.sequence));
  }

  const OctopusLayout layout_;
  std::uint64_t arrived_ = 0;
};

}  // namespace

const Design kOctopus{
    .name = "octopus",
    .title = "Octopus",
    .steps = kOctopusSteps,
    .sources = kOctopusSources,
    .departures = kOctopusDepartures,
    .make_client =
        [](const EndOptions& options) { return End::open<Client, OctopusClient>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, OctopusServer>(options, handler);
        },
};

}  // namespace perdure::rpc::models
