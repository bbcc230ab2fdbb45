// EmulatedLogWorld: a replicated log in a box. The real writers, readers and peer services on the
// emulated fabric, in one thread and under one seed, and what goes wrong with machines, links,
// media and clocks. A seed is a history: it repeats itself exactly.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "testing/torture/log_world.h"
#include "testing/torture/program_clock.h"
#include "testing/world_server.h"

namespace perdure::test {

struct EmulatedMachines {
  /// To show that the judge would notice: in the end every medium holds an older copy of itself.
  bool media_go_back = false;
};

/// The log's scenario in emulated worlds: operations, faults and judge.
Scenario log_scenario(const EmulatedMachines& machines = {});

/// Threads: one.
class EmulatedLogWorld final : public LogWorld {
 public:
  EmulatedLogWorld(const WorldOptions& options, const EmulatedMachines& machines);
  ~EmulatedLogWorld() override;
  std::vector<Trait> traits() const override { return traits_; }
  std::vector<Counter> counters() const override;

 private:
  const std::string& name_of(std::size_t machine) const override;
  const pmem::Uuid& pool_of(std::size_t machine) const override;
  bool runs(std::size_t machine) const override;
  void stop(std::size_t machine) override;
  Result<void> start_again(std::size_t machine) override;
  Result<void> start_with_blank(std::size_t machine) override;
  Result<void> start_with_copy(std::size_t machine, std::size_t from) override;
  std::span<const std::byte> data_of(std::size_t machine) const override;
  bool keeps(std::size_t machine, std::uint64_t at,
             std::span<const std::byte> bytes) const override;
  void flip_bit(std::size_t machine, std::uint64_t at, unsigned bit) override;
  std::string program_name(std::size_t program) const override;
  bool program_runs(std::size_t program) const override;
  void start_program(std::size_t program) override;
  bool reader_runs() const override;
  void start_reader() override;
  std::unique_ptr<client::Peer> peer_for(std::size_t program, std::size_t machine) override;
  std::unique_ptr<client::Peer> peer_for_reader(std::size_t machine) override;
  const Clock& clock() const override { return clock_; }
  const Clock& true_clock() const override { return world_.clock(); }
  void pass(Nanoseconds time) override { world_.pass(time); }
  Patience patience() const override;
  bool undisturbed() const override;
  void calm() override;
  void look_around() override;

  // What goes wrong: emulated_log_world_faults.cc.
  void add_faults();
  void add_strike(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                  std::function<void(Random&)> strike, std::function<void()> end);
  void add_crashes();
  void add_links();
  void add_media();
  void add_rnics();
  void cut_power(std::size_t machine);
  void set_links(std::size_t machine, fabric::emu::LinkState state, bool all_programs);

  fabric::emu::Machine& machine(std::size_t index) const { return servers_[index]->machine(); }

  const EmulatedMachines options_of_machines_;
  bool finishing_ = false;
  std::vector<std::vector<std::byte>> older_;  // what each medium held once; empty: not kept yet

  SeededSecrets secrets_{random_};
  fabric::emu::World world_{random_};
  ProgramClock clock_{world_};
  std::vector<std::unique_ptr<WorldServer>> servers_;
  std::vector<fabric::emu::Machine*> program_machines_;
  fabric::emu::Machine* reader_machine_ = nullptr;
  std::vector<Trait> traits_;
  int rnic_troubles_ = 0;  // that last
  bool armed_ = false;     // a strike waits for its instant
  std::uint64_t cuts_ = 0;
  std::uint64_t cuts_counted_ = 0;
};

}  // namespace perdure::test
