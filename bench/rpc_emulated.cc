// A point of `perdure bench rpc` in an emulated world, in time: both programs in one thread, each
// with processors of its own.
#include "bench/rpc_ends.h"
#include "core/random.h"
#include "core/try.h"
#include "fabric/emu/world.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

namespace perdure::bench {
namespace {

namespace emu = fabric::emu;
namespace models = rpc::models;

/// Memory controllers are the domain, DDIO is off, receive buffers are persistent, and the RNIC has
/// SFLUSH: what the paper assumes of its servers.
ServerProfile rpc_machine() {
  ServerProfile profile;
  profile.domain = PersistenceDomain::Dmp;
  profile.ddio = Ddio::Off;
  profile.receive_buffers = ReceiveBuffers::Pm;
  profile.transport = Transport::InfiniBand;
  profile.write_order = WriteOrder::Ordered;
  profile.capabilities.send_flush = true;
  return profile;
}

/// Events of the world for one call, at most; a run with more has come to a stop.
constexpr std::uint64_t kEventsOfCallMax = 20'000;

class RpcEmulatedRun {
 public:
  explicit RpcEmulatedRun(const RpcPoint& point)
      : point_(point),
        hardware_(default_hardware(Transport::InfiniBand)),
        random_(point.load.seed),
        world_(random_, {.order = emu::World::Options::Order::InTime}),
        client_(world_.add_machine("client", rpc_machine())),
        server_(world_.add_machine("server", rpc_machine())),
        state_(point, world_.clock()) {
    state_.emulated.emplace(
        RpcEmulatedTimes{&hardware_.server, [this](Nanoseconds at) { world_.wake_at(at); }});
  }

  Result<RpcSample> run() {
    pairs_.reserve(point_.load.clients);
    for (std::size_t i = 0; i < point_.load.clients; ++i) PERDURE_TRY_VOID(connect(i));
    // Whoever has posted something has worked, too.
    const auto add = [this](emu::Machine& machine, bool (RpcEmulatedRun::*pump)()) {
      machine.add_actor([this, pump] {
        const std::uint64_t before = world_.events();
        return (this->*pump)() || world_.events() != before;
      });
    };
    add(server_, &RpcEmulatedRun::pump_servers);
    add(client_, &RpcEmulatedRun::pump_clients);
    const std::uint64_t calls = (point_.load.calls + point_.load.warm_up) * point_.load.clients;
    const std::uint64_t events_max = calls * kEventsOfCallMax;
    while (!failure_ && !is_over()) {
      if (!world_.step() || world_.events() > events_max) {
        return Error{ErrorCode::TimedOut,
                     fmt::format("{}: a call is never over", point_.design->title)};
      }
    }
    if (failure_) return *failure_;
    return sample();
  }

 private:
  struct Pair {
    std::pair<std::unique_ptr<fabric::Endpoint>, std::unique_ptr<fabric::Endpoint>> ends;
    std::unique_ptr<RpcObjectHandler> handler;
    std::unique_ptr<models::Client> client;
    std::unique_ptr<models::Server> server;
    std::unique_ptr<RpcCaller> caller;
  };

  Result<void> connect(std::uint64_t number) {
    Pair pair;
    pair.ends = world_.connect(client_, server_, models::kEndpointOptions);
    pair.handler = std::make_unique<RpcObjectHandler>(state_);
    models::EndOptions options = rpc_end_options(point_);
    options.device = &client_;
    options.endpoint = pair.ends.first.get();
    PERDURE_TRY(client, models::open_client(*point_.design, options));
    options.device = &server_;
    options.endpoint = pair.ends.second.get();
    PERDURE_TRY(server, models::open_server(*point_.design, options, *pair.handler));
    PERDURE_TRY_VOID(server->start(client->memory()));
    PERDURE_TRY_VOID(client->start(server->memory()));
    pair.caller = std::make_unique<RpcCaller>(point_, number, *client, world_.clock());
    pair.client = std::move(client);
    pair.server = std::move(server);
    pairs_.push_back(std::move(pair));
    return {};
  }

  bool pump_servers() {
    bool worked = false;
    for (Pair& pair : pairs_) {
      const auto executed = pair.server->pump();
      if (!executed.ok()) failure_ = executed.error();
      worked = worked || (executed.ok() && *executed > 0);
    }
    return worked;
  }
  bool pump_clients() {
    bool worked = false;
    for (Pair& pair : pairs_) {
      const auto pumped = pair.caller->pump();
      if (!pumped.ok()) failure_ = pumped.error();
      worked = worked || (pumped.ok() && *pumped);
    }
    return worked;
  }

  bool is_over() const {
    for (const Pair& pair : pairs_) {
      if (!pair.caller->all_answered()) return false;
    }
    return true;
  }

  RpcSample sample() const {
    std::vector<const RpcCaller*> callers;
    for (const Pair& pair : pairs_) callers.push_back(pair.caller.get());
    RpcSample found = sample_of(point_.load, callers);
    for (const Pair& pair : pairs_) found.lost += pair.server->lost();
    found.client_us = 0;  // it takes no time here
    return found;
  }

  const RpcPoint& point_;
  const Hardware& hardware_;
  Random random_;
  emu::World world_;
  emu::Machine& client_;
  emu::Machine& server_;
  RpcServerState state_;
  std::vector<Pair> pairs_;
  std::optional<Error> failure_;
};

}  // namespace

Result<RpcSample> run_rpc_emulated(const RpcPoint& point) {
  return std::make_unique<RpcEmulatedRun>(point)->run();
}

}  // namespace perdure::bench
