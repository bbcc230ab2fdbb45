// Worlds with three machines, and their power cuts.
#include "demo_power.h"

#include "bench_progress.h"
#include "core/random.h"
#include "core/try.h"
#include "demo_process.h"
#include "fabric/emu/world.h"
#include "peer/local_peer.h"
#include "peer/service.h"
#include "pmem/pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::app {
namespace {

namespace emu = fabric::emu;
using Order = emu::World::Options::Order;

constexpr std::size_t kQuorum = 2;
constexpr const char* kPool = "demo";
constexpr std::uint64_t kRegionBytes = 1 << 20;
constexpr Capabilities kNative{.native_flush = true, .atomic_write = true};

struct Kind {
  const char* name;
  ServerProfile profile;
};

using Kinds = std::array<Kind, 3>;

/// One machine of each kind that people have: a persistent DIMM, eADR, an SSD.
constexpr Kinds kMixed{{
    {"dimm",
     {PersistenceDomain::Dmp, Ddio::On, ReceiveBuffers::Dram, Transport::InfiniBand, kNative}},
    {"eadr",
     {PersistenceDomain::Mhp, Ddio::On, ReceiveBuffers::Dram, Transport::InfiniBand, kNative}},
    {"ssd",
     {PersistenceDomain::Page, Ddio::On, ReceiveBuffers::Dram, Transport::InfiniBand, kNative}},
}};

/// For latencies. The emulated world has one clock, which stands for all while an SSD writes.
constexpr Kinds kDimms{
    {{"dimm 1", kMixed[0].profile}, {"dimm 2", kMixed[0].profile}, {"dimm 3", kMixed[0].profile}}};

/// A region that lives elsewhere, for a pool that wants to own one.
class BorrowedRegion final : public pmem::Region {
 public:
  explicit BorrowedRegion(pmem::Region& region) : region_(region) {}
  std::span<std::byte> bytes() override { return region_.bytes(); }
  PersistenceDomain domain() const override { return region_.domain(); }
  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override { return region_.flush(ranges); }
  std::string evidence() const override { return region_.evidence(); }

 private:
  pmem::Region& region_;
};

/// A machine and the service that runs on it while there is power.
struct Server {
  emu::Machine* machine = nullptr;
  pmem::CrashableRegion* region = nullptr;
  ServerProfile profile;
  std::unique_ptr<peer::PeerService> service;
};

/// A server as a peer, whichever service runs on it just now.
class ServerPeer final : public peer::Peer {
 public:
  ServerPeer(Server& server, fabric::Device& device) : server_(server), device_(device) {}

  std::string name() const override { return server_.machine->name(); }
  fabric::Device& device() override { return device_; }
  Result<std::vector<peer::PoolDescription>> list(Deadline) override {
    return server_.service->list();
  }
  Result<peer::PoolDescription> describe(const std::string& pool, Deadline) override {
    return server_.service->describe(pool);
  }
  Result<peer::PoolDescription> create(const peer::PoolRequest& request, Deadline) override {
    return server_.service->create(request);
  }
  Result<peer::Session> open_session(const peer::SessionRequest& request,
                                     Deadline deadline) override {
    return peer::LocalPeer(name(), *server_.service, device_).open_session(request, deadline);
  }
  Result<void> close_session(std::uint64_t id, Deadline) override {
    return server_.service->close_session(id);
  }
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline) override {
    return server_.service->fence(pool, epoch);
  }

 private:
  Server& server_;
  fabric::Device& device_;
};

/// A world with a client and one server of each kind, each with an empty pool.
class Rack {
 public:
  Rack(std::uint64_t seed, Order order, const Kinds& kinds = kMixed)
      : kinds_(kinds), random_(seed), secrets_(seed + 1), world_(random_, {.order = order}) {}
  ~Rack() {
    log_.reset();
    for (Server& server : servers_) server.service.reset();
  }
  Rack(const Rack&) = delete;
  Rack& operator=(const Rack&) = delete;

  Result<void> start() {
    client_ = &world_.add_machine("client", kinds_[0].profile);
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      Server& server = servers_[i];
      server.machine = &world_.add_machine(kinds_[i].name, kinds_[i].profile);
      server.region = &server.machine->add_region(kRegionBytes);
      server.profile = kinds_[i].profile;
      PERDURE_TRY(pool, pmem::Pool::format(std::make_unique<BorrowedRegion>(*server.region), {}));
      PERDURE_TRY_VOID(serve(server, std::move(pool)));
    }
    return {};
  }

  /// Programs of a machine start anew over what its memory holds.
  Result<void> start_again(Server& server) {
    server.service.reset();
    server.machine->power_on();
    PERDURE_TRY(pool, pmem::Pool::attach(std::make_unique<BorrowedRegion>(*server.region)));
    return serve(server, std::move(pool));
  }

  void cut(Server& server) {
    if (server.machine->powered()) server.machine->power_cut();
    server.service->abandon();
  }

  Result<void> open_log(bool take_over) {
    log_.reset();
    log::WriterOptions options;
    options.pool = kPool;
    options.quorum = kQuorum;
    options.take_over = take_over;
    options.writer = secrets_.next() | 1;
    options.writer_name = "demo";
    options.record_bytes_max = 64 * 1024;
    options.measure_costs = false;  // the times of an emulated world say nothing
    PERDURE_TRY(log, log::ReplicatedLog::open(peers(), options, world_.clock()));
    log_ = std::move(log);
    return {};
  }

  std::vector<ReplicaCheck> read_back(const RecordText& text, std::uint64_t records) {
    std::vector<ReplicaCheck> checks;
    for (const auto& peer : peers()) {
      checks.push_back(check_replica(*peer, kPool, text, records, world_.clock()));
    }
    return checks;
  }

  log::ReplicatedLog& log() { return *log_; }
  void close_log() { log_.reset(); }
  emu::World& world() { return world_; }
  std::array<Server, std::tuple_size_v<Kinds>>& servers() { return servers_; }

 private:
  Result<void> serve(Server& server, std::unique_ptr<pmem::Pool> pool) {
    peer::ServiceOptions options;
    options.settings.ddio = server.profile.ddio;
    options.settings.receive_buffers = server.profile.receive_buffers;
    options.threads = false;
    options.clock = &world_.clock();
    options.secrets = [this] { return secrets_.next() | 1; };
    peer::DataPlane plane;
    plane.device = server.machine;
    PERDURE_TRY(service, peer::PeerService::open(std::move(options), {plane}));
    PERDURE_TRY_VOID(service->add_pool(kPool, std::move(pool)));
    server.service = std::move(service);
    server.machine->add_actor([&service = *server.service] { return service.pump(); });
    return {};
  }

  std::vector<std::unique_ptr<peer::Peer>> peers() {
    std::vector<std::unique_ptr<peer::Peer>> peers;
    for (Server& server : servers_) {
      peers.push_back(
          std::make_unique<peer::LocalPeer>(server.machine->name(), *server.service, *client_));
    }
    return peers;
  }

  const Kinds& kinds_;
  Random random_;
  Random secrets_;
  emu::World world_;
  emu::Machine* client_ = nullptr;
  std::array<Server, std::tuple_size_v<Kinds>> servers_;
  std::unique_ptr<log::ReplicatedLog> log_;
};

/// A run without a cut; returns how many events the appending takes.
Result<std::uint64_t> rehearse(Rack& rack, const RecordText& text, const PowerOptions& options,
                               std::size_t window, Latencies& latencies) {
  const std::uint64_t before = rack.world().events();
  Appender appender(rack.log(), text, rack.world().clock());
  appender.measure_into(latencies);
  while (appender.appended() < options.records) PERDURE_TRY_VOID(appender.append(window));
  PERDURE_TRY_VOID(appender.drain());
  return rack.world().events() - before;
}

Result<void> measure(const RecordText& text, PowerResult& result) {
  Rack rack(result.options.seed, Order::InTime, kDimms);
  PERDURE_TRY_VOID(rack.start());
  PERDURE_TRY_VOID(rack.open_log(false));
  PERDURE_TRY_VOID(rehearse(rack, text, result.options, 1, result.latencies));
  return {};
}

class Cut {
 public:
  Cut(PowerCut& cut, const PowerOptions& options, const RecordText& text, Order order)
      : cut_(cut), options_(options), text_(text), rack_(cut.seed, order) {}

  Result<void> run(Random& dice) {
    PERDURE_TRY_VOID(rack_.start());
    PERDURE_TRY_VOID(rack_.open_log(false));
    victim_ = dice.below(rack_.servers().size());
    all_ = dice.chance(1, 2);
    cut_.lost = all_ ? "all" : rack_.servers()[victim_].machine->name();
    cut_.event = 1 + dice.below(cut_.events);
    PERDURE_TRY_VOID(append_until_cut());
    PERDURE_TRY_VOID(all_ ? recover_all() : repair_one());
    rack_.close_log();
    cut_.checks = rack_.read_back(text_, options_.records);
    for (const ReplicaCheck& check : cut_.checks) {
      if (!check.equal) return Error{ErrorCode::Corrupt, check.peer + ": " + check.difference};
    }
    return {};
  }

 private:
  Result<void> append_until_cut() {
    Server& victim = rack_.servers()[victim_];
    rack_.world().cut_after(*victim.machine, cut_.event);
    Appender appender(rack_.log(), text_, rack_.world().clock());
    Result<void> appending;
    while (appending.ok() && victim.machine->powered() && appender.committed() < options_.records) {
      appending = appender.appended() < options_.records ? appender.append(options_.window)
                                                         : appender.drain();
    }
    rack_.world().cancel_cut();
    if (!appending.ok() && victim.machine->powered()) return appending.error();
    for (Server& server : rack_.servers()) {
      if (all_ || &server == &victim) rack_.cut(server);
    }
    cut_.appended = appender.appended();
    cut_.committed = appender.committed();
    if (all_) return {};
    // One machine is gone: the quorum of the others stands, and the writer just goes on.
    while (appender.appended() < options_.records) {
      PERDURE_TRY_VOID(appender.append(options_.window));
    }
    return appender.drain();
  }

  /// One machine was lost: it comes back and is repaired under the same writer.
  Result<void> repair_one() {
    cut_.recovered = options_.records;
    PERDURE_TRY_VOID(rack_.start_again(rack_.servers()[victim_]));
    for (const RepairReport& report : rack_.log().repair()) {
      cut_.found = report.found;
      if (!report.repaired) return Error{ErrorCode::Corrupt, report.error};
    }
    return {};
  }

  /// All machines were lost: a new writer recovers the log and goes on where it ends.
  Result<void> recover_all() {
    rack_.close_log();
    for (Server& server : rack_.servers()) PERDURE_TRY_VOID(rack_.start_again(server));
    PERDURE_TRY_VOID(rack_.open_log(true));
    for (const RepairReport& report : rack_.log().repaired_at_open()) {
      cut_.found += (cut_.found.empty() ? "" : "; ") + report.peer + ": " + report.found;
    }
    cut_.recovered = rack_.log().status().next_index;
    if (cut_.recovered < cut_.committed || cut_.recovered > cut_.appended) {
      return Error{ErrorCode::Corrupt,
                   fmt::format("{} records were recovered of {} committed and {} appended",
                               cut_.recovered, cut_.committed, cut_.appended)};
    }
    Appender appender(rack_.log(), text_, rack_.world().clock(), cut_.recovered);
    while (appender.appended() < options_.records) {
      PERDURE_TRY_VOID(appender.append(options_.window));
    }
    return appender.drain();
  }

  PowerCut& cut_;
  const PowerOptions& options_;
  const RecordText& text_;
  Rack rack_;
  std::size_t victim_ = 0;
  bool all_ = false;
};

}  // namespace

bool PowerResult::good() const {
  return !cuts.empty() && std::all_of(cuts.begin(), cuts.end(),
                                      [](const PowerCut& cut) { return cut.failure.empty(); });
}

Result<PowerResult> run_power_cuts(const PowerOptions& options, const RecordText& text) {
  PowerResult result;
  result.options = options;
  std::array<std::uint64_t, 2> events{};
  constexpr std::array<Order, 2> kOrders{Order::InTime, Order::Random};
  for (std::size_t i = 0; i < kOrders.size(); ++i) {
    Rack rack(options.seed, kOrders[i]);
    PERDURE_TRY_VOID(rack.start());
    PERDURE_TRY_VOID(rack.open_log(false));
    result.methods = methods_of(rack.log().status());
    Latencies unused;
    PERDURE_TRY(counted, rehearse(rack, text, options, options.window, unused));
    events[i] = counted;
  }
  PERDURE_TRY_VOID(measure(text, result));
  Random dice(options.seed);
  ProgressBar progress(options.cuts_max);
  const Deadline enough = Deadline::after(options.at_most);
  for (std::uint64_t i = 0; i < options.cuts_max && !enough.passed(); ++i) {
    PERDURE_TRY_VOID(InterruptGuard::check());
    progress.show(i, "power cuts");
    PowerCut cut;
    cut.seed = dice.next() >> 32;
    cut.events = events[i % events.size()];
    const auto held = Cut(cut, options, text, kOrders[i % kOrders.size()]).run(dice);
    if (!held.ok()) cut.failure = held.error().message;
    result.cuts_in_flight += cut.appended > cut.committed ? 1 : 0;
    result.cuts.push_back(std::move(cut));
  }
  return result;
}

Table power_table(const PowerResult& result) {
  Table table{{{"world's seed", false},
               {"cut at event"},
               {"of about"},
               {"power lost", false},
               {"appended"},
               {"committed"},
               {"recovered"},
               {"found afterwards", false},
               {"in the end", false}},
              {}};
  for (const PowerCut& cut : result.cuts) {
    table.rows.push_back({fmt::format("{:#x}", cut.seed), grouped(cut.event), grouped(cut.events),
                          cut.lost, grouped(cut.appended), grouped(cut.committed),
                          grouped(cut.recovered), cut.found,
                          cut.failure.empty() ? "nothing lost" : cut.failure});
  }
  return table;
}

}  // namespace perdure::app
