// MirrorWorld: mirrored memory in a box. The real mirror and peer services on the emulated fabric,
// in one thread and under one seed; its program, what goes wrong with replicas, links, media and
// the program, and the judge beside them.
//
// Damage is kept within what the contract bears: a medium is replaced only while all replicas are
// in sync, and the local memory is lost only while enough of them are.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mirror/replicated_mirror.h"
#include "pmem/crashable_region.h"
#include "testing/torture/mirror_judge.h"
#include "testing/world_server.h"

namespace perdure::test {

struct MirrorMachines {
  /// To show that the judge would notice: what the replicas hold in the end has a flipped bit.
  bool a_bit_flips = false;
};

/// The mirror's scenario: operations, faults and judge.
Scenario mirror_scenario(const MirrorMachines& machines = {});

/// Threads: one.
class MirrorWorld final : public World {
 public:
  MirrorWorld(const WorldOptions& options, const MirrorMachines& machines);
  ~MirrorWorld() override;

  const std::vector<Operation>& operations() const override { return operations_; }
  const std::vector<Fault>& faults() const override { return faults_; }
  std::vector<Trait> traits() const override { return traits_; }
  const Judge& judge() const override { return judge_; }
  void reseed(std::uint64_t seed) override { random_ = Random(seed); }
  void finish() override;
  std::vector<Counter> counters() const override;

 private:
  static constexpr std::size_t kWords = 8 * 1024;

  void add_operations();
  void add_faults();
  void add_crashes();
  void add_links_and_media();
  void add_fault(std::string name, std::uint32_t lasts_max, std::function<bool(Random&)> begin,
                 std::function<bool()> met, std::function<void()> end);

  // The program: each opens the mirror if need be.
  std::uint64_t store(std::size_t word);
  void persist(Random& choices, std::size_t words_max, bool deep);
  void flush_some(Random& choices);
  void write_ordered(Random& choices, bool brings);
  void write_word(Random& choices);
  void wait_for_some(Random& choices);
  void read_some(Random& choices);
  void get_on();
  void end_life(Random& choices, bool closes, bool loses_memory);
  bool ensure_open();
  bool try_open(bool first);
  void note_acknowledged();
  void took(const Result<MirrorTicket>& ticket);

  // Its machines.
  WorldServer& any_server(Random& choices);
  static bool is_down(WorldServer& server);
  void start(WorldServer& server);
  void all_back(bool all_again);
  bool replace_medium(Random& choices);
  static std::vector<std::uint64_t> words_of(std::span<const std::byte> bytes);
  void judge_replicas();
  std::span<std::byte> local() const { return local_->bytes(); }
  void new_local();
  template <typename... Arguments>
  void tell(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    if (tell_) tell_(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  const MirrorMachines options_;
  const std::function<void(const std::string&)> tell_;
  Random random_;
  fabric::emu::World world_{random_};
  std::vector<Operation> operations_;
  std::vector<Fault> faults_;
  std::vector<Trait> traits_;
  MirrorJudge judge_{kWords};
  std::vector<std::unique_ptr<WorldServer>> servers_;
  fabric::emu::Machine* client_ = nullptr;
  std::size_t quorum_ = 0;
  bool measures_ = false;
  std::unique_ptr<pmem::CrashableRegion> local_;
  std::unique_ptr<mirror::ReplicatedMirror> mirror_;
  std::vector<bool> in_sync_;  // when that was looked at last
  std::uint64_t last_value_ = 0;
  bool lost_ = false;                            // the local memory, since the last life
  bool replaced_ = false;                        // a medium, in this life
  bool was_replaced_ = false;                    // and in the one before
  std::pair<std::size_t, std::uint64_t> blank_;  // whose, and how often it had come back then
  WorldServer* struck_ = nullptr;                // whose power is to fail
  std::uint64_t cuts_counted_ = 0;
  std::uint64_t acknowledged_ = 0;
  std::uint64_t returned_ = 0;
  std::uint64_t copied_pages_ = 0;
  std::uint64_t quorums_lost_ = 0;
  std::uint64_t opened_ = 0;
  std::uint64_t opened_late_ = 0;  // with a replica that had to come first
  std::uint64_t restored_ = 0;
};

}  // namespace perdure::test
