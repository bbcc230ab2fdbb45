// The questions and how each is answered. Every side of every round is a process of its own.
#include "bench/limits.h"

#include "bench/allocations.h"
#include "bench/bare.h"
#include "bench/child.h"
#include "bench/limits_log.h"
#include "bench/limits_mirror.h"
#include "bench/limits_objects.h"
#include "bench/limits_open.h"
#include "bench/limits_rpc.h"
#include "bench/limits_traced.h"
#include "bench/rpc_crowd.h"
#include "bench/server_process.h"
#include "control/service_types.h"
#include "core/byte_text.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/try.h"
#include "fabric/open_device.h"
#include "fabric/verbs/verbs.h"
#include "rpc/rpc_format.h"
#include "testing/peer_process.h"
#include "testing/temporary_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>

namespace perdure::bench {
namespace {

constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20;
constexpr std::size_t kManyInFlight = 64;
constexpr std::size_t kFewClients = 16;
constexpr std::size_t kManyClients = 1'000;
constexpr std::uint64_t kCrowdCallsPerSample = 10;
constexpr std::uint64_t kOpenTickets = 10'000;
constexpr std::size_t kBandwidthWindow = 8;

// The bare program polls without end. So do both sides of ours where a round takes longer than what
// they usually poll before they sleep.
constexpr std::chrono::microseconds kEmulatedSpin = std::chrono::milliseconds(100);
constexpr int kOneSidedTries = 3;

double percent(double part, double whole) { return whole == 0 ? 0 : part / whole * 100; }

/// What the pool of a log under test holds, and more.
constexpr std::uint64_t kByThreadsMax = 400'000;
constexpr std::uint64_t kTurns = 50'000;

class Limits {
 public:
  Limits(const LimitsOptions& options, const LimitsProgress& progress)
      : options_(options), progress_(progress) {}

  Result<std::vector<Finding>> run() {
    PERDURE_TRY_VOID(require_question());
    PERDURE_TRY(directory, test::TemporaryDirectory::make(kMemoryDirectory));
    PERDURE_TRY(peer, start_peer(directory.path() + "/peer"));
    peer_ = &peer;
    directory_ = directory.path();
    ask_all();
    remove_bare_leftovers();
    peer_ = nullptr;
    PERDURE_TRY_VOID(test::InterruptGuard::check());
    PERDURE_TRY_VOID(peer.stop());
    return std::move(findings_);
  }

  /// Of all questions of the fabrics, chosen or not, each once. None is asked.
  std::vector<std::string> names() {
    chosen_ = 0;
    names_.clear();
    names_only_ = true;
    ask_all();
    names_only_ = false;
    return names_;
  }

 private:
  void ask_all() {
    for (const std::string& transport : options_.fabrics) {
      ask("64 B durable, one in flight", transport, [&](Finding& f) { return latency(f); });
      if (transport == "verbs") {
        ask("64 B durable, one-sided", transport, [&](Finding& f) { return one_sided_latency(f); });
      }
      ask("sleeps, one in flight", transport, [&](Finding& f) { return sleeps(f); });
      ask("64 B durable, 64 in flight", transport, [&](Finding& f) { return window(f); });
      for (const std::size_t threads : std::array<std::size_t, 3>{1, 8, 64}) {
        ask(fmt::format("64 B durable, {}", counted(threads, "thread")), transport,
            [&](Finding& f) { return by_threads(f, threads); });
      }
      ask("1 MiB durable, bandwidth", transport, [&](Finding& f) { return bandwidth(f, false); });
      ask("1 MiB, both sides durable", transport, [&](Finding& f) { return bandwidth(f, true); });
      ask("1 MiB in place, both sides durable", transport,
          [&](Finding& f) { return bandwidth(f, true, /*in_place=*/true); });
      if (transport != "verbs") {
        ask("opening on three replicas", transport, [&](Finding& f) { return opening(f); });
      }
      if (transport != "verbs") ask_rpc(transport);
      if (transport != "verbs") ask_mirror(transport);
      ask("allocations per append", transport, [&](Finding& f) { return allocated(f); });
      ask("system calls of ours per append", transport, [&](Finding& f) { return calls(f); });
      // Over shm the transport is ours, and ends in a store.
      if (transport == "shm") continue;
      ask("instructions before the post", transport,
          [&](Finding& f) { return instructions(f, Primary::Send, PersistenceDomain::Mhp); });
      ask("instructions before the post, one-sided", transport,
          [&](Finding& f) { return instructions(f, Primary::Write, PersistenceDomain::Mhp); });
      ask("instructions before the post, write and message", transport,
          [&](Finding& f) { return instructions(f, Primary::Write, PersistenceDomain::Dmp); });
      ask("instructions of an append that gathers", transport,
          [&](Finding& f) { return gathering_instructions(f); });
      ask("posts per append", transport, [&](Finding& f) { return posts(f); });
    }
    ask("unapplied calls, scanned", "", [&](Finding& f) { return rpc_scan(f); });
    ask("100,000 unapplied calls, serving again", "", [&](Finding& f) { return rpc_recovery(f); });
    ask("processor of an idle peer", "", [&](Finding& f) { return idle_peer(f); });
    ask("processor of a waiting client", "", [&](Finding& f) { return idle_client(f); });
    ask("memory of a client", "", [&](Finding& f) { return memory(f); });
  }

  void ask_rpc(const std::string& transport) {
    ask("64 B call to durable", transport,
        [&](Finding& f) { return rpc_latency(f, RpcLevel::Durable); });
    ask("64 B call to applied", transport,
        [&](Finding& f) { return rpc_latency(f, RpcLevel::Applied); });
    ask("64 B calls durable, 64 in flight", transport,
        [&](Finding& f) { return rpc_window(f, RpcLevel::Durable); });
    ask("64 B calls applied, 64 in flight", transport,
        [&](Finding& f) { return rpc_window(f, RpcLevel::Applied); });
    ask("allocations per call", transport, [&](Finding& f) { return rpc_allocated(f); });
    ask("sleeps per call", transport, [&](Finding& f) { return rpc_sleeps(f); });
    ask("system calls of ours per call, client", transport,
        [&](Finding& f) { return rpc_system_calls(f); });
    ask("1,000 connections: processor", transport, [&](Finding& f) { return crowd_processor(f); });
    ask("1,000 connections: memory", transport, [&](Finding& f) { return crowd_memory(f); });
    ask("1,000 connections: fairness", transport, [&](Finding& f) { return crowd_fairness(f); });
    ask("1,000 connections: coming back", transport, [&](Finding& f) { return crowd_return(f); });
  }

  void ask_mirror(const std::string& transport) {
    using enum Mirrored;
    for (const Mirrored by : {ByMirror, ByLibrpmem}) {
      const std::string who = by == ByMirror ? "mirror: " : "mirror by librpmem: ";
      ask(who + "64 B durable", transport, [&](Finding& f) { return mirror_latency(f, by); });
      ask(who + "8 x 64 B, one drain", transport, [&](Finding& f) { return mirror_drain(f, by); });
      ask(who + "64 KiB durable, bandwidth", transport,
          [&](Finding& f) { return mirror_bandwidth(f, by); });
    }
    ask("mirror: three ordered epochs of 64 B", transport,
        [&](Finding& f) { return mirror_ordered(f); });
    ask("libpmemobj: transaction", transport, [&](Finding& f) { return object_latency(f); });
    ask("libpmemobj: transactions, 8 threads", transport,
        [&](Finding& f) { return object_threads(f); });
    ask("mirror: opening", transport, [&](Finding& f) { return mirror_opening(f); });
    ask("mirror by librpmem: opening", transport, [&](Finding& f) { return rpmem_opening(f); });
  }

  /// Errors: InvalidArgument: none of the questions is chosen. Nothing has been started then.
  Result<void> require_question() {
    (void)names();
    if (chosen_ != 0) return {};
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("no question has '{}' in its name", options_.only)};
  }

  /// What perdured calls it; of verbs, whatever the first RNIC speaks. That is looked for by a
  /// child, since an RNIC that was opened before a fork can not be used after it.
  Result<std::string> transport_of(const std::string& fabric) {
    if (fabric != "verbs") return fabric;
    if (!rnic_transport_.empty()) return rnic_transport_;
    const ChildWork look = [](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(rnics, fabric::verbs::list_rnics());
      return nlohmann::json{to_string(rnics.front().transport), rnics.front().software};
    };
    PERDURE_TRY(found, run_in_child(look));
    rnic_transport_ = found[0].get<std::string>();
    rnic_is_software_ = found[1].get<bool>();
    return rnic_transport_;
  }

  Result<test::PeerProcess> start_peer(const std::string& directory,
                                       std::optional<std::chrono::microseconds> spin = {},
                                       PersistenceDomain declared = PersistenceDomain::Dmp) {
    test::PeerProcessOptions options;
    options.directory = directory;
    options.declared = declared;
    for (const std::string& fabric : options_.fabrics) {
      PERDURE_TRY(transport, transport_of(fabric));
      options.transports.push_back(transport);
      options.allow_remote = options.allow_remote || fabric == "verbs";
    }
    // What is one-sided asks nothing of the peer, and its core is needed for the emulated RNIC.
    const bool answers = declared == PersistenceDomain::Dmp;
    if (rnic_is_software_ && answers && !spin) spin = kEmulatedSpin;
    options.spin = spin;
    return test::PeerProcess::start(std::move(options));
  }

  void ask(const std::string& question, const std::string& fabric,
           const std::function<Result<void>(Finding&)>& answer) {
    const bool chosen = question.find(options_.only) != std::string::npos;
    if (names_only_) {
      if (std::find(names_.begin(), names_.end(), question) == names_.end()) {
        names_.push_back(question);
      }
      chosen_ += chosen ? 1 : 0;
      return;
    }
    if (!chosen || test::InterruptGuard::interrupted()) return;
    asked_ = fabric.empty() ? question : fabric + ": " + question;
    if (progress_) progress_(asked_, findings_.size() * options_.rounds, all_rounds());
    Finding finding;
    finding.question = question;
    finding.fabric = fabric;
    const auto answered = answer(finding);  // some choose their fabric
    if (finding.fabric == "verbs" && rnic_is_software_) finding.origin = report::Origin::Emulated;
    if (!answered.ok()) finding.failure = answered.error().message;
    findings_.push_back(std::move(finding));
  }

  std::uint64_t all_rounds() const { return chosen_ * options_.rounds; }

  /// Whether the question has such a round. It begins then, and who waits hears of it.
  bool begins(std::size_t round) {
    if (round >= options_.rounds) return false;
    if (!progress_) return true;
    progress_(fmt::format("{}, round {} of {}", asked_, round + 1, options_.rounds),
              findings_.size() * options_.rounds + round, all_rounds());
    return true;
  }

  Result<LogUnderTestOptions> log_options(const Finding& finding) {
    LogUnderTestOptions options;
    options.peer = peer_->address();
    PERDURE_TRY(transport, transport_of(finding.fabric));
    options.transport = transport;
    options.pool = fmt::format("limits-{}", ++pools_);
    if (finding.fabric == "verbs" && rnic_is_software_) options.log.spin = kEmulatedSpin;
    return options;
  }

  /// Perdure's side of a round, in a process of its own.
  static Result<double> in_log(const LogUnderTestOptions& options,
                               const std::function<Result<double>(LogUnderTest&)>& work) {
    const ChildWork child = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(log, LogUnderTest::open(options));
      PERDURE_TRY(value, work(log));
      return nlohmann::json(value);
    };
    PERDURE_TRY(found, run_in_child(child));
    return found.get<double>();
  }

  static Result<double> in_bare(const std::function<Result<double>()>& work) {
    const ChildWork child = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(value, work());
      return nlohmann::json(value);
    };
    PERDURE_TRY(found, run_in_child(child));
    return found.get<double>();
  }

  static bench::BareProvider provider_of(const Finding& finding) {
    if (finding.fabric == "verbs") return bench::BareProvider::Verbs;
    return finding.fabric == "tcp" ? bench::BareProvider::Tcp : bench::BareProvider::Shm;
  }

  /// Rounds of the bare program and of Perdure, in turns, and their ratio round by round.
  Result<void> side_by_side(Finding& finding, const LogUnderTestOptions& options,
                            const std::function<Result<double>()>& bare_side,
                            const std::function<Result<double>(LogUnderTest&)>& our_side) {
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(bare, in_bare(bare_side));
      PERDURE_TRY(perdure, in_log(options, our_side));
      finding.bare.values.push_back(bare);
      finding.perdure.values.push_back(perdure);
      finding.ratio.values.push_back(perdure / bare);
    }
    return {};
  }

  Result<void> latency(Finding& finding) {
    finding.note = "bare: one message of 64 B, copied, CLWB and fence, one reply of 24 B";
    const bool tcp = finding.fabric == "tcp";
    bench::BareOptions exchange;
    exchange.persist = true;
    PERDURE_TRY(log, log_options(finding));
    return compare_latency(finding, log, exchange, {.at_most = tcp ? 1.05 : 1.10});
  }

  /// Where what is visible survives, nothing of the responder's processor is needed.
  Result<void> one_sided_latency(Finding& finding) {
    finding.note = "domain declared as mhp; bare: WRITE of 64 B and READ of 8 in one post";
    bench::BareOptions exchange;
    exchange.operation = bench::BareOperation::WriteRead;
    PERDURE_TRY(peer, start_peer(directory_ + "/mhp", {}, PersistenceDomain::Mhp));
    PERDURE_TRY(log, log_options(finding));
    log.peer = peer.address();
    // Where little processor time is to be had, a message may be measured to be cheaper, and
    // nothing one-sided would be timed.
    log.log.primary = Primary::Write;
    log.log.measure_costs = false;
    Result<void> compared;
    for (int tries = 0; tries < kOneSidedTries; ++tries) {
      finding.bare = finding.perdure = finding.ratio = {};
      finding.bare_p99 = finding.perdure_p99 = {};
      compared = compare_latency(finding, log, exchange, {.one_sided = true});
      if (compared.ok() || compared.code() != ErrorCode::OutcomeUnknown) break;
    }
    if (!compared.ok()) return compared;
    return peer.stop();
  }

  struct LatencyWanted {
    double at_most = 1.10;   // times the bare program's
    bool one_sided = false;  // a method by which the peer's processor answers is not to be timed
  };
  /// Of a round: p50 and p99, in microseconds.
  static nlohmann::json quantiles(const report::Histogram& latencies) {
    const auto microseconds = [&](double part) {
      return static_cast<double>(latencies.quantile(part).count()) / 1e3;
    };
    return {microseconds(0.5), microseconds(0.99)};
  }

  Result<void> compare_latency(Finding& finding, const LogUnderTestOptions& options,
                               const bench::BareOptions& exchange, LatencyWanted wanted) {
    const ChildWork our_side = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(ours, LogUnderTest::open(options));
      PERDURE_TRY_VOID(ours.one_by_one(options_.samples / 5));
      PERDURE_TRY(latencies, ours.one_by_one(options_.samples));
      const std::string method = ours.log().status().replicas.front().small_method;
      if (wanted.one_sided && method.ends_with("-ack")) {
        return Error{ErrorCode::OutcomeUnknown,
                     fmt::format("the log was written by {}, which is not one-sided", method)};
      }
      nlohmann::json found = quantiles(latencies);
      found.push_back(method);
      return found;
    };
    return compare_with_bare(finding, our_side, exchange, wanted);
  }

  Result<void> compare_with_bare(Finding& finding, const ChildWork& our_side,
                                 const bench::BareOptions& exchange, LatencyWanted wanted) {
    return compare_rounds(
        finding, [&] { return run_in_child(our_side); }, exchange, wanted);
  }

  /// Of a bare exchange, by a process of its own.
  Result<nlohmann::json> bare_quantiles(const Finding& finding, bench::BareOptions exchange) {
    exchange.provider = provider_of(finding);
    exchange.rounds = options_.samples;
    exchange.warm_up = options_.samples / 5;
    return run_in_child([&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(samples, bench::bare_latencies(exchange));
      report::Histogram latencies;
      for (const std::uint64_t ns : samples) {
        latencies.add(Nanoseconds(static_cast<std::int64_t>(ns)));
      }
      return quantiles(latencies);
    });
  }

  /// Rounds of both in turns; each of ours is what `our_side` finds by a process of its own.
  Result<void> compare_rounds(Finding& finding,
                              const std::function<Result<nlohmann::json>()>& our_side,
                              const bench::BareOptions& exchange, LatencyWanted wanted) {
    finding.unit = "us, p50";
    finding.target = fmt::format("Perdure / bare at most {:.2f}", wanted.at_most);
    std::set<std::string> methods;  // of ours, which is measured when a log opens
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(bare, bare_quantiles(finding, exchange));
      PERDURE_TRY(ours, our_side());
      finding.bare.values.push_back(bare[0].get<double>());
      finding.perdure.values.push_back(ours[0].get<double>());
      finding.ratio.values.push_back(ours[0].get<double>() / bare[0].get<double>());
      finding.bare_p99.values.push_back(bare[1].get<double>());
      finding.perdure_p99.values.push_back(ours[1].get<double>());
      if (ours.size() > 2) methods.insert(ours[2].get<std::string>());
    }
    if (!methods.empty()) finding.note += fmt::format("; Perdure: {}", fmt::join(methods, ", "));
    finding.met = finding.ratio.median() <= wanted.at_most;
    return {};
  }

  /// Perdure's side of a round of calls, in a process of its own.
  Result<RpcUnderTestOptions> rpc_options(const Finding& finding,
                                          const RpcServerUnderTest& server) {
    RpcUnderTestOptions options;
    options.server = server.address();
    options.transport = finding.fabric;
    options.name = fmt::format("client-{}", ++pools_);
    return options;
  }
  Result<RpcServerUnderTest> start_rpc_server() {
    return RpcServerUnderTest::start({fmt::format("{}/rpc-{}", directory_, ++pools_)});
  }

  Result<void> rpc_latency(Finding& finding, RpcLevel level) {
    const bool durable = level == RpcLevel::Durable;
    const bool twice = !durable && finding.fabric == "shm";
    finding.note = fmt::format(
        "empty handler, executed where the call arrives; bare: one message of 64 B, copied, CLWB "
        "and fence{}, one reply of 24 B",
        twice ? ", both twice" : "");
    PERDURE_TRY(server, start_rpc_server());
    PERDURE_TRY(options, rpc_options(finding, server));
    bench::BareOptions exchange;
    exchange.persist = true;
    exchange.times_persisted = twice ? 2 : 1;
    const ChildWork our_side = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(calls, RpcUnderTest::open(options));
      PERDURE_TRY_VOID(calls.one_by_one(options_.samples / 5, level));
      PERDURE_TRY(latencies, calls.one_by_one(options_.samples, level));
      return quantiles(latencies);
    };
    return compare_with_bare(finding, our_side, exchange,
                             {.at_most = durable || twice ? 1.10 : 1.25});
  }

  Result<void> rpc_window(Finding& finding, RpcLevel level) {
    finding.unit = "calls/s";
    finding.target = "64 in flight / one in flight at least 5";
    PERDURE_TRY(server, start_rpc_server());
    PERDURE_TRY(options, rpc_options(finding, server));
    for (std::size_t round = 0; begins(round); ++round) {
      const ChildWork work = [&](const ChildPipes&) -> Result<nlohmann::json> {
        PERDURE_TRY(calls, RpcUnderTest::open(options));
        PERDURE_TRY_VOID(calls.windowed(options_.samples / 5, 1, level));
        PERDURE_TRY(alone, calls.windowed(options_.samples, 1, level));
        PERDURE_TRY_VOID(calls.windowed(options_.samples, kManyInFlight, level));
        PERDURE_TRY(many, calls.windowed(10 * options_.samples, kManyInFlight, level));
        return nlohmann::json{alone, many};
      };
      PERDURE_TRY(rates, run_in_child(work));
      finding.perdure.values.push_back(rates[1].get<double>());
      finding.ratio.values.push_back(rates[1].get<double>() / rates[0].get<double>());
    }
    finding.met = finding.ratio.median() >= 5;
    return {};
  }

  Result<void> rpc_allocated(Finding& finding) {
    finding.unit = "allocations";
    finding.target = "0";
    if (!allocations_counted()) {
      return Error{ErrorCode::Unsupported, "this build has a sanitizer's operator new"};
    }
    PERDURE_TRY(server, start_rpc_server());
    PERDURE_TRY(options, rpc_options(finding, server));
    const std::uint64_t calls = options_.samples;
    const ChildWork work = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(client, RpcUnderTest::open(options));
      // Until as many replies are remembered as ever.
      PERDURE_TRY_VOID(client.windowed(2 * calls + 5'000, kManyInFlight, RpcLevel::Applied));
      PERDURE_TRY(server_before, client.allocated_by_server());
      const std::uint64_t before = allocations();
      PERDURE_TRY_VOID(client.only_call(calls / 2, RpcLevel::Durable));
      PERDURE_TRY_VOID(client.only_call(calls / 2, RpcLevel::Applied));
      const std::uint64_t ours = allocations() - before;
      PERDURE_TRY(server_after, client.allocated_by_server());
      return nlohmann::json{ours, server_after - server_before};
    };
    PERDURE_TRY(counts, run_in_child(work));
    const auto each = [&](std::size_t index) {
      return counts[index].get<double>() / static_cast<double>(calls);
    };
    finding.perdure.values.push_back(each(0) + each(1));
    finding.met = finding.perdure.median() == 0;
    finding.note = fmt::format(
        "operator new of both threads, half of the calls to durable, half to applied; the client "
        "{:.3f} a call, the server {:.3f}",
        each(0), each(1));
    return {};
  }

  /// A pool of calls that nobody has executed, in a directory of its own.
  Result<std::string> unapplied(std::uint64_t calls, std::uint64_t payload_bytes) {
    const std::string directory = fmt::format("{}/rpc-{}", directory_, ++pools_);
    const ChildWork make = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY_VOID(make_unapplied(directory, calls, payload_bytes));
      return nlohmann::json(0);
    };
    PERDURE_TRY_VOID(run_in_child(make));
    return directory;
  }

  enum class Mirrored { ByMirror, ByLibrpmem };

  /// For a process of its own.
  Result<std::unique_ptr<MirrorUnderTest>> open_mirrored(Mirrored by, const std::string& fabric,
                                                         int number) {
    if (by == Mirrored::ByMirror) {
      return open_mirror({fabric, peer_->address(), fmt::format("limits-{}", number)});
    }
    const std::string place = fmt::format("{}/rpmem-{}", directory_, number);
    std::error_code failed;
    std::filesystem::create_directories(place, failed);
    if (failed) return Error{ErrorCode::SystemError, place + ": " + failed.message()};
    return open_librpmem(place, fabric);
  }

  /// What one round finds, in a process of its own.
  Result<nlohmann::json> in_mirror(
      const Finding& finding, Mirrored by,
      const std::function<Result<nlohmann::json>(MirrorUnderTest&)>& work) {
    const int number = static_cast<int>(++pools_);
    return run_in_child([&, number](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(memory, open_mirrored(by, finding.fabric, number));
      PERDURE_TRY_VOID(persisted(*memory, options_.samples / 5, 64));
      return work(*memory);
    });
  }

  Result<void> mirror_latency(Finding& finding, Mirrored by) {
    finding.note = "bare: one message of 64 B, copied, CLWB and fence, one reply of 24 B";
    bench::BareOptions exchange;
    exchange.persist = true;
    const auto our_side = [&]() -> Result<nlohmann::json> {
      return in_mirror(finding, by, [&](MirrorUnderTest& memory) -> Result<nlohmann::json> {
        PERDURE_TRY(latencies, persisted(memory, options_.samples, 64));
        return quantiles(latencies);
      });
    };
    return compare_rounds(finding, our_side, exchange, {.at_most = 1.15});
  }

  /// Times of something, in a process that also times one persist of 64 B.
  Result<void> beside_one_persist(
      Finding& finding, Mirrored by, double at_most,
      const std::function<Result<report::Histogram>(MirrorUnderTest&)>& timed) {
    finding.unit = "us, p50";
    finding.target = fmt::format("it / one persist of 64 B at most {:.2f}", at_most);
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(found,
                  in_mirror(finding, by, [&](MirrorUnderTest& memory) -> Result<nlohmann::json> {
                    PERDURE_TRY(single, persisted(memory, options_.samples, 64));
                    PERDURE_TRY(it, timed(memory));
                    return nlohmann::json{quantiles(single), quantiles(it)};
                  }));
      finding.perdure.values.push_back(found[1][0].get<double>());
      finding.perdure_p99.values.push_back(found[1][1].get<double>());
      finding.ratio.values.push_back(found[1][0].get<double>() / found[0][0].get<double>());
    }
    finding.met = finding.ratio.median() <= at_most;
    return {};
  }

  Result<void> mirror_drain(Finding& finding, Mirrored by) {
    finding.note = "eight ranges of 64 B are flushed, and drained together";
    return beside_one_persist(finding, by, 1.50, [&](MirrorUnderTest& memory) {
      return drained(memory, options_.samples / 2, 8);
    });
  }

  Result<void> mirror_ordered(Finding& finding) {
    finding.note = "each epoch durable before anything of the next one is stored";
    return beside_one_persist(finding, Mirrored::ByMirror, 1.20, [&](MirrorUnderTest& memory) {
      return ordered(memory, options_.samples / 2, 3);
    });
  }

  Result<void> mirror_bandwidth(Finding& finding, Mirrored by) {
    constexpr std::uint64_t kRange = 64 * 1024;
    finding.unit = "MiB/s";
    finding.target = "Perdure / bare at least 0.90";
    finding.note =
        "8 in flight; bare: writes to the places of a ring as large, each with CLWB, fence and "
        "reply";
    const std::uint64_t bytes = std::max<std::uint64_t>(options_.samples, 32) * kRange;
    bench::BareBandwidthOptions writes;
    writes.provider = provider_of(finding);
    writes.bytes = kRange;
    writes.window = kBandwidthWindow;
    writes.places = kMirroredBytes / kRange;
    writes.warm_up = 2 * writes.places;
    writes.total_bytes = bytes;
    writes.persist = true;
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(bare, in_bare([&] { return bench::bare_bandwidth(writes); }));
      PERDURE_TRY(found,
                  in_mirror(finding, by, [&](MirrorUnderTest& memory) -> Result<nlohmann::json> {
                    PERDURE_TRY_VOID(
                        mirrored_per_second(memory, 2 * kMirroredBytes, kRange, kBandwidthWindow));
                    PERDURE_TRY(rate, mirrored_per_second(memory, bytes, kRange, kBandwidthWindow));
                    return nlohmann::json(rate);
                  }));
      const double ours = found.get<double>();
      finding.bare.values.push_back(bare / static_cast<double>(kMebibyte));
      finding.perdure.values.push_back(ours / static_cast<double>(kMebibyte));
      finding.ratio.values.push_back(ours / bare);
    }
    finding.met = finding.ratio.median() >= 0.90;
    return {};
  }

  /// A directory for one pool of libpmemobj and its replica.
  Result<ObjectsUnderTestOptions> objects_options(const std::string& transport) {
    ObjectsUnderTestOptions options{fmt::format("{}/objects-{}", directory_, ++pools_), transport};
    std::error_code failed;
    std::filesystem::create_directories(options.directory, failed);
    if (failed) return Error{ErrorCode::SystemError, options.directory + ": " + failed.message()};
    return options;
  }

  Result<void> object_latency(Finding& finding) {
    constexpr double kAtMost = 1.20;
    finding.unit = "us, p50";
    finding.target = fmt::format("it, less it without a replica, / {:.0f} bare at most {:.2f}",
                                 kPersistsPerTransaction, kAtMost);
    finding.note = fmt::format(
        "a transaction of two fields, {:.0f} persists; bare: as for a persist of 64 B, once",
        kPersistsPerTransaction);
    bench::BareOptions exchange;
    exchange.persist = true;
    const auto in_objects = [&](const std::string& transport) -> Result<nlohmann::json> {
      PERDURE_TRY(options, objects_options(transport));
      return run_in_child([&](const ChildPipes&) -> Result<nlohmann::json> {
        PERDURE_TRY(latencies, transactions(options, options_.samples));
        return quantiles(latencies);
      });
    };
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(bare, bare_quantiles(finding, exchange));
      PERDURE_TRY(local, in_objects(""));
      PERDURE_TRY(ours, in_objects(finding.fabric));
      finding.bare.values.push_back(bare[0].get<double>());
      finding.bare_p99.values.push_back(bare[1].get<double>());
      finding.perdure.values.push_back(ours[0].get<double>());
      finding.perdure_p99.values.push_back(ours[1].get<double>());
      finding.ratio.values.push_back((ours[0].get<double>() - local[0].get<double>()) /
                                     (kPersistsPerTransaction * bare[0].get<double>()));
    }
    finding.met = finding.ratio.median() <= kAtMost;
    return {};
  }

  Result<void> object_threads(Finding& finding) {
    finding.unit = "transactions/s";
    finding.target = "8 threads / one at least 1";
    finding.note = "each thread has two fields of its own, and a lane";
    const auto by = [&](std::size_t threads) -> Result<double> {
      PERDURE_TRY(options, objects_options(finding.fabric));
      return in_bare([&] { return transactions_per_second(options, options_.samples, threads); });
    };
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(one, by(1));
      PERDURE_TRY(many, by(8));
      finding.perdure.values.push_back(many);
      finding.ratio.values.push_back(many / one);
    }
    finding.met = finding.ratio.median() >= 1;
    return {};
  }

  Result<void> mirror_opening(Finding& finding) {
    finding.unit = "ms";
    finding.target = "at most 50";
    finding.note = fmt::format(
        "a mirror of {} that is there, on a running perdured, by a new process, until it is in "
        "sync; bare: what the provider takes of that, once in a process",
        format_bytes(kMirroredBytes));
    PERDURE_TRY(transport, control::parse_transport_choice(finding.fabric));
    const int number = static_cast<int>(++pools_);
    const auto opened = [&](const ChildPipes&) -> Result<nlohmann::json> {
      const Nanoseconds begun = Clock::monotonic().now();
      PERDURE_TRY(device, fabric::open_device(*transport));
      const Nanoseconds provided = Clock::monotonic().now();
      PERDURE_TRY(memory, open_mirrored(Mirrored::ByMirror, finding.fabric, number));
      return nlohmann::json{(provided - begun).count(), (Clock::monotonic().now() - begun).count()};
    };
    PERDURE_TRY_VOID(run_in_child(opened));  // makes it
    return time_openings(finding, [&] { return run_in_child(opened); });
  }

  /// `opened` tells the nanoseconds of the provider, and of all.
  Result<void> time_openings(Finding& finding,
                             const std::function<Result<nlohmann::json>()>& opened) {
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(took, opened());
      finding.bare.values.push_back(took[0].get<double>() / 1e6);
      finding.perdure.values.push_back(took[1].get<double>() / 1e6);
    }
    finding.met = finding.perdure.median() <= 50;
    return {};
  }

  Result<void> rpmem_opening(Finding& finding) {
    finding.unit = "ms";
    finding.target = "at most 50";
    finding.note = fmt::format(
        "rpmem_open of a pool of {} that is there, on an rpmemd that listens, by a new process; "
        "bare: what the provider takes of that, once in a process",
        format_bytes(kMirroredBytes));
    PERDURE_TRY(transport, control::parse_transport_choice(finding.fabric));
    const std::string place = fmt::format("{}/rpmem-{}", directory_, ++pools_);
    std::error_code failed;
    std::filesystem::create_directories(place, failed);
    if (failed) return Error{ErrorCode::SystemError, place + ": " + failed.message()};
    PERDURE_TRY(target, ListeningRpmemd::start(place));
    const auto opened = [&](bool make) {
      return run_in_child([&](const ChildPipes&) -> Result<nlohmann::json> {
        const Nanoseconds begun = Clock::monotonic().now();
        PERDURE_TRY(device, fabric::open_device(*transport));
        const Nanoseconds provided = Clock::monotonic().now() - begun;
        PERDURE_TRY(took, opened_by_librpmem(target.address(), finding.fabric, make));
        return nlohmann::json{provided.count(), (provided + took).count()};
      });
    };
    PERDURE_TRY_VOID(opened(true));
    return time_openings(finding, [&] { return opened(false); });
  }

  Result<void> rpc_scan(Finding& finding) {
    finding.unit = "GiB/s";
    finding.target = "at least 1";
    constexpr std::uint64_t kPayload = 1024 - rpc::kEntryHeadBytes;
    constexpr std::uint64_t kCalls = 64 * 1024;
    finding.note = "a ring of 64 MiB in entries of 1 KiB, each copied and its checksum compared";
    PERDURE_TRY(directory, unapplied(kCalls, kPayload));
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(rate, in_bare([&] { return scanned_per_second(directory); }));
      finding.perdure.values.push_back(rate / static_cast<double>(kMebibyte) / 1024);
    }
    finding.met = finding.perdure.median() >= 1;
    return remove_calls(directory);
  }

  Result<void> rpc_recovery(Finding& finding) {
    finding.unit = "s";
    finding.target = "at most 1";
    constexpr std::uint64_t kCalls = 100'000;
    finding.note = "64 B each, empty handler: from opening the server until it serves";
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(directory, unapplied(kCalls, 64));
      PERDURE_TRY(seconds, in_bare([&] { return seconds_to_serve(directory); }));
      finding.perdure.values.push_back(seconds);
      PERDURE_TRY_VOID(remove_calls(directory));
    }
    finding.met = finding.perdure.median() <= 1;
    return {};
  }

  static Result<void> remove_calls(const std::string& directory) {
    std::error_code failed;  // the space is wanted for the next question
    std::filesystem::remove_all(directory, failed);
    if (!failed) return {};
    return Error{ErrorCode::SystemError, fmt::format("{}: {}", directory, failed.message())};
  }

  Result<void> rpc_sleeps(Finding& finding) {
    finding.unit = "sleeps per call";
    finding.target = "at most 0.05";
    PERDURE_TRY(server, start_rpc_server());
    PERDURE_TRY(options, rpc_options(finding, server));
    const pid_t serving = server.pid();
    const ChildWork work = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(client, RpcUnderTest::open(options));
      PERDURE_TRY_VOID(client.only_call(options_.samples / 5, RpcLevel::Applied));
      PERDURE_TRY(ours_before, test::context_switches(::getpid()));
      PERDURE_TRY(theirs_before, test::context_switches(serving));
      PERDURE_TRY_VOID(client.only_call(options_.samples, RpcLevel::Applied));
      PERDURE_TRY(ours, test::context_switches(::getpid()));
      PERDURE_TRY(theirs, test::context_switches(serving));
      return nlohmann::json{test::switched(ours_before, ours).slept,
                            test::switched(theirs_before, theirs).slept};
    };
    PERDURE_TRY(counts, run_in_child(work));
    const auto each = [&](std::size_t index) {
      return counts[index].get<double>() / static_cast<double>(options_.samples);
    };
    finding.perdure.values.push_back(each(0) + each(1));
    finding.met = finding.perdure.median() <= 0.05;
    finding.note = fmt::format(
        "to applied; the client slept {:.3f} times a call, the server {:.3f}", each(0), each(1));
    return {};
  }

  Result<void> rpc_system_calls(Finding& finding) {
    finding.unit = "calls";
    finding.target = "0";
    constexpr std::uint64_t kCalls = 200;
    constexpr int kRunsMax = 5;  // as in calls()
    PERDURE_TRY(server, start_rpc_server());
    PERDURE_TRY(options, rpc_options(finding, server));
    SyscallCount count;
    for (int run = 0; run < kRunsMax && (run == 0 || count.ours() != 0); ++run) {
      PERDURE_TRY(counted, count_calls(options, kCalls));
      if (run == 0 || counted.ours() < count.ours()) count = std::move(counted);
    }
    finding.perdure.values.push_back(static_cast<double>(count.ours()) /
                                     static_cast<double>(kCalls));
    finding.met = count.ours() == 0;
    finding.note = fmt::format(
        "busy polling, traced, half to durable, half to applied; the provider makes {} in all",
        count.total() - count.ours());
    for (const auto& [name, number] : count.calls) {
      if (!is_of_transport(name)) finding.note += fmt::format("; {}: {}", name, number);
    }
    return {};
  }

  struct Crowds {
    std::vector<CrowdFindings> few;
    std::vector<CrowdFindings> many;
  };
  /// Run once for all questions that want to know. Valid until the next call.
  Result<const Crowds*> crowds_of(const std::string& fabric) {
    if (const auto known = crowds_.find(fabric); known != crowds_.end()) return &known->second;
    Crowds crowds;
    for (std::size_t round = 0; begins(round); ++round) {
      for (const std::size_t clients : {kFewClients, kManyClients}) {
        CrowdOptions options;
        options.directory = fmt::format("{}/crowd-{}", directory_, ++pools_);
        options.transport = fabric;
        options.clients = clients;
        options.calls = kCrowdCallsPerSample * options_.samples;
        options.lose_server = clients == kManyClients;
        PERDURE_TRY(found, run_crowd(options));
        PERDURE_TRY_VOID(remove_calls(options.directory));
        (clients == kFewClients ? crowds.few : crowds.many).push_back(found);
      }
    }
    return &crowds_.emplace(fabric, std::move(crowds)).first->second;
  }

  Result<void> crowd_processor(Finding& finding) {
    finding.unit = "us a call";
    finding.target = "1,000 / 16 connections at most 1.25";
    PERDURE_TRY(crowds, crowds_of(finding.fabric));
    Series few;
    Series rate;
    for (std::size_t round = 0; round < crowds->many.size(); ++round) {
      const CrowdFindings& many = crowds->many[round];
      few.values.push_back(crowds->few[round].processor_us);
      rate.values.push_back(many.calls_per_second);
      finding.perdure.values.push_back(many.processor_us);
      finding.ratio.values.push_back(many.processor_us / few.values.back());
    }
    finding.met = finding.ratio.median() <= 1.25;
    finding.note = fmt::format(
        "of the server; one client process, one thread, each connection with one call of 8 B in "
        "flight, to applied; 16 connections: {:.1f} us; 1,000: {:.0f} calls/s",
        few.median(), rate.median());
    return {};
  }

  Result<void> crowd_memory(Finding& finding) {
    finding.unit = "MiB";
    finding.target = "below 1,024";
    finding.note = "resident, beyond the pool's file";
    PERDURE_TRY(crowds, crowds_of(finding.fabric));
    for (const CrowdFindings& many : crowds->many) {
      finding.perdure.values.push_back(static_cast<double>(many.server_bytes) /
                                       static_cast<double>(kMebibyte));
    }
    finding.met = finding.perdure.high() < 1024;
    return {};
  }

  Result<void> crowd_fairness(Finding& finding) {
    finding.unit = "most calls of a client / fewest";
    finding.target = "at most 2";
    PERDURE_TRY(crowds, crowds_of(finding.fabric));
    for (const CrowdFindings& many : crowds->many) {
      finding.perdure.values.push_back(
          static_cast<double>(many.calls_most) /
          static_cast<double>(std::max<std::uint64_t>(many.calls_fewest, 1)));
    }
    finding.met = finding.perdure.high() <= 2;
    finding.note = fmt::format("of {} calls in all", kCrowdCallsPerSample * options_.samples);
    return {};
  }

  Result<void> crowd_return(Finding& finding) {
    finding.unit = "s";
    finding.target = "all served again, each call executed once";
    PERDURE_TRY(crowds, crowds_of(finding.fabric));
    Series away;
    Series connects;
    for (const CrowdFindings& many : crowds->many) {
      away.values.push_back(many.away_s);
      connects.values.push_back(static_cast<double>(many.connects_most));
      finding.perdure.values.push_back(many.back_s);
    }
    finding.met = true;  // or there would be no answer
    finding.note = fmt::format(
        "from where the server, killed in traffic, serves again after {:.2f} s, until each client "
        "was served; at most {:.0f} TCP connections begun in a second, by all of this host",
        away.median(), connects.high());
    return {};
  }

  Result<void> window(Finding& finding) {
    finding.unit = "records/s";
    finding.target = "64 in flight / one in flight at least 5";
    PERDURE_TRY(options, log_options(finding));
    for (std::size_t round = 0; begins(round); ++round) {
      double one = 0;
      PERDURE_TRY(many, in_log(options, [&](LogUnderTest& log) -> Result<double> {
                    PERDURE_TRY_VOID(log.windowed(options_.samples, kManyInFlight));
                    return log.windowed(10 * options_.samples, kManyInFlight);
                  }));
      PERDURE_TRY(alone, in_log(options, [&](LogUnderTest& log) -> Result<double> {
                    PERDURE_TRY_VOID(log.windowed(options_.samples / 5, 1));
                    return log.windowed(options_.samples, 1);
                  }));
      one = alone;
      finding.perdure.values.push_back(many);
      finding.ratio.values.push_back(many / one);
    }
    finding.met = finding.ratio.median() >= 5;
    return {};
  }

  Result<void> by_threads(Finding& finding, std::size_t threads) {
    finding.unit = "records/s";
    finding.target =
        threads == 1 ? "LogWriter / Log at least 0.80" : "threads / one caller at least 1";
    finding.note =
        "each thread commits one record after the other by one LogWriter; compared with one caller "
        "of a Log";
    if (threads > 1) {
      finding.note += "; bare: as many threads that only hand a turn on, by condition variables";
    }
    PERDURE_TRY(options, log_options(finding));
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(alone, in_log(options, [&](LogUnderTest& log) -> Result<double> {
                    PERDURE_TRY_VOID(log.windowed(options_.samples / 5, 1));
                    return log.windowed(options_.samples, 1);
                  }));
      PERDURE_TRY(many, in_bare([&] {
                    return committed_by_threads(
                        options, std::min(2 * options_.samples, kByThreadsMax), threads);
                  }));
      if (threads > 1) {
        PERDURE_TRY(turns, in_bare([&] { return turns_of_threads(kTurns, threads); }));
        finding.bare.values.push_back(turns);
      }
      finding.perdure.values.push_back(many);
      finding.ratio.values.push_back(many / alone);
    }
    finding.met = finding.ratio.median() >= (threads == 1 ? 0.8 : 1.0);
    return {};
  }

  Result<void> bandwidth(Finding& finding, bool bare_is_durable, bool in_place = false) {
    finding.unit = "MiB/s";
    finding.target = "Perdure / bare at least 0.90";
    finding.note = "bare: writes of 1 MiB to the places of a ring as large, ";
    finding.note += bare_is_durable ? "each with CLWB, fence and reply" : "nothing made durable";
    finding.note += fmt::format(", from {} buffers; Perdure: ", kBandwidthWindow);
    finding.note += in_place ? "by claims of space; both store each word of a record first, where "
                               "it is sent from, as a program that makes it does"
                             : "append, which copies, of as many; the records are there before";
    PERDURE_TRY(options, log_options(finding));
    options.record_bytes = kMebibyte;
    options.in_place = in_place;
    options.sources = kBandwidthWindow;    // as many as the bare program's
    options.pool_bytes = 256 * kMebibyte;  // a trim drains it, so not too often
    const std::uint64_t places = options.pool_bytes / kMebibyte;
    const std::uint64_t records = std::max<std::uint64_t>(options_.samples / 20, 32);
    bench::BareBandwidthOptions writes;
    writes.provider = provider_of(finding);
    writes.bytes = kMebibyte;
    writes.window = kBandwidthWindow;
    writes.places = places;
    writes.warm_up = 2 * places;
    writes.total_bytes = records * kMebibyte;
    writes.persist = bare_is_durable;
    writes.produce = in_place;
    const auto bare_side = [&]() -> Result<double> {
      PERDURE_TRY(rate, bench::bare_bandwidth(writes));
      return rate / static_cast<double>(kMebibyte);
    };
    const auto our_side = [&](LogUnderTest& log) -> Result<double> {
      PERDURE_TRY_VOID(log.windowed(2 * places, kBandwidthWindow));
      return log.windowed(records, kBandwidthWindow);
    };
    PERDURE_TRY_VOID(side_by_side(finding, options, bare_side, our_side));
    finding.met = finding.ratio.median() >= 0.90;
    return {};
  }

  /// Three daemons of this machine have a log each, and one of them is also read once.
  Result<void> opening(Finding& finding) {
    finding.unit = "s";
    finding.target = "opening / reading at most 3";
    finding.note = fmt::format(
        "a log of {} in records of 64 KiB, everything verified; bare: Perdure's own reader reads "
        "as "
        "many bytes of one replica, and looks at none; the provider's library is loaded before the "
        "clock of either starts",
        format_bytes(options_.log_bytes));
    LogToOpen log;
    log.transport = finding.fabric;
    log.pool = "limits-open";
    log.bytes = options_.log_bytes;
    std::vector<test::PeerProcess> peers;
    for (const char* name : {"a", "b", "c"}) {
      const std::string place = fmt::format("{}/open-{}-{}", directory_, finding.fabric, name);
      PERDURE_TRY(peer, start_peer(place));
      log.peers.push_back(peer.address());
      peers.push_back(std::move(peer));
    }
    const auto filled = [&]() -> Result<double> {
      PERDURE_TRY_VOID(fill(log));
      return 0.0;
    };
    PERDURE_TRY_VOID(in_bare(filled));
    for (std::size_t round = 0; begins(round); ++round) {
      PERDURE_TRY(read, in_bare([&] { return seconds_to_read(log); }));
      PERDURE_TRY(opened, in_bare([&] { return seconds_to_open(log); }));
      finding.bare.values.push_back(read);
      finding.perdure.values.push_back(opened);
      finding.ratio.values.push_back(opened / read);
    }
    finding.met = finding.ratio.median() <= 3;
    for (test::PeerProcess& peer : peers) PERDURE_TRY_VOID(peer.stop());
    for (const char* name : {"a", "b", "c"}) {
      std::error_code ignored;  // the space is wanted for the next question
      std::filesystem::remove_all(fmt::format("{}/open-{}-{}", directory_, finding.fabric, name),
                                  ignored);
    }
    return {};
  }

  Result<void> allocated(Finding& finding) {
    finding.unit = "allocations";
    finding.target = "0";
    if (!allocations_counted()) {
      return Error{ErrorCode::Unsupported, "this build has a sanitizer's operator new"};
    }
    const std::uint64_t appends = options_.samples;
    PERDURE_TRY(options, log_options(finding));
    const ChildWork count = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(log, LogUnderTest::open(options));
      std::array<Ticket, kManyInFlight> places;
      PERDURE_TRY_VOID(log.windowed(appends, places));
      PERDURE_TRY_VOID(append_and_wait(log, appends / 5));
      const std::uint64_t before = allocations();
      PERDURE_TRY_VOID(append_and_wait(log, appends));
      const std::uint64_t between = allocations();
      PERDURE_TRY_VOID(log.windowed(appends, places));
      return nlohmann::json{between - before, allocations() - between};
    };
    PERDURE_TRY(counts, run_in_child(count));
    const auto each = [&](std::size_t index) {
      return counts[index].get<double>() / static_cast<double>(appends);
    };
    finding.perdure.values.push_back((each(0) + each(1)) / 2);
    finding.met = finding.perdure.median() == 0;
    finding.note = fmt::format(
        "operator new of the client's thread, a record: one or two in flight {:.3f}, {} in flight "
        "{:.3f}; libfabric's malloc is not counted",
        each(0), kManyInFlight, each(1));
    return {};
  }

  /// The bare loop of a program: nothing of the measurement's own in it.
  static Result<void> append_and_wait(LogUnderTest& log, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      PERDURE_TRY(ticket, log.log().append(log.record()));
      if (i % 2 == 0) PERDURE_TRY_VOID(log.log().wait(ticket, Level::Durable));
    }
    PERDURE_TRY_VOID(log.log().poll());
    return {};
  }

  /// From append to what the transport is handed, one append in flight.
  Result<void> instructions(Finding& finding, Primary primary, PersistenceDomain domain) {
    finding.unit = "instructions";
    finding.target = "at most 300";
    PERDURE_TRY(steps, steps_of(finding.fabric, primary, domain));
    finding.note = fmt::format(
        "from Log::append to the first instruction of the transport's library, by {} ({})",
        steps->method, to_string(domain));
    finding.perdure.values = steps->posting;
    finding.met = finding.perdure.median() <= 300;
    return {};
  }

  /// Of an append that posts nothing, since it finds one in flight.
  Result<void> gathering_instructions(Finding& finding) {
    finding.unit = "instructions";
    finding.target = "at most 150";
    PERDURE_TRY(steps, steps_of(finding.fabric, Primary::Send, PersistenceDomain::Mhp));
    finding.note = fmt::format("behind one in flight, from Log::append to its return, by {} (mhp)",
                               steps->method);
    finding.perdure.values = steps->gathering;
    finding.met = finding.perdure.median() <= 150;
    return {};
  }

  /// Counted once for all questions that want to know. Valid until the next call.
  Result<const StepCount*> steps_of(const std::string& fabric, Primary primary,
                                    PersistenceDomain domain) {
    constexpr std::uint64_t kAppends = 20;
    const std::string name = fmt::format("{}-{}-{}", fabric, to_string(primary), to_string(domain));
    if (const auto known = steps_.find(name); known != steps_.end()) return &known->second;
    PERDURE_TRY(polling, start_peer(directory_ + "/stepping-" + name, kTracedSpin, domain));
    Finding over;
    over.fabric = fabric;
    PERDURE_TRY(options, log_options(over));
    options.log.primary = primary;
    options.peer = polling.address();
    PERDURE_TRY(steps, count_steps(options, kAppends));
    PERDURE_TRY_VOID(polling.stop());
    return &steps_.emplace(name, std::move(steps)).first->second;
  }

  Result<void> posts(Finding& finding) {
    finding.unit = "posts";
    finding.target = "at most 1";
    PERDURE_TRY(options, log_options(finding));
    const ChildWork child = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(log, LogUnderTest::open(options));
      PERDURE_TRY_VOID(log.one_by_one(options_.samples / 5));
      const ReplicaStatus before = log.log().status().replicas.front();
      PERDURE_TRY_VOID(log.one_by_one(options_.samples));
      const ReplicaStatus after = log.log().status().replicas.front();
      PERDURE_TRY_VOID(log.windowed(options_.samples, kManyInFlight));
      const ReplicaStatus end = log.log().status().replicas.front();
      return nlohmann::json{after.posts - before.posts, after.requests - before.requests,
                            after.messages - before.messages, end.posts - after.posts};
    };
    PERDURE_TRY(counts, run_in_child(child));
    const auto each = [&](std::size_t index) {
      return counts[index].get<double>() / static_cast<double>(options_.samples);
    };
    finding.perdure.values.push_back(each(0));
    finding.met = each(0) <= 1;
    finding.note = fmt::format(
        "one in flight: {:.2f} work requests, of them {:.2f} messages; 64 in flight: {:.2f} "
        "posts",
        each(1), each(2), each(3));
    return {};
  }

  /// A side that sleeps between two messages is woken for each of them.
  Result<void> sleeps(Finding& finding) {
    finding.unit = "sleeps per append";
    finding.target = "at most 0.05";
    PERDURE_TRY(options, log_options(finding));
    const pid_t peer = peer_->pid();
    const ChildWork child = [&](const ChildPipes&) -> Result<nlohmann::json> {
      PERDURE_TRY(log, LogUnderTest::open(options));
      PERDURE_TRY_VOID(log.one_by_one(options_.samples / 5));
      PERDURE_TRY(ours_before, test::context_switches(::getpid()));
      PERDURE_TRY(peer_before, test::context_switches(peer));
      PERDURE_TRY_VOID(log.one_by_one(options_.samples));
      PERDURE_TRY(ours, test::context_switches(::getpid()));
      PERDURE_TRY(theirs, test::context_switches(peer));
      const test::ContextSwitches client = test::switched(ours_before, ours);
      const test::ContextSwitches server = test::switched(peer_before, theirs);
      return nlohmann::json{client.slept, client.preempted, server.slept, server.preempted};
    };
    PERDURE_TRY(counts, run_in_child(child));
    const auto each = [&](std::size_t index) {
      return counts[index].get<double>() / static_cast<double>(options_.samples);
    };
    finding.perdure.values.push_back(each(0) + each(2));
    finding.met = finding.perdure.median() <= 0.05;
    finding.note = fmt::format(
        "the client slept {:.3f} times an append, the peer {:.3f}; they lost their processor "
        "{:.3f} and {:.3f} times",
        each(0), each(2), each(1), each(3));
    return {};
  }

  Result<void> calls(Finding& finding) {
    finding.unit = "calls";
    finding.target = "0";
    constexpr std::uint64_t kAppends = 200;  // each call stops the process twice
    // A peer that sleeps has to be woken, by a call that is traced, so that it sleeps again; it
    // also sleeps when the tracer takes its core. What an append needs is in every run.
    constexpr int kRunsMax = 5;
    PERDURE_TRY(polling, start_peer(directory_ + "/polling-" + finding.fabric, kTracedSpin));
    PERDURE_TRY(options, log_options(finding));
    options.peer = polling.address();
    SyscallCount count;
    for (int run = 0; run < kRunsMax && (run == 0 || count.ours() != 0); ++run) {
      PERDURE_TRY(counted, count_calls(options, kAppends));
      if (run == 0 || counted.ours() < count.ours()) count = std::move(counted);
    }
    const double ours = static_cast<double>(count.ours()) / static_cast<double>(kAppends);
    finding.perdure.values.push_back(ours);
    finding.met = count.ours() == 0;
    finding.note = fmt::format("busy polling, traced; the provider makes {} (polling included)",
                               count.total() - count.ours());
    for (const auto& [name, number] : count.calls) {
      if (!is_of_transport(name)) finding.note += fmt::format("; {}: {}", name, number);
    }
    return {};
  }

  Nanoseconds idle_time() const {
    return std::chrono::seconds(static_cast<std::int64_t>(options_.idle_seconds));
  }

  /// Processor time of a process while this one sleeps, in percent of one core.
  Result<double> load_of(pid_t process) const {
    PERDURE_TRY(before, test::processor_time(process));
    const Nanoseconds begun = Clock::monotonic().now();
    test::pause_for(idle_time());
    PERDURE_TRY(after, test::processor_time(process));
    const Nanoseconds took = Clock::monotonic().now() - begun;
    return percent(static_cast<double>((after - before).count()),
                   static_cast<double>(took.count()));
  }

  Result<void> idle_peer(Finding& finding) {
    finding.unit = "% of a core";
    finding.target = "below 2";
    finding.fabric = options_.fabrics.front();
    PERDURE_TRY(options, log_options(finding));
    finding.note = fmt::format("perdured with an open session, {} s after some appends",
                               options_.idle_seconds);
    const ChildWork child = [&](const ChildPipes& pipes) -> Result<nlohmann::json> {
      PERDURE_TRY(log, LogUnderTest::open(options));
      PERDURE_TRY_VOID(log.one_by_one(100));
      PERDURE_TRY_VOID(tell(pipes.to_parent));
      PERDURE_TRY_VOID(await_word(pipes.from_parent));
      return nlohmann::json(0);
    };
    double load = 0;
    const ParentWork watch = [&](const ChildTask& task) -> Result<void> {
      PERDURE_TRY_VOID(await_word(task.from_child));
      test::pause_for(std::chrono::milliseconds(500));
      PERDURE_TRY(percent_of_core, load_of(peer_->pid()));
      load = percent_of_core;
      return tell(task.to_child);
    };
    PERDURE_TRY_VOID(run_in_child(child, watch));
    finding.perdure.values.push_back(load);
    finding.met = load < 2;
    return {};
  }

  /// A client that waits for a peer that was stopped: it polls a little, then sleeps.
  Result<void> idle_client(Finding& finding) {
    finding.unit = "% of a core";
    finding.target = "below 2";
    finding.fabric = options_.fabrics.front();
    finding.note =
        fmt::format("waits {} s for a record while its peer is stopped", options_.idle_seconds);
    PERDURE_TRY(stopped, start_peer(directory_ + "/stopped"));
    PERDURE_TRY(options, log_options(finding));
    options.peer = stopped.address();
    options.log.replica_timeout = std::chrono::minutes(10);
    const ChildWork child = [&](const ChildPipes& pipes) -> Result<nlohmann::json> {
      PERDURE_TRY(log, LogUnderTest::open(options));
      PERDURE_TRY_VOID(log.one_by_one(100));
      PERDURE_TRY_VOID(tell(pipes.to_parent));
      PERDURE_TRY_VOID(await_word(pipes.from_parent));  // from here on the peer is stopped
      PERDURE_TRY(ticket, log.log().append(log.record()));
      PERDURE_TRY_VOID(log.log().wait(ticket, Level::Durable, std::chrono::minutes(5)));
      return nlohmann::json(0);
    };
    double load = 0;
    const ParentWork watch = [&](const ChildTask& task) -> Result<void> {
      PERDURE_TRY_VOID(await_word(task.from_child));
      stopped.signal(SIGSTOP);
      PERDURE_TRY_VOID(tell(task.to_child));
      test::pause_for(std::chrono::milliseconds(500));
      const auto percent_of_core = load_of(task.pid);
      stopped.signal(SIGCONT);
      if (!percent_of_core.ok()) return percent_of_core.error();
      load = *percent_of_core;
      return {};
    };
    PERDURE_TRY_VOID(run_in_child(child, watch));
    finding.perdure.values.push_back(load);
    finding.met = load < 2;
    return stopped.stop();
  }

  Result<void> memory(Finding& finding) {
    finding.unit = "MiB resident";
    finding.target = "below 64 beyond registered buffers";
    finding.fabric = options_.fabrics.front();
    PERDURE_TRY(options, log_options(finding));
    options.pool_bytes = options_.log_bytes;
    finding.note = fmt::format(
        "{} open tickets, a log of {} opened again; all that opening and "
        "appending made resident, registered buffers included",
        report::grouped(kOpenTickets), format_bytes(options_.log_bytes));
    // First a process fills the log, then another opens it.
    LogUnderTestOptions filling = options;
    filling.record_bytes = kMebibyte;
    const std::uint64_t records = options_.log_bytes / kMebibyte * 9 / 20;
    PERDURE_TRY_VOID(in_log(
        filling, [&](LogUnderTest& log) { return log.windowed(records, kBandwidthWindow); }));
    PERDURE_TRY(mebibytes, in_child_resident(options));
    finding.perdure.values.push_back(mebibytes);
    finding.met = mebibytes < 64;
    return {};
  }

  static Result<double> in_child_resident(const LogUnderTestOptions& options) {
    return in_bare([&]() -> Result<double> {
      PERDURE_TRY(before, test::resident_bytes(::getpid()));
      PERDURE_TRY(log, LogUnderTest::open(options));
      std::vector<Ticket> tickets;
      for (std::uint64_t i = 0; i < kOpenTickets; ++i) {
        PERDURE_TRY(ticket, log.log().append(log.record()));
        tickets.push_back(ticket);
      }
      PERDURE_TRY(after, test::resident_bytes(::getpid()));
      PERDURE_TRY_VOID(log.log().wait(tickets.back(), Level::Durable));
      return static_cast<double>(after - before) / static_cast<double>(kMebibyte);
    });
  }

  const LimitsOptions& options_;
  const LimitsProgress& progress_;
  std::string directory_;
  test::PeerProcess* peer_ = nullptr;
  std::string rnic_transport_;
  bool rnic_is_software_ = false;
  int pools_ = 0;
  std::string asked_;  // the question of now, and its fabric
  std::vector<Finding> findings_;
  std::map<std::string, Crowds> crowds_;    // by fabric
  std::map<std::string, StepCount> steps_;  // by fabric and method
  std::vector<std::string> names_;          // of all questions, as they are asked
  bool names_only_ = false;                 // nothing is answered yet
  std::uint64_t chosen_ = 0;                // questions, of all fabrics
};

double middle(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

double Series::median() const { return middle(values); }

double Series::deviation() const {
  std::vector<double> distances;
  for (const double value : values) distances.push_back(std::abs(value - median()));
  return middle(std::move(distances));
}

double Series::low() const {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

double Series::high() const {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

Result<std::vector<Finding>> find_limits(const LimitsOptions& options,
                                         const LimitsProgress& progress) {
  return Limits(options, progress).run();
}

std::vector<std::string> limits_questions(const LimitsOptions& options) {
  return Limits(options, {}).names();
}

}  // namespace perdure::bench
