// A server of an emulated world, through its power failures: see world_server.h.
#include "testing/world_server.h"

#include <fmt/format.h>

#include "core/crc32c.h"
#include "core/try.h"
#include "pmem/lent_region.h"
#include "pmem/pool_format.h"
#include "testing/world_peer.h"

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

}  // namespace

WorldServer::WorldServer(fabric::emu::World& world, const std::string& name,
                         const ServerProfile& profile, Options options)
    : world_(world),
      machine_(world.add_machine(name, profile, options.switches)),
      profile_(profile),
      options_(std::move(options)),
      region_(machine_.add_region(pmem::kPoolDataOffset + options_.pool_bytes)) {}

Result<std::unique_ptr<WorldServer>> WorldServer::start(fabric::emu::World& world,
                                                        const std::string& name,
                                                        const ServerProfile& profile,
                                                        Options options) {
  std::unique_ptr<WorldServer> server(new WorldServer(world, name, profile, std::move(options)));
  PERDURE_TRY_VOID(server->serve(server->format()));
  return server;
}

Result<std::unique_ptr<pmem::Pool>> WorldServer::format() {
  pmem::PoolOptions pool;
  pool.name = options_.pool;
  const std::string& name = machine_.name();
  // Known before: the power may fail when all of it is there and nobody has said so.
  pool_uuid_ = uuid_of(formats_ == 0 ? name : fmt::format("{}/{}", name, formats_));
  pool.uuid = pool_uuid_;
  ++formats_;
  return pmem::Pool::format(std::make_unique<pmem::LentRegion>(region_), pool);
}

void WorldServer::lose_power() {
  if (machine_.powered()) machine_.power_cut();
  if (service_ != nullptr) service_->abandon();
}

void WorldServer::declare(Ddio ddio, WriteOrder write_order) {
  profile_.ddio = ddio;
  profile_.write_order = write_order;
}

void WorldServer::kill() {
  if (machine_.powered()) machine_.kill();
  if (service_ != nullptr) service_->abandon();
}

Result<void> WorldServer::start_with(std::span<const std::byte> bytes) {
  lose_power();
  service_.reset();
  region_.replace(bytes);
  pool_uuid_ = {};
  machine_.power_on();
  return serve(bytes.empty() ? format()
                             : pmem::Pool::attach(std::make_unique<pmem::LentRegion>(region_)));
}

Result<void> WorldServer::start_again() {
  lose_power();
  service_.reset();
  machine_.power_on();
  return serve(pmem::Pool::attach(std::make_unique<pmem::LentRegion>(region_)));
}

bool WorldServer::usable() const {
  if (!serving()) return false;
  const auto pool = service_->describe(options_.pool);
  return pool.ok() && pool->state == PoolStatus::Open;
}

Result<void> WorldServer::serve(Result<std::unique_ptr<pmem::Pool>> pool) {
  if (!pool.ok()) return pool.error();
  pool_uuid_ = (*pool)->uuid();
  server::ServiceOptions options;
  options.threads = false;
  options.clock = &world_.clock();
  options.queue = options_.queue;
  options.handlers = options_.handlers;
  options.reply_bytes_max = options_.reply_bytes_max;
  options.settings.ddio = profile_.ddio;
  options.settings.write_order = profile_.write_order;
  options.settings.dma_dirties = profile_.dma_dirties;
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
  return world_peer(
      world_, machine_, [this] { return service_.get(); }, device);
}

}  // namespace perdure::test
