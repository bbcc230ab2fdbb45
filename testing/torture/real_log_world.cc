// The log's world on perdured processes: see real_log_world.h.
#include "testing/torture/real_log_world.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/try.h"
#include "pmem/pool_format.h"
#include "testing/process.h"

namespace perdure::test {
namespace {

/// Room for the smallest ring, for persistent receive buffers and for what a log keeps beside its
/// records.
constexpr std::uint64_t kRealPoolBytes = 96 * 1024;
constexpr std::size_t kRealSparesMax = 1;
constexpr Nanoseconds kAnswersWithin = std::chrono::seconds(20);
/// A process is killed within so many microseconds of an operation, as a power of two at most: an
/// append takes some ten of them, an opening some ten thousand.
constexpr std::uint64_t kKillWithinLog = 15;

std::vector<std::byte> read_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<std::byte> bytes(file ? static_cast<std::size_t>(file.tellg()) : 0);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

/// In place: a daemon may have it mapped.
void write_bytes(const std::string& path, std::uint64_t at, std::span<const std::byte> bytes) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(static_cast<std::streamoff>(at));
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

/// The world can not go on: its process ends with these words, and that is told.
[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "ERROR: %s\n", why.c_str());
  std::abort();
}

}  // namespace

RealLogWorld::RealLogWorld(const WorldOptions& options, const RealMachines& machines)
    : LogWorld(options), options_of_machines_(machines) {
  constexpr std::array kDomains = {PersistenceDomain::Dmp, PersistenceDomain::Mhp,
                                   PersistenceDomain::Wsp};
  Random choices(options.seed + 1);
  count_ = choices.chance(7, 8) ? 3 : 2;
  spares_ = choices.below(kRealSparesMax + 1);
  quorum_ = count_ / 2 + 1;
  domain_ = kDomains[choices.below(kDomains.size())];
  shape_ = choices.chance(1, 2) ? LogShape::Singleton : LogShape::Compound;
  add_operations();
  add_faults();
}

RealLogWorld::~RealLogWorld() {
  (void)disarm();
  end();
  for (Machine& machine : machines_) {
    machine.process.reset();
    std::error_code ignored;
    std::filesystem::remove_all(machine.directory, ignored);
  }
}

void RealLogWorld::reseed(std::uint64_t seed) {
  LogWorld::reseed(seed);
  if (machines_.empty()) start_all();
}

void RealLogWorld::start_all() {
  for (std::size_t index = 0; index < count_ + spares_; ++index) {
    Machine& machine = machines_.emplace_back();
    machine.directory = fmt::format("{}/machine{}", options_of_machines_.directory, index);
    std::error_code failed;
    std::filesystem::remove_all(machine.directory, failed);
    std::filesystem::create_directories(machine.directory, failed);
    if (failed) give_up(machine.directory + " can not be made: " + failed.message());
  }
  for (Machine& machine : machines_) {
    auto made = launch(machine);
    if (made.ok()) made = create_pool(machine);
    if (!made.ok()) give_up("a machine does not start: " + made.error().message);
  }
  tell("{} perdured processes over {}, quorum {}, {} spare, {}, {}", count_,
       to_string(options_of_machines_.transport), quorum_, spares_, to_string(domain_),
       shape_ == LogShape::Singleton ? "singleton" : "compound");
  begin(machines_.size(), count_, quorum_, shape_, false);
}

std::vector<Counter> RealLogWorld::counters() const {
  std::vector<Counter> all = LogWorld::counters();
  all.push_back({"kills", kills_});
  all.push_back({"kills_counted", kills_counted_});
  all.push_back({"stops", stops_});
  return all;
}

std::string RealLogWorld::pool_file(const Machine& machine) const {
  return fmt::format("{}/pools/{}.pool", machine.directory, kLogPool);
}

Result<void> RealLogWorld::launch(Machine& machine) {
  machine.stopped = false;
  if (machine.process) {
    PERDURE_TRY_VOID(machine.process->start_again());
  } else {
    PeerProcessOptions options;
    options.directory = machine.directory;
    options.program = options_of_machines_.perdured;
    options.declared = domain_;
    PERDURE_TRY(process, PeerProcess::start(options));
    machine.process = std::move(process);
    machine.name = machine.process->address();
  }
  machine.runs = true;
  return {};
}

Result<void> RealLogWorld::create_pool(Machine& machine) {
  PERDURE_TRY(peer, dialer_.dial(machine.name, options_of_machines_.transport));
  PERDURE_TRY_VOID(peer->create({kLogPool, kRealPoolBytes}, Deadline::after(kAnswersWithin)));
  return learn_pool(machine);
}

Result<void> RealLogWorld::learn_pool(Machine& machine) {
  PERDURE_TRY(peer, dialer_.dial(machine.name, options_of_machines_.transport));
  PERDURE_TRY(pool, peer->describe(kLogPool, Deadline::after(kAnswersWithin)));
  const auto uuid = log::parse_uuid(pool.uuid);
  if (!uuid) return Error{ErrorCode::Corrupt, "its pool is damaged: " + pool.reason};
  machine.pool = *uuid;
  return {};
}

void RealLogWorld::stop(std::size_t index) {
  (void)disarm();
  Machine& machine = machines_[index];
  machine.process->kill();
  machine.runs = machine.stopped = false;
}

Result<void> RealLogWorld::start_again(std::size_t index) {
  stop(index);
  Machine& machine = machines_[index];
  if (finishing_ && options_of_machines_.media_go_back) {
    write_bytes(pool_file(machine), 0, machine.older);
  }
  PERDURE_TRY_VOID(launch(machine));
  return learn_pool(machine);
}

Result<void> RealLogWorld::start_with_blank(std::size_t index) {
  stop(index);
  Machine& machine = machines_[index];
  std::error_code ignored;
  std::filesystem::remove(pool_file(machine), ignored);
  machine.older.clear();
  PERDURE_TRY_VOID(launch(machine));
  return create_pool(machine);
}

Result<void> RealLogWorld::start_with_copy(std::size_t index, std::size_t from) {
  stop(index);
  std::error_code failed;
  std::filesystem::copy_file(pool_file(machines_[from]), pool_file(machines_[index]),
                             std::filesystem::copy_options::overwrite_existing, failed);
  if (failed) return Error{ErrorCode::SystemError, failed.message()};
  PERDURE_TRY_VOID(launch(machines_[index]));
  return learn_pool(machines_[index]);
}

std::span<const std::byte> RealLogWorld::data_of(std::size_t index) const {
  read_ = read_bytes(pool_file(machines_[index]));
  const std::size_t header = std::min<std::size_t>(pmem::kPoolDataOffset, read_.size());
  return std::span<const std::byte>(read_).subspan(header);
}

/// A killed process leaves what it has stored in the page cache, and no power fails.
bool RealLogWorld::keeps(std::size_t index, std::uint64_t at,
                         std::span<const std::byte> bytes) const {
  const auto all = data_of(index);
  const bool there = at + bytes.size() <= all.size() &&
                     std::equal(bytes.begin(), bytes.end(), all.begin() + static_cast<long>(at));
  return there || std::search(all.begin(), all.end(), bytes.begin(), bytes.end()) != all.end();
}

void RealLogWorld::flip_bit(std::size_t index, std::uint64_t at, unsigned bit) {
  const auto all = data_of(index);
  if (at >= all.size()) return;
  const std::byte flipped = all[at] ^ static_cast<std::byte>(1u << bit);
  write_bytes(pool_file(machines_[index]), pmem::kPoolDataOffset + at, std::span(&flipped, 1));
}

std::string RealLogWorld::program_name(std::size_t program) const {
  return fmt::format("writer{}", program);
}

std::unique_ptr<client::Peer> RealLogWorld::peer_for_reader(std::size_t index) {
  auto peer = dialer_.dial(machines_[index].name, options_of_machines_.transport);
  if (!peer.ok()) give_up("no device for " + machines_[index].name + ": " + peer.error().message);
  return std::move(peer).value();
}

std::unique_ptr<client::Peer> RealLogWorld::peer_for(std::size_t, std::size_t index) {
  return peer_for_reader(index);
}

void RealLogWorld::pass(Nanoseconds time) { pause_for(time); }

LogWorld::Patience RealLogWorld::patience() const {
  return {.replica_timeout = finishing_ ? Nanoseconds(std::chrono::seconds(10))
                                        : Nanoseconds(std::chrono::milliseconds(300)),
          .ask = std::chrono::seconds(1),
          .read = finishing_ ? Nanoseconds(std::chrono::seconds(10))
                             : Nanoseconds(std::chrono::seconds(1)),
          .commit = kAnswersWithin,
          .judged = false};
}

bool RealLogWorld::undisturbed() const {
  return !killer_.joinable() && std::ranges::all_of(machines_, [](const Machine& machine) {
    return machine.runs && !machine.stopped;
  });
}

void RealLogWorld::calm() {
  (void)disarm();
  finishing_ = true;
  for (Machine& machine : machines_) {
    if (machine.runs && machine.stopped) machine.process->signal(SIGCONT);
    machine.stopped = false;
  }
}

/// A daemon that ends without having been killed has failed.
void RealLogWorld::look_around() {
  (void)disarm();
  for (Machine& machine : machines_) {
    if (!machine.runs || machine.process->running()) continue;
    judge_.nothing_can_be_done(fmt::format("perdured of {} ended by itself", machine.name));
  }
  constexpr std::uint64_t kRecords = 3;
  const bool none =
      std::ranges::all_of(machines_, [](const Machine& machine) { return machine.older.empty(); });
  if (!options_of_machines_.media_go_back || acknowledged_ < kRecords || !none) return;
  for (Machine& machine : machines_) machine.older = read_bytes(pool_file(machine));
}

/// Kills these processes after a while, in the midst of whatever is done then.
void RealLogWorld::arm(std::vector<std::size_t> victims, Nanoseconds after) {
  victims_ = std::move(victims);
  std::vector<pid_t> processes;
  for (const std::size_t index : victims_) processes.push_back(machines_[index].process->pid());
  killed_in_call_ = false;
  killer_ = std::thread([this, processes, after] {
    std::this_thread::sleep_for(after);
    killed_in_call_ = in_call_.load();
    for (const pid_t process : processes) (void)::kill(process, SIGKILL);
  });
}

/// Waits for what is armed. Nobody else ends these processes before, so that their numbers are
/// theirs. Whether anything was.
bool RealLogWorld::disarm() {
  if (!killer_.joinable()) return false;
  killer_.join();
  for (const std::size_t index : victims_) {
    machines_[index].process->kill();
    machines_[index].runs = machines_[index].stopped = false;
    replicas_[index].off = true;
    ++kills_;
    if (killed_in_call_) ++kills_counted_;
    tell("{} was killed{}", machines_[index].name, killed_in_call_ ? "" : " between two calls");
  }
  return true;
}

void RealLogWorld::add_faults() {
  add_kills();
  const auto victim = std::make_shared<std::size_t>(0);
  add_lasting(
      "server-stop", 3, 4,
      [this, victim](Random& choices) {
        *victim = choices.below(machines_.size());
        Machine& machine = machines_[*victim];
        if (!machine.runs || machine.stopped) return false;
        tell("{} is stopped", machine.name);
        machine.process->signal(SIGSTOP);
        machine.stopped = true;
        ++stops_;
        return true;
      },
      [this, victim] {
        Machine& machine = machines_[*victim];
        if (!machine.stopped) return;
        machine.process->signal(SIGCONT);
        machine.stopped = false;
      });
  add_lasting(
      "bit-flip", 2, 10, [this](Random& choices) { return flip_somewhere(choices); }, [] {});
}

void RealLogWorld::add_kills() {
  struct Kind {
    const char* name;
    std::uint32_t weight;
    std::uint32_t lasts_max;
    bool all;
  };
  for (const Kind kind : {Kind{"server-kill", 6, 8, false}, Kind{"server-kill-all", 2, 1, true}}) {
    const auto struck = std::make_shared<bool>(false);
    Fault fault;
    fault.name = kind.name;
    fault.weight = kind.weight;
    fault.lasts_max = kind.lasts_max;
    fault.begin = [this, struck, kind](Random& choices) {
      std::vector<std::size_t> victims;
      const std::size_t only = choices.below(machines_.size());
      for (std::size_t index = 0; index < machines_.size(); ++index) {
        if ((kind.all || index == only) && machines_[index].runs) victims.push_back(index);
      }
      if (victims.empty() || killer_.joinable()) return false;
      *struck = true;
      const std::uint64_t within = std::uint64_t{1} << choices.below(kKillWithinLog + 1);
      arm(std::move(victims), std::chrono::microseconds(choices.below(within)));
      return true;
    };
    fault.met = [struck] { return *struck; };
    fault.end = [this, struck] {
      (void)disarm();
      start_what_is_off();
      *struck = false;
    };
    faults_.push_back(std::move(fault));
  }
}

Scenario real_log_scenario(const RealMachines& machines) {
  return scenario_of(
      fmt::format("log, perdured over {}", to_string(machines.transport)),
      [machines](const WorldOptions& options) {
        return std::unique_ptr<World>(std::make_unique<RealLogWorld>(options, machines));
      });
}

}  // namespace perdure::test
