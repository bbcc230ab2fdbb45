// FaSST: a datagram each way, here over a reliable connection.
//
//   client memory   receive buffers, one for each call of the window
//   server memory   the same
#include "rpc/models/design.h"
#include "rpc/models/two_sided.h"

namespace perdure::rpc::models {
namespace {

/// Of 4096 bytes, the MTU of a UD queue pair, FaSST leaves 64 to headers (`efficient/fasst`).
constexpr std::size_t kFasstPayloadBytesMax = 4032;

constexpr Step kFasstSteps[]{
    {At::Client, Verb::Send, "request (UD, with immediate)"},
    {At::Server, Verb::Receive, "one of the ring of receives holds it"},
    {At::Server, std::nullopt, "a master coroutine runs the handler"},
    {At::Server, Verb::Send, "reply (UD, with immediate)"},
    {At::Client, Verb::Receive, "its coroutine goes on"},
};

constexpr std::string_view kFasstSources[]{
    "A. Kalia, M. Kaminsky, D. G. Andersen: FaSST: Fast, Scalable and Simple Distributed "
    "Transactions with Two-Sided (RDMA) Datagram RPCs. OSDI 2016",
    "its sources, `efficient/fasst`: at most 4,032 B, the immediate names machine and coroutine, a "
    "second of silence is taken for a failure",
    "*durable RPC*, table 1, figure 2(d), section 5.1 (objects below 4 KB)",
};

constexpr std::string_view kFasstDepartures[]{
    "**Reliable stand-in**: the designs are compared over reliable connections only, so the SENDs "
    "are those of one, and nothing is lost.",
    "A SEND has no immediate here: what it says (request or reply, which coroutine) is the frame's "
    "sequence.",
    "Requests of several coroutines are not coalesced into one message.",
};

}  // namespace

const Design kFasst{
    .name = "fasst",
    .title = "FaSST",
    .family = Family::Send,
    .steps = kFasstSteps,
    .sources = kFasstSources,
    .departures = kFasstDepartures,
    .payload_bytes_max = kFasstPayloadBytesMax,
    .make_client =
        [](const EndOptions& options) { return End::open<Client, SendingClient>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, SendingServer>(options, handler);
        },
};

}  // namespace perdure::rpc::models
