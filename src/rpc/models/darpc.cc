// DaRPC: a SEND each way.
//
//   client memory   receive buffers, one for each call of the window
//   server memory   the same
//
// The ticket of a call is its sequence, in the frame. A slot of the window is free again when its
// request has completed and its reply was taken, as DaRPC's are.
#include "rpc/models/design.h"
#include "rpc/models/two_sided.h"

namespace perdure::rpc::models {
namespace {

constexpr Step kDarpcSteps[]{
    {At::Client, Verb::Send, "ticket, request"},
    {At::Server, Verb::Receive, "a posted buffer holds it"},
    {At::Server, std::nullopt, "a polling thread runs the handler"},
    {At::Server, Verb::Send, "the same ticket, reply"},
    {At::Client, Verb::Receive, "a posted buffer holds it"},
};

constexpr std::string_view kDarpcSources[]{
    "P. Stuedi, A. Trivedi, B. Metzler, J. Pfefferle: DaRPC: Data Center RPC. SoCC 2014",
    "its sources, `zrlio/darpc`: RC SENDs with a ticket, receives posted before, a slot freed "
    "after "
    "send completion *and* response",
    "*durable RPC*, figure 2(a)",
};

constexpr std::string_view kDarpcDepartures[]{
    "One connection has one completion queue; DaRPC's clusters of connections share one and a "
    "polling thread.",
    "Nothing is sent inline.",
};

}  // namespace

const Design kDarpc{
    .name = "darpc",
    .title = "DaRPC",
    .family = Family::Send,
    .steps = kDarpcSteps,
    .sources = kDarpcSources,
    .departures = kDarpcDepartures,
    .make_client =
        [](const EndOptions& options) { return End::open<Client, SendingClient>(options); },
    .make_server =
        [](const EndOptions& options, Handler& handler) {
          return End::open<Server, SendingServer>(options, handler);
        },
};

}  // namespace perdure::rpc::models
