// REMOTELOG in an emulated world.
#include "bench/remotelog.h"

#include "core/random.h"
#include "core/try.h"
#include "fabric/emu/world.h"
#include "persist/responder.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace perdure::bench {
namespace {

namespace emu = fabric::emu;

/// A server with the log in its memory, and the client's connection to it.
struct Server {
  emu::Machine* machine = nullptr;
  pmem::CrashableRegion* region = nullptr;
  persist::Responder::Options options;
  std::unique_ptr<fabric::Endpoint> near;
  std::unique_ptr<fabric::Endpoint> far;
  std::unique_ptr<fabric::Memory> memory;
  std::unique_ptr<persist::Responder> responder;
  std::unique_ptr<persist::Requester> requester;
};

class EmulatedRun {
 public:
  EmulatedRun(const plan::Scenario& scenario, const RemotelogOptions& options)
      : scenario_(scenario),
        options_(options),
        random_(options.seed),
        world_(random_, {.order = emu::World::Options::Order::InTime}) {
    queue_.message_bytes_max = std::max<std::size_t>(
        1024, static_cast<std::size_t>(round_up(options.record_bytes + 256, kCacheLineBytes)));
  }

  Result<void> run(RemotelogRow& row, const RemotelogProgress& progress) {
    client_ = &world_.add_machine("client", scenario_.profile);
    servers_.resize(options_.replicas);  // actors keep addresses of these
    std::vector<RemotelogClient::Replica> replicas;
    for (Server& server : servers_) {
      PERDURE_TRY_VOID(start(server));
      replicas.push_back({server.requester.get(), client_});
    }
    PERDURE_TRY(log, RemotelogClient::open(replicas, scenario_.method, options_));
    PERDURE_TRY_VOID(log->run(world_.clock(), row, progress));
    for (Server& server : servers_) {
      PERDURE_TRY(found, recover(server));
      row.checked = found;
    }
    return {};
  }

 private:
  Result<void> start(Server& server) {
    const std::uint64_t exported = options_.layout().exported_bytes();
    server.machine = &world_.add_machine("server", scenario_.profile);
    server.region = &server.machine->add_region(exported + queue_.persistent_bytes());
    auto ends = world_.connect(*client_, *server.machine);
    server.near = std::move(ends.first);
    server.far = std::move(ends.second);
    PERDURE_TRY(memory, server.machine->register_memory(server.region->bytes().first(exported),
                                                        fabric::Access::RemoteReadWrite));
    server.memory = std::move(memory);
    server.options.exported = {0, exported};
    server.options.session = 1;
    server.options.queue = queue_;
    if (scenario_.profile.receive_buffers == ReceiveBuffers::Pm) {
      server.options.persistent_buffers = {exported, queue_.persistent_bytes()};
    }
    PERDURE_TRY(responder, persist::Responder::open(*server.far, *server.machine, *server.region,
                                                    server.options));
    server.responder = std::move(responder);
    server.machine->add_actor([&server] {
      const auto handled = server.responder->pump();
      return handled.ok() && *handled != 0;
    });
    persist::Requester::Options options;
    options.remote = {server.memory->key(), server.memory->base(), exported};
    options.queue = queue_;
    options.session = server.options.session;
    options.updates_max = options_.window;
    PERDURE_TRY(requester, persist::Requester::open(*server.near, *client_, scenario_.profile,
                                                    {scenario_.method}, options));
    server.requester = std::move(requester);
    return {};
  }

  /// The power fails, and what is left must be everything.
  Result<std::uint64_t> recover(Server& server) {
    server.machine->power_cut();
    server.responder.reset();
    server.machine->power_on();
    if (server.options.persistent_buffers.length != 0) {
      PERDURE_TRY_VOID(persist::replay_messages(*server.region, server.options.exported,
                                                server.options.persistent_buffers, queue_));
    }
    return check_remotelog(server.region->bytes(), scenario_.method, options_);
  }

  const plan::Scenario& scenario_;
  const RemotelogOptions& options_;
  persist::ReceiveQueue queue_;
  Random random_;
  emu::World world_;
  emu::Machine* client_ = nullptr;
  std::vector<Server> servers_;
};

}  // namespace

RemotelogRow run_emulated(const plan::Scenario& scenario, plan::Source source,
                          const RemotelogOptions& options, const RemotelogProgress& progress) {
  RemotelogRow row;
  row.fabric = RemotelogFabric::Emu;
  row.source = source;
  row.scenario = scenario;
  row.options = options;
  const auto ran = EmulatedRun(scenario, options).run(row, progress);
  if (!ran.ok()) row.fail(ran.error());
  return row;
}

}  // namespace perdure::bench
