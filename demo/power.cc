// Worlds with three machines, and their power cuts.
#include "demo/power.h"

#include "core/random.h"
#include "core/try.h"
#include "report/progress.h"
#include "testing/process.h"
#include "testing/world_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::demo {
namespace {

namespace emu = fabric::emu;
using Order = emu::World::Options::Order;

constexpr std::size_t kPowerQuorum = 2;
constexpr const char* kPowerPool = "demo";
constexpr std::uint64_t kPoolBytes = 1 << 20;
constexpr persist::ReceiveQueue kQueue{};
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

/// A world with a client and one server of each kind, each with an empty pool.
class Rack {
 public:
  using Servers = std::array<std::unique_ptr<test::WorldServer>, std::tuple_size_v<Kinds>>;

  Rack(std::uint64_t seed, Order order, const Kinds& kinds = kMixed)
      : kinds_(kinds), random_(seed), secrets_(seed + 1), world_(random_, {.order = order}) {}

  Result<void> start() {
    client_ = &world_.add_machine("client", kinds_[0].profile);
    for (std::size_t i = 0; i < kinds_.size(); ++i) {
      PERDURE_TRY(server, test::WorldServer::start(world_, kinds_[i].name, kinds_[i].profile,
                                                   {kPowerPool, kPoolBytes, kQueue}));
      servers_[i] = std::move(server);
    }
    return {};
  }

  Result<void> open_log(bool take_over) {
    log_.reset();
    log::WriterOptions options;
    options.pool = kPowerPool;
    options.quorum = kPowerQuorum;
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
      checks.push_back(check_replica(*peer, kPowerPool, text, records, world_.clock()));
    }
    return checks;
  }

  log::ReplicatedLog& log() { return *log_; }
  void close_log() { log_.reset(); }
  emu::World& world() { return world_; }
  Servers& servers() { return servers_; }

 private:
  std::vector<std::unique_ptr<client::Peer>> peers() {
    std::vector<std::unique_ptr<client::Peer>> peers;
    for (const auto& server : servers_) peers.push_back(server->peer(*client_));
    return peers;
  }

  const Kinds& kinds_;
  Random random_;
  Random secrets_;
  emu::World world_;
  emu::Machine* client_ = nullptr;
  Servers servers_;
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

  Result<void> run(Random& prng) {
    PERDURE_TRY_VOID(rack_.start());
    PERDURE_TRY_VOID(rack_.open_log(false));
    victim_ = prng.below(rack_.servers().size());
    all_ = prng.chance(1, 2);
    cut_.lost = all_ ? "all" : rack_.servers()[victim_]->machine().name();
    cut_.event = 1 + prng.below(cut_.events);
    PERDURE_TRY_VOID(append_until_cut());
    PERDURE_TRY_VOID(all_ ? recover_all() : repair_one());
    // Committed is what a quorum has; the last replica gets the rest while the log is closed.
    PERDURE_TRY_VOID(rack_.log().close(std::chrono::seconds(30)));
    rack_.close_log();
    cut_.checks = rack_.read_back(text_, options_.records);
    for (const ReplicaCheck& check : cut_.checks) {
      if (!check.equal) return Error{ErrorCode::Corrupt, check.peer + ": " + check.difference};
    }
    return {};
  }

 private:
  Result<void> append_until_cut() {
    test::WorldServer& victim = *rack_.servers()[victim_];
    rack_.world().cut_after(victim.machine(), cut_.event);
    Appender appender(rack_.log(), text_, rack_.world().clock());
    Result<void> appending;
    while (appending.ok() && victim.machine().powered() &&
           appender.committed() < options_.records) {
      appending = appender.appended() < options_.records ? appender.append(options_.window)
                                                         : appender.drain();
    }
    rack_.world().cancel_cut();
    if (!appending.ok() && victim.machine().powered()) return appending.error();
    for (const auto& server : rack_.servers()) {
      if (all_ || server.get() == &victim) server->lose_power();
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
    PERDURE_TRY_VOID(rack_.servers()[victim_]->start_again());
    // When everything was committed before the cut nobody has found it to be down yet.
    PERDURE_TRY_VOID(rack_.log().poll());
    for (const RepairReport& report : rack_.log().repair()) {
      cut_.found = report.found;
      if (!report.repaired) return Error{ErrorCode::Corrupt, report.error};
    }
    return {};
  }

  /// All machines were lost: a new writer recovers the log and goes on where it ends.
  Result<void> recover_all() {
    rack_.close_log();
    for (const auto& server : rack_.servers()) PERDURE_TRY_VOID(server->start_again());
    PERDURE_TRY_VOID(rack_.open_log(true));
    for (const RepairReport& report : rack_.log().take_repairs()) {
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
  Random prng(options.seed);
  report::ProgressBar progress(options.cuts_max);
  const Deadline enough = Deadline::after(options.at_most);
  for (std::uint64_t i = 0; i < options.cuts_max && !enough.passed(); ++i) {
    PERDURE_TRY_VOID(test::InterruptGuard::check());
    progress.show(i, "power cuts");
    PowerCut cut;
    cut.seed = prng.next() >> 32;
    cut.events = events[i % events.size()];
    const auto held = Cut(cut, options, text, kOrders[i % kOrders.size()]).run(prng);
    if (!held.ok()) cut.failure = held.error().message;
    result.cuts_in_flight += cut.appended > cut.committed ? 1 : 0;
    result.cuts.push_back(std::move(cut));
  }
  return result;
}

report::Table power_table(const PowerResult& result) {
  report::Table table{{{"world's seed", false},
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
    table.rows.push_back({fmt::format("{:#x}", cut.seed), report::grouped(cut.event),
                          report::grouped(cut.events), cut.lost, report::grouped(cut.appended),
                          report::grouped(cut.committed), report::grouped(cut.recovered), cut.found,
                          cut.failure.empty() ? "nothing lost" : cut.failure});
  }
  return table;
}

}  // namespace perdure::demo
