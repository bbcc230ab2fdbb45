// A server of an emulated world, through its power failures: see world_server.h.
#include "testing/world_server.h"

#include "core/crc32c.h"
#include "core/try.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"
#include "testing/local_peer.h"

namespace perdure::test {
namespace {

/// The same in every world: what happens there is to depend on the seed alone.
pmem::Uuid uuid_of(const std::string& name) {
  pmem::Uuid uuid;
  std::uint32_t hash = crc32c(std::as_bytes(std::span(name)));
  for (std::byte& each : uuid.bytes) {
    each = static_cast<std::byte>(hash >> 24);
    hash = hash * 1664525u + 1013904223u;
  }
  return uuid;
}

class WorldPeer final : public client::Peer {
 public:
  WorldPeer(WorldServer& server, fabric::Device& device) : server_(server), device_(device) {}

  std::string name() const override { return server_.machine().name(); }
  fabric::Device& device() override { return device_; }
  Result<std::vector<control::PoolDescription>> list(Deadline deadline) override {
    PERDURE_TRY(local, with_power());
    return local.list(deadline);
  }
  Result<control::PoolDescription> describe(const std::string& pool, Deadline deadline) override {
    PERDURE_TRY(local, with_power());
    return local.describe(pool, deadline);
  }
  Result<control::PoolDescription> create(const control::PoolRequest& request,
                                          Deadline deadline) override {
    PERDURE_TRY(local, with_power());
    return local.create(request, deadline);
  }
  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override {
    PERDURE_TRY(local, with_power());
    return local.open_session(request, deadline);
  }
  Result<void> close_session(std::uint64_t id, Deadline deadline) override {
    PERDURE_TRY(local, with_power());
    return local.close_session(id, deadline);
  }
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) override {
    PERDURE_TRY(local, with_power());
    return local.fence(pool, epoch, deadline);
  }

 private:
  Result<LocalPeer> with_power() {
    if (!server_.machine().powered()) return Error{ErrorCode::Disconnected, "no power"};
    return LocalPeer(name(), server_.service(), device_);
  }

  WorldServer& server_;
  fabric::Device& device_;
};

}  // namespace

WorldServer::WorldServer(fabric::emu::World& world, const std::string& name,
                         const ServerProfile& profile, Options options)
    : world_(world),
      machine_(world.add_machine(name, profile)),
      profile_(profile),
      options_(std::move(options)),
      region_(machine_.add_region(pmem::kPoolDataOffset + options_.pool_bytes)) {}

Result<std::unique_ptr<WorldServer>> WorldServer::start(fabric::emu::World& world,
                                                        const std::string& name,
                                                        const ServerProfile& profile,
                                                        Options options) {
  std::unique_ptr<WorldServer> server(new WorldServer(world, name, profile, std::move(options)));
  pmem::PoolOptions pool;
  pool.name = server->options_.pool;
  pool.uuid = uuid_of(name);
  PERDURE_TRY_VOID(
      server->serve(pmem::Pool::format(std::make_unique<pmem::LentRegion>(server->region_), pool)));
  return server;
}

void WorldServer::lose_power() {
  if (machine_.powered()) machine_.power_cut();
  service_->abandon();
}

Result<void> WorldServer::start_again() {
  lose_power();
  service_.reset();
  machine_.power_on();
  return serve(pmem::Pool::attach(std::make_unique<pmem::LentRegion>(region_)));
}

Result<void> WorldServer::serve(Result<std::unique_ptr<pmem::Pool>> pool) {
  if (!pool.ok()) return pool.error();
  server::ServiceOptions options;
  options.threads = false;
  options.clock = &world_.clock();
  options.queue = options_.queue;
  options.settings.ddio = profile_.ddio;
  options.settings.receive_buffers = profile_.receive_buffers;
  options.secrets = [this] { return world_.random().next() | 1; };
  server::DataPlane plane;
  plane.device = &machine_;
  PERDURE_TRY(service, server::PeerService::open(std::move(options), {plane}));
  service_ = std::move(service);
  PERDURE_TRY_VOID(service_->add_pool(options_.pool, std::move(pool).value()));
  machine_.add_actor([this] { return service_ != nullptr && service_->pump(); });
  return {};
}

std::unique_ptr<client::Peer> WorldServer::peer(fabric::Device& device) {
  return std::make_unique<WorldPeer>(*this, device);
}

}  // namespace perdure::test
