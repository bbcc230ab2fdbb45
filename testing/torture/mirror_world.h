// MirrorWorld: mirrored memory in a box. The real mirror and peer services on the emulated fabric,
// in one thread and under one seed; its program, what goes wrong with replicas, links, media and
// the program, and the judge beside them.
//
// The program has two machines, each with a memory: what it does on the one it may go on with on
// the other, and whoever starts it again where it was before has memory that is older.
//
// Damage is kept within what the contract bears: a medium is replaced only while all replicas are
// in sync, and the local memory is lost only while enough of them are.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "mirror/local_state.h"
#include "mirror/replicated_mirror.h"
#include "pmem/crashable_region.h"
#include "testing/temporary_directory.h"
#include "testing/torture/mirror_judge.h"
#include "testing/world_server.h"

namespace perdure::test {

struct MirrorMachines {
  /// To show that the judge would notice: what the replicas hold in the end has a flipped bit, or
  /// nothing is kept beside the local memories that says which of them is the newest.
  bool a_bit_flips = false;
  bool memories_keep_nothing = false;
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
  struct Ending {
    bool closes = false;
    bool loses_memory = false;
    bool elsewhere = false;  // it goes on with the other memory, as if this one were lost
    bool lives_on = false;   // and the program that had this one does not know yet
  };
  void end_life(Random& choices, const Ending& ending);
  void start_where_it_was(Random& choices);
  void copy_only(Random& choices);
  void write_as_before();
  void end_earlier();
  bool ensure_open();
  bool open_newest();
  MirrorOptions mirror_options() const;
  Result<std::unique_ptr<mirror::ReplicatedMirror>> open_with(std::size_t memory,
                                                              const MirrorOptions& options);
  bool try_open(bool first);
  void judge_restored(const std::vector<std::uint64_t>& memory);
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
  /// A memory of the program and what it keeps beside it.
  struct Memory {
    std::unique_ptr<pmem::CrashableRegion> region;
    mirror::LocalStateFile state;
    MirrorJudge::Known known;    // when the program ended there
    bool is_superseded = false;  // something was acknowledged with another one since
  };
  std::span<std::byte> local() const { return memories_[here_].region->bytes(); }
  Memory& other() { return memories_[1 - here_]; }
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
  std::optional<TemporaryDirectory> place_;  // of what is kept beside the memories
  std::array<Memory, 2> memories_;
  std::size_t here_ = 0;
  std::unique_ptr<mirror::ReplicatedMirror> mirror_;
  std::unique_ptr<mirror::ReplicatedMirror> earlier_;  // of a program that lives on, elsewhere
  std::vector<bool> in_sync_;                          // when that was looked at last
  std::uint64_t last_value_ = 0;
  bool ever_acknowledged_ = false;
  bool lost_ = false;                            // the local memory, since the last life
  bool replaced_ = false;                        // a medium, in this life
  bool was_replaced_ = false;                    // and in one before, and is no replica yet
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
  std::uint64_t elsewhere_ = 0;      // it went on with the other memory
  std::uint64_t older_refused_ = 0;  // and was started again with that of before
  std::uint64_t older_taken_ = 0;    // of which nothing was missing
  std::uint64_t half_refused_ = 0;   // memory over which a replica was copied in part
  std::uint64_t fenced_ = 0;         // an earlier program, when it went on writing
};

}  // namespace perdure::test
