// RealLogWorld: the users, operations and judge of log_world.h on perdured processes of this
// machine, over tcp or shared memory, which are killed and stopped in the midst of what is done.
//
// The same seed is the same sequence, but not the same history: processes keep their own time. No
// power fails: what a killed process has written stays in the page cache. Deadlines are not judged.
#pragma once

#include <perdure/result.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/dial.h"
#include "testing/peer_process.h"
#include "testing/torture/log_world.h"

namespace perdure::test {

struct RealMachines {
  std::string directory;  // exists; each machine gets one below it while a world lasts
  std::string perdured;   // empty: the one beside this program
  Transport transport = Transport::Tcp;
  /// To show that the judge would notice: in the end every medium holds an older copy of itself.
  bool media_go_back = false;
};

/// The log's scenario on real processes.
Scenario real_log_scenario(const RealMachines& machines);

/// Threads: one; the processes are killed from another.
class RealLogWorld final : public LogWorld {
 public:
  RealLogWorld(const WorldOptions& options, const RealMachines& machines);
  ~RealLogWorld() override;
  /// The first time, starts the machines.
  void reseed(std::uint64_t seed) override;
  std::vector<Counter> counters() const override;

 private:
  struct Machine {
    std::string directory;
    std::optional<PeerProcess> process;
    std::string name;
    pmem::Uuid pool;
    bool runs = false;
    bool stopped = false;          // by SIGSTOP
    std::vector<std::byte> older;  // what its pool held once
  };

  const std::string& name_of(std::size_t machine) const override { return machines_[machine].name; }
  const pmem::Uuid& pool_of(std::size_t machine) const override { return machines_[machine].pool; }
  bool runs(std::size_t machine) const override { return machines_[machine].runs; }
  void stop(std::size_t machine) override;
  Result<void> start_again(std::size_t machine) override;
  Result<void> start_with_blank(std::size_t machine) override;
  Result<void> start_with_copy(std::size_t machine, std::size_t from) override;
  std::span<const std::byte> data_of(std::size_t machine) const override;
  bool keeps(std::size_t machine, std::uint64_t at,
             std::span<const std::byte> bytes) const override;
  void flip_bit(std::size_t machine, std::uint64_t at, unsigned bit) override;
  std::string program_name(std::size_t program) const override;
  bool program_runs(std::size_t) const override { return true; }
  void start_program(std::size_t) override {}
  bool reader_runs() const override { return true; }
  void start_reader() override {}
  std::unique_ptr<client::Peer> peer_for(std::size_t program, std::size_t machine) override;
  std::unique_ptr<client::Peer> peer_for_reader(std::size_t machine) override;
  const Clock& clock() const override { return Clock::monotonic(); }
  const Clock& true_clock() const override { return Clock::monotonic(); }
  void pass(Nanoseconds time) override;
  Patience patience() const override;
  bool undisturbed() const override;
  void calm() override;
  void look_around() override;

  void start_all();
  Result<void> launch(Machine& machine);
  Result<void> create_pool(Machine& machine);
  Result<void> learn_pool(Machine& machine);
  std::string pool_file(const Machine& machine) const;

  void add_faults();
  void add_kills();
  void arm(std::vector<std::size_t> victims, Nanoseconds after);
  bool disarm();

  const RealMachines options_of_machines_;
  std::size_t count_ = 0;  // of machines
  std::size_t spares_ = 0;
  std::size_t quorum_ = 0;
  PersistenceDomain domain_ = PersistenceDomain::Dmp;
  client::Dialer dialer_;
  std::vector<Machine> machines_;
  mutable std::vector<std::byte> read_;  // by data_of
  bool finishing_ = false;

  std::thread killer_;
  std::vector<std::size_t> victims_;
  std::atomic<bool> killed_in_call_ = false;
  std::uint64_t kills_ = 0;
  std::uint64_t kills_counted_ = 0;
  std::uint64_t stops_ = 0;
};

}  // namespace perdure::test
