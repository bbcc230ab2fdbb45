// RpmemWorld: a program on librpmem and its target in a box. The real code of both ends
// (src/rpmem) on the emulated fabric, in one thread and under one seed; the program, what goes
// wrong, and the judge beside them.
//
// The program is what libpmemobj is to librpmem: it keeps its memory durable by itself and then at
// the target, and when it starts it makes the two equal before it goes on (its recovery). It has
// two machines: what it does on the one it may go on with on the other.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "pmem/crashable_region.h"
#include "rpmem/remote_pool.h"
#include "testing/torture/program_clock.h"
#include "testing/torture/rpmem_judge.h"
#include "testing/torture/strike.h"
#include "testing/world_target.h"

namespace perdure::test {

struct RpmemMachines {
  /// To show that the judge would notice: the target answers and flushes nothing; it forgets whose
  /// the pool was last; a bit of what it holds flips in the end.
  bool flushes_nothing = false;
  bool forgets_clients = false;
  bool a_bit_flips = false;
};

/// The scenario of librpmem: operations, faults and judge.
Scenario rpmem_scenario(const RpmemMachines& machines = {});

/// Threads: one.
class RpmemWorld final : public World {
 public:
  RpmemWorld(const WorldOptions& options, const RpmemMachines& machines);
  ~RpmemWorld() override;

  const std::vector<Operation>& operations() const override { return operations_; }
  const std::vector<Fault>& faults() const override { return faults_; }
  std::vector<Trait> traits() const override { return traits_; }
  const Judge& judge() const override { return judge_; }
  void reseed(std::uint64_t seed) override { random_ = Random(seed); }
  void finish() override;
  std::vector<Counter> counters() const override;

 private:
  static constexpr std::size_t kWords = 8 * 1024;
  static constexpr std::uint64_t kWordBytes = 8;
  static constexpr std::uint64_t kFirstByte = rpmem::kHeaderBytes;  // behind the pool's header
  static constexpr std::uint64_t kNever = UINT64_MAX;               // nobody stores that
  static constexpr std::size_t kLanes = 3;
  static constexpr int kOpenings = 12;
  using Stored = std::vector<RpmemJudge::Stored>;

  /// A machine of the program, and the program there if it runs.
  struct Place {
    fabric::emu::Machine* machine = nullptr;
    std::unique_ptr<pmem::CrashableRegion> memory;
    std::unique_ptr<rpmem::RemotePool> pool;
    std::array<Stored, kLanes> flushed;  // and not drained
  };

  void add_operations();
  void add_faults();
  void add_links();
  void add_media();
  void add_strike(std::string name, std::uint32_t weight, std::uint32_t lasts_max,
                  std::function<void(Random&)> strike);
  void add_lasting(std::string name, std::uint32_t lasts_max, std::function<bool(Random&)> begin,
                   std::function<void()> end);

  // What the program does: each opens the pool if need be.
  void persist(Random& choices, std::size_t words_max, bool deep);
  void flush(Random& choices, std::size_t words_max);
  void drain(Random& choices);
  bool drain(std::size_t lane);
  void read(Random& choices);
  void set_attributes(Random& choices);
  void close_and_end(Random& choices);
  void open_beside(Random& choices);
  void go_on_elsewhere(Random& choices);
  void write_as_before(Random& choices);
  void make_anew(Random& choices);

  struct Range {
    std::size_t first = 0;
    std::size_t count = 0;
  };
  Range some_words(Random& choices, std::size_t most) const;
  Stored store(const Range& range);
  void keep_locally(const Range& range);
  static std::uint64_t offset_of(std::size_t word);

  /// Whom a call asks: the session, or the rpmemd by its channel.
  enum class Asks { Session, Rpmemd };
  void note_answer();
  bool known(Asks whom, ErrorCode code) const;
  rpmem::RemotePool::Words draw_words(Random& choices) const;
  Result<void> call(const char* name, Asks whom, const std::function<Result<void>()>& run);
  bool take(const char* name, const Stored& what,
            const std::function<Result<void>(rpmem::RemotePool&)>& run);
  void takes_nothing_more(rpmem::RemotePool& pool, ErrorCode lost_by);

  bool ensure_open();
  bool try_open();
  bool both_hold_the_same();
  bool judge_target(bool restores);
  rpmem::RemotePoolOptions pool_options(std::size_t place);
  std::span<std::byte> memory(std::size_t place);
  std::vector<std::uint64_t> words(std::span<const std::byte> bytes) const;
  void end_life(Random& choices, bool loses_memory);
  void end_earlier();
  void all_back();

  Place& here() { return places_[here_]; }
  Place& other() { return places_[1 - here_]; }
  void new_memory(Place& place);
  template <typename... Arguments>
  void tell(fmt::format_string<Arguments...> text, Arguments&&... arguments) const {
    if (tell_) tell_(fmt::format(text, std::forward<Arguments>(arguments)...));
  }

  const RpmemMachines options_;
  const std::function<void(const std::string&)> tell_;
  Random random_;
  fabric::emu::World world_{random_};
  ProgramClock clock_{world_};
  RpmemJudge judge_{kWords};
  std::vector<Operation> operations_;
  std::vector<Fault> faults_;
  std::vector<Trait> traits_;
  std::unique_ptr<WorldTarget> target_;
  std::array<Place, 2> places_;
  std::size_t here_ = 0;
  bool armed_ = false;        // a strike waits for its instant
  bool calls_ = false;        // the program is in a call that makes something durable
  bool made_ = false;         // there is a pool, as far as the program knows
  bool blank_ = true;         // the target holds nothing yet of what the program has
  bool memory_lost_ = false;  // the program's memory: what the target has counts
  bool pool_lost_ = false;    // its pool was lost: it is to be opened again
  bool refused_ = false;      // the target's medium, since the pool was opened
  bool troubled_ = false;     // something goes on, or has gone wrong since the target answered
  bool dropped_ = false;      // since then connections were dropped
  bool struck_ = false;       // something has gone wrong since the last call began
  bool taken_over_ = false;   // another program has opened the pool since
  int lasting_ = 0;           // faults that go on
  bool rides_out_ = false;
  std::uint64_t relaxed_percent_ = 0;  // of persists and flushes: 0 where WRITEs tear words
  bool measures_ = false;
  std::uint64_t last_value_ = 0;
  std::uint32_t last_mark_ = 0;                  // of attributes
  std::vector<rpmem::PoolAttributes> may_have_;  // one of these the headers say; the last is wanted
  std::map<std::string, std::uint64_t> counts_;
};

}  // namespace perdure::test
