// The log's world on the emulated fabric: see emulated_log_world.h.
#include "testing/torture/emulated_log_world.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/assert.h"
#include "pmem/lent_region.h"
#include "pmem/pool.h"
#include "pmem/pool_format.h"
#include "server/served_pool.h"

namespace perdure::test {
namespace {

/// A ring of 64 KiB, the smallest, and room for persistent receive buffers and for what a log keeps
/// beside its records.
constexpr std::uint64_t kEmulatedPoolBytes = 96 * 1024;
/// Machines with a blank pool beside those of the first replicas.
constexpr std::size_t kEmulatedSparesMax = 2;
constexpr persist::ReceiveQueue kQueue{32, 512};
constexpr std::uint64_t kBeyondOneIn = 32;
/// Of a page that is registered on demand: what a fault costs that reads no drive.
constexpr Nanoseconds kFirstTouch = std::chrono::microseconds(20);

ServerProfile draw_profile(Random& random) {
  constexpr std::array kDomains = {PersistenceDomain::Page, PersistenceDomain::Dmp,
                                   PersistenceDomain::Mhp, PersistenceDomain::Wsp};
  constexpr std::array kTransports = {Transport::InfiniBand, Transport::Tcp, Transport::Iwarp};
  ServerProfile profile;
  profile.domain = kDomains[random.below(kDomains.size())];
  profile.ddio = random.chance(1, 2) ? Ddio::On : Ddio::Off;
  profile.receive_buffers = random.chance(1, 3) ? ReceiveBuffers::Pm : ReceiveBuffers::Dram;
  profile.transport = kTransports[random.below(kTransports.size())];
  profile.capabilities.native_flush = profile.ddio == Ddio::Off;
  profile.capabilities.atomic_write = true;
  profile.write_order = random.chance(1, 2) ? WriteOrder::Ordered : WriteOrder::Unknown;
  profile.dma_dirties = random.chance(1, 2) ? DmaDirties::Yes : DmaDirties::No;
  return profile;
}

/// How many machines of a world have RNICs that bind windows to connections.
enum class Windows : std::uint8_t { None, Some, All };

/// Only those of RDMA do, and no iWARP ones (docs/decisions/0016).
Windows draw_windows(Transport transport, Random& random) {
  constexpr std::array kWindows = {Windows::None, Windows::Some, Windows::All, Windows::All};
  const Windows drawn = kWindows[random.below(kWindows.size())];
  return transport == Transport::InfiniBand ? drawn : Windows::None;
}

std::size_t draw_replicas(Random& random) {
  constexpr std::array<std::size_t, 12> kReplicas = {3, 3, 3, 3, 3, 3, 3, 3, 1, 2, 4, 5};
  return kReplicas[random.below(kReplicas.size())];
}

}  // namespace

EmulatedLogWorld::EmulatedLogWorld(const WorldOptions& options, const EmulatedMachines& machines)
    : LogWorld(options), options_of_machines_(machines) {
  Random choices(options.seed + 1);
  const ServerProfile profile = draw_profile(choices);
  const bool alike = choices.chance(3, 4);
  const std::size_t count = draw_replicas(choices);
  const std::size_t spares = choices.below(kEmulatedSparesMax + 1);
  const std::size_t quorum = choices.chance(7, 8) ? count / 2 + 1 : 1 + choices.below(count);
  const auto shape = choices.chance(1, 2) ? LogShape::Singleton : LogShape::Compound;
  const bool beyond = choices.chance(1, kBeyondOneIn);
  fabric::emu::RnicSwitches switches;
  switches.cqe_payload_bytes = choices.chance(1, 2) ? 64 : 0;
  Random window_choices(options.seed + 2);  // other draws stay as they were
  const Windows windows = draw_windows(profile.transport, window_choices);
  Random habits(options.seed + 4);
  if (habits.chance(1, 4)) switches.first_touch = kFirstTouch;
  const bool small_windows = habits.chance(1, 4);  // a pool is too large for one, and so said
  if (small_windows) switches.window_bytes_max = kEmulatedPoolBytes / 2;
  std::size_t binding = 0;
  for (std::size_t i = 0; i < kPrograms; ++i) {
    program_machines_.push_back(&world_.add_machine(fmt::format("writer{}", i), profile));
  }
  reader_machine_ = &world_.add_machine("reader", profile);
  for (std::size_t i = 0; i < count + spares; ++i) {
    ServerProfile own = alike ? profile : draw_profile(choices);
    own.transport = profile.transport;
    switches.binds_windows =
        windows == Windows::All || (windows == Windows::Some && window_choices.chance(1, 2));
    binding += switches.binds_windows ? 1 : 0;
    auto server = WorldServer::start(world_, fmt::format("replica{}", i), own,
                                     {kLogPool, kEmulatedPoolBytes, kQueue, switches});
    PERDURE_ASSERT(server.ok());
    servers_.push_back(std::move(server).value());
  }
  // A message is right wherever there is anything durable, and with persistent receive buffers it
  // is replayed: then everything goes in messages, in pieces.
  if (Random(options.seed + 3).chance(1, 3)) primary_ = Primary::Send;
  const bool pieces = primary_ && profile.receive_buffers == ReceiveBuffers::Pm;
  const bool bound = binding != 0 && !small_windows;
  traits_ = {{"windows", bound},
             {"windows-too-small", binding != 0 && small_windows},
             {"paged-on-demand", switches.first_touch > Nanoseconds{0}},
             {"keys", binding != count + spares},
             {"cqe-payload", switches.cqe_payload_bytes != 0},
             {"unordered-writes", profile.write_order == WriteOrder::Unknown},
             {"page-cache", profile.domain == PersistenceDomain::Page},
             {"send-forced", primary_.has_value()},
             {"send-kept", pieces}};
  tell("{} replicas, quorum {}, {} spare, {} bind windows{}, {}, {}{}{}{}{}", count, quorum, spares,
       binding, small_windows ? " smaller than a pool" : "", describe(profile),
       shape == LogShape::Singleton ? "singleton" : "compound", primary_ ? ", SEND forced" : "",
       switches.cqe_payload_bytes != 0 ? ", payload in completions" : "",
       switches.first_touch > Nanoseconds{0} ? ", pages on demand" : "",
       beyond ? ", beyond what is borne" : "");
  begin(count + spares, count, quorum, shape, beyond);
  add_operations();
  add_faults();
}

EmulatedLogWorld::~EmulatedLogWorld() {
  world_.cancel_after();
  // A daemon that ends without its keys keeps its pool until the process exits.
  for (std::size_t index = 0; index < servers_.size(); ++index) {
    machine(index).refuse_revocations(false);
  }
  end();
}

std::vector<Counter> EmulatedLogWorld::counters() const {
  std::vector<Counter> all = LogWorld::counters();
  all.push_back({"events", world_.events()});
  all.push_back({"power_cuts", cuts_});
  all.push_back({"power_cuts_counted", cuts_counted_});
  std::uint64_t bound = 0;
  for (const auto& server : servers_) bound += server->machine().counters().windows_bound;
  all.push_back({"windows_bound", bound});
  return all;
}

const std::string& EmulatedLogWorld::name_of(std::size_t index) const {
  return machine(index).name();
}

const pmem::Uuid& EmulatedLogWorld::pool_of(std::size_t index) const {
  return servers_[index]->pool_uuid();
}

bool EmulatedLogWorld::runs(std::size_t index) const { return machine(index).powered(); }

void EmulatedLogWorld::stop(std::size_t index) { servers_[index]->kill(); }

Result<void> EmulatedLogWorld::start_again(std::size_t index) {
  servers_[index]->region().refuse_flushes(ErrorCode::SystemError, 0, random_);
  if (finishing_ && !older_.empty()) return servers_[index]->start_with(older_[index]);
  return servers_[index]->start_again();
}

Result<void> EmulatedLogWorld::start_with_blank(std::size_t index) {
  servers_[index]->region().refuse_flushes(ErrorCode::SystemError, 0, random_);
  return servers_[index]->start_with({});
}

Result<void> EmulatedLogWorld::start_with_copy(std::size_t index, std::size_t from) {
  servers_[index]->region().refuse_flushes(ErrorCode::SystemError, 0, random_);
  return servers_[index]->start_with(servers_[from]->region().durable());
}

std::span<const std::byte> EmulatedLogWorld::data_of(std::size_t index) const {
  return servers_[index]->region().bytes().subspan(pmem::kPoolDataOffset);
}

/// Battery-backed machines are believed: there the bytes may still be in the RNIC. Elsewhere the
/// record may be in a persistent receive buffer, for example.
bool EmulatedLogWorld::keeps(std::size_t index, std::uint64_t at,
                             std::span<const std::byte> bytes) const {
  pmem::CrashableRegion& region = servers_[index]->region();
  if (region.domain() == PersistenceDomain::Wsp) return true;
  at += pmem::kPoolDataOffset;
  if (at + bytes.size() <= region.bytes().size() && region.durable_at(at, bytes)) return true;
  const std::vector<std::byte> all = region.durable();
  const auto holds = [&](std::span<const std::byte> memory) {
    return std::search(memory.begin(), memory.end(), bytes.begin(), bytes.end()) != memory.end();
  };
  if (holds(all)) return true;
  // In pieces it may lie in receive buffers that are kept: serving the pool again applies them.
  auto copy = pmem::CrashableRegion::open({all.size(), region.domain(), all});
  if (!copy.ok()) return false;
  auto pool = pmem::Pool::attach(std::make_unique<pmem::LentRegion>(**copy));
  if (!pool.ok()) return false;
  const auto served = server::ServedPool::adopt(std::move(pool).value(), {}, kQueue);
  return served.ok() && (*served)->replayed() != 0 && holds((*copy)->bytes());
}

void EmulatedLogWorld::flip_bit(std::size_t index, std::uint64_t at, unsigned bit) {
  servers_[index]->region().flip_bit(pmem::kPoolDataOffset + at, bit);
}

std::string EmulatedLogWorld::program_name(std::size_t program) const {
  return program_machines_[program]->name();
}

bool EmulatedLogWorld::program_runs(std::size_t program) const {
  return program_machines_[program]->powered();
}

void EmulatedLogWorld::start_program(std::size_t program) {
  program_machines_[program]->power_on();
}

bool EmulatedLogWorld::reader_runs() const { return reader_machine_->powered(); }

void EmulatedLogWorld::start_reader() { reader_machine_->power_on(); }

std::unique_ptr<client::Peer> EmulatedLogWorld::peer_for(std::size_t program, std::size_t index) {
  return servers_[index]->peer(*program_machines_[program]);
}

std::unique_ptr<client::Peer> EmulatedLogWorld::peer_for_reader(std::size_t index) {
  return servers_[index]->peer(*reader_machine_);
}

LogWorld::Patience EmulatedLogWorld::patience() const {
  return {.replica_timeout = std::chrono::milliseconds(50),
          .ask = std::chrono::milliseconds(20),
          .read = std::chrono::milliseconds(50),
          .commit = std::chrono::seconds(1),
          .judged = !clock_.jumps};
}

/// Keeps what the media hold when something is committed already.
void EmulatedLogWorld::look_around() {
  constexpr std::uint64_t kRecords = 3;
  if (!options_of_machines_.media_go_back || acknowledged_ < kRecords || !older_.empty()) return;
  for (const auto& server : servers_) older_.push_back(server->region().durable());
}

void EmulatedLogWorld::calm() {
  finishing_ = true;
  world_.cancel_after();
  clock_.jumps = false;
  for (std::size_t index = 0; index < servers_.size(); ++index) {
    machine(index).starve(false);
    machine(index).refuse_revocations(false);
    set_links(index, fabric::emu::LinkState::Up, true);
  }
}

Scenario log_scenario(const EmulatedMachines& machines) {
  return scenario_of("log", [machines](const WorldOptions& options) {
    return std::unique_ptr<World>(std::make_unique<EmulatedLogWorld>(options, machines));
  });
}

}  // namespace perdure::test
