// WorldTarget: a machine of an emulated world as the target of librpmem: one set of part files, and
// an rpmemd for each client that asks for one. For crash tests, in one thread.
//
// It is rpmemd's own code (rpmem/pool_host.h) on real files, which hold what it keeps beside the
// pool: headers, locks, whose it was last. The pool itself lies in memory that loses its power.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "fabric/emu/world.h"
#include "pmem/crashable_region.h"
#include "rpmem/part_region.h"
#include "rpmem/pool_host.h"
#include "rpmem/target_peer.h"
#include "testing/temporary_directory.h"

namespace perdure::test {

class WorldTarget {
 public:
  static constexpr const char* kSet = "replica.set";
  static constexpr std::uint64_t kPoolBytes = rpmem::kPartBytesMin;

  struct Options {
    persist::ReceiveQueue queue;  // rpmemd's
    fabric::emu::RnicSwitches switches{};
    // To show that a judge would notice: its flushes do nothing; it forgets who had the pool.
    bool flushes_nothing = false;
    bool forgets_clients = false;
  };

  /// Adds the machine. Errors: those of TemporaryDirectory::make.
  static Result<std::unique_ptr<WorldTarget>> start(fabric::emu::World& world,
                                                    const std::string& name,
                                                    const ServerProfile& profile,
                                                    const Options& options);
  ~WorldTarget();

  /// What ssh does for a program on `client`. Now and then a machine without power comes back then.
  rpmem::StartTarget reached_from(fabric::emu::Machine& client);

  /// The power fails, if it has not failed already; or every rpmemd dies, and the power stays.
  void lose_power();
  void kill();
  /// The machine has power again, or its programs a system that starts them.
  void start_again();
  /// Without power: other files are in place of the set's, or none: what was there is gone.
  void replace_medium();
  /// Every rpmemd whose client is gone ends, as that of a connection that is cut would in time.
  void end_orphans();

  /// From here on `count` flushes fail, and those of the rpmemd that meets one from then on.
  void refuse_flushes(ErrorCode code, std::uint64_t count, Random& random) {
    region_.refuse_flushes(code, count, random);
  }

  fabric::emu::Machine& machine() { return machine_; }
  /// As a program elsewhere sees it, its header included.
  std::span<std::byte> pool() { return region_.bytes().subspan(rpmem::PartRegion::kFrontBytes); }
  pmem::CrashableRegion& region() { return region_; }
  /// Whether the files' system tells whose a pool was last (PartSet::note_client).
  bool knows_clients() const { return knows_clients_; }
  /// How many rpmemds were begun; how many sessions opened, of whichever of them.
  std::uint64_t started() const { return started_; }
  std::uint64_t sessions() const { return sessions_; }

 private:
  class Peer;
  /// One rpmemd.
  struct Process {
    std::unique_ptr<rpmem::PoolHost> host;
    bool has_ended = false;  // killed, or with its machine: what there was of it goes later
    bool has_a_client = true;
  };

  WorldTarget(fabric::emu::World& world, const std::string& name, const ServerProfile& profile,
              const Options& options, TemporaryDirectory directory);
  rpmem::PoolHostOptions host_options();
  void end_all();
  void release_ended();
  void act();
  std::string part() const { return directory_.path() + "/part0"; }

  fabric::emu::World& world_;
  const ServerProfile profile_;
  const Options options_;
  const TemporaryDirectory directory_;
  fabric::emu::Machine& machine_;
  pmem::CrashableRegion& region_;
  bool knows_clients_ = false;
  std::uint64_t started_ = 0;
  std::uint64_t sessions_ = 0;
  std::vector<std::shared_ptr<Process>> processes_;
};

}  // namespace perdure::test
