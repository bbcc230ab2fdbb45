// HERD: a WRITE of the request into the slot of (client, window), which the server polls; the reply
// by a datagram, here over a reliable connection.
//
//   client memory   receive buffers, one for each call of the window
//   server memory   a slot for the request of each
#include "rpc/models/design.h"
#include "rpc/models/two_sided.h"

namespace perdure::rpc::models {
namespace {

constexpr Step kHerdSteps[]{
    {At::Client, Verb::Write, "request (UC, inline)"},
    {At::Server, std::nullopt, "a worker scans slots, runs the handler"},
    {At::Server, Verb::Send, "reply (UD, with immediate)"},
    {At::Client, Verb::Receive, "a posted buffer holds it"},
};

constexpr std::string_view kHerdSources[]{
    "A. Kalia, M. Kaminsky, D. G. Andersen: Using RDMA Efficiently for Key-Value Services. SIGCOMM "
    "2014",
    "its sources, `efficient/rdma_bench`: slots by worker, client and window, an opcode byte "
    "polled, "
    "replies posted as a list of UD SENDs",
    "*durable RPC*, table 1, figure 2(c)",
};

constexpr std::string_view kHerdDepartures[]{
    "**Reliable stand-in**: the designs are compared over reliable connections only, so both verbs "
    "are those of one, and nothing is lost.",
    "Each reply is posted by itself, and signalled; HERD posts lists and has one in 64 signalled.",
    "The server knows a request by its sequence and a checksum, not by an opcode byte.",
};

class HerdClient final : public SendingClient {
 public:
  explicit HerdClient(const EndOptions& options)
      : SendingClient(options), requests_(frame_slots(0, options.window, options)) {}

 private:
  Result<void> post_request(std::uint64_t sequence, const Source& frame) override {
    return write(frame, requests_.offset(sequence));
  }

  const Slots requests_;  // in the server's memory
};

class HerdServer final : public Server {
 public:
  HerdServer(const EndOptions& options, Handler& handler)
      : Server(options, frame_slots(0, options.window, options).end(), handler),
        requests_(frame_slots(0, options.window, options)) {}

 private:
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    return find_frame(slot(requests_, sequence), sequence);
  }
  Result<void> post_reply(const Frame&, const Source& frame) override { return send(frame); }

  const Slots requests_;
};

}  // namespace

const Design kHerd{
    .name = "herd",
    .title = "HERD",
    .steps = kHerdSteps,
    .sources = kHerdSources,
    .departures = kHerdDepartures,
    .make_client = [](const EndOptions& options) { return End::open<Client, HerdClient>(options); },
    .make_server = [](const EndOptions& options,
                      Handler& handler) { return End::open<Server, HerdServer>(options, handler); },
};

}  // namespace perdure::rpc::models
