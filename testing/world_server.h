// WorldServer: a PeerService on a machine of an emulated world, with one pool in memory that
// outlives power failures and the service. For crash tests and demonstrations, in one thread.
#pragma once

#include "client/peer.h"
#include "fabric/emu/world.h"
#include "pmem/crashable_region.h"
#include "pmem/pool_format.h"
#include "server/service.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace perdure::test {

class WorldServer {
 public:
  struct Options {
    std::string pool;
    std::uint64_t pool_bytes = 256 * 1024;  // after the pool's header
    persist::ReceiveQueue queue{32, 2048};
    fabric::emu::RnicSwitches switches{};
    // See server::ServiceOptions.
    std::function<persist::RequestHandlers(const server::SessionTerms&)> handlers{};
    std::size_t reply_bytes_max = 64;
  };

  /// Adds the machine, formats its pool and serves it. Errors: those of Pool::format.
  static Result<std::unique_ptr<WorldServer>> start(fabric::emu::World& world,
                                                    const std::string& name,
                                                    const ServerProfile& profile, Options options);

  /// The power fails, if it has not failed already.
  void lose_power();
  /// The machine comes back, after its power failed now if not before, with a new service over what
  /// the memory kept. Errors: those of Pool::attach and of PeerService::add_pool.
  Result<void> start_again();

  /// What its operator says of the machine from the next start on: nothing better than it is.
  void declare(Ddio ddio, WriteOrder write_order);

  /// The daemon dies, if it runs; the power stays.
  void kill();
  /// The machine comes back as by start_again, with another medium in place of its own: one that
  /// holds `bytes`, or a blank one that is formatted as a new pool. Errors: those of start_again.
  Result<void> start_with(std::span<const std::byte> bytes);

  /// The server as a peer, whatever service runs there just now: Disconnected while it has no
  /// power. If the device is a machine of the world, requests go over the link between the two: in
  /// time, late, not at all, or without the answer. Requires that server and device outlive it.
  std::unique_ptr<client::Peer> peer(fabric::Device& device);

  fabric::emu::Machine& machine() { return machine_; }
  /// Whether a service runs: not after a start that failed.
  bool serving() const { return service_ != nullptr; }
  /// Whether it serves its pool: not where the medium failed since the service started, which makes
  /// a pool unavailable until an operator opens it again or starts the machine again.
  bool usable() const;
  server::PeerService& service() { return *service_; }
  /// Of the pool that was attached last, or begun to be formatted.
  const pmem::Uuid& pool_uuid() const { return pool_uuid_; }
  pmem::CrashableRegion& region() { return region_; }

 private:
  WorldServer(fabric::emu::World& world, const std::string& name, const ServerProfile& profile,
              Options options);
  Result<void> serve(Result<std::unique_ptr<pmem::Pool>> pool);
  Result<std::unique_ptr<pmem::Pool>> format();

  fabric::emu::World& world_;
  fabric::emu::Machine& machine_;
  ServerProfile profile_;  // as its operator declares it
  const Options options_;
  pmem::CrashableRegion& region_;
  std::unique_ptr<server::PeerService> service_;
  pmem::Uuid pool_uuid_;
  std::uint32_t formats_ = 0;  // each makes a pool of another UUID
};

}  // namespace perdure::test
