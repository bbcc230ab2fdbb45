// perdure-kv bench: YCSB on a store, measured.
#include <fmt/format.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <optional>

#include "bench_run.h"
#include "commands.h"
#include "core/json.h"
#include "core/try.h"
#include "pmem/file_systems.h"
#include "port_options.h"
#include "stop_signals.h"

namespace perdure::kv_app {
namespace {

constexpr int kBenchFormat = 1;  // docs/kv-bench.schema.json
constexpr std::uint64_t kFullRecords = 50'000;
constexpr std::uint64_t kFullOperations = 300'000;
constexpr const char* kBenchFooter = R"(
Without --server it starts a store of its own in --directory and removes it afterwards. Where that
directory is memory (/dev/shm), which no power failure spares, the store is declared as dmp: its
server writes cache lines back before it answers, as on persistent memory.
Keys have 8 bytes; records are chosen by the zipfian law of 0.99, in D the newest ones; E scans up
to 100 records. One client, one operation in flight.

examples:
  perdure-kv bench
      A to F, at the small sizes
  perdure-kv bench --workload a --full --format json
      50,000 records of 4 KiB, 300,000 operations)";

struct BenchArguments {
  std::string server;
  std::string directory = "/dev/shm";
  std::string workload = "all";
  std::string acknowledged = "durable";
  std::string declared;
  std::string format = "text";
  BenchSizes sizes;
  bool full = false;
};

/// What its own store's domain is declared as; nothing: what the pool's file system says.
Result<std::optional<PersistenceDomain>> domain_of(const BenchArguments& arguments) {
  std::optional<PersistenceDomain> declared;
  if (!arguments.declared.empty()) {
    PERDURE_TRY(domain, parse_persistence_domain(arguments.declared));
    declared = domain;
    return declared;
  }
  // A bench's store need not survive, but is to take the time of one that does.
  struct statfs status {};
  if (::statfs(arguments.directory.c_str(), &status) == 0 &&
      pmem::file_system_of(status).kind == pmem::MediumKind::Dram) {
    declared = PersistenceDomain::Dmp;
  }
  return declared;
}

/// A store of its own, in a directory that goes with it.
class OwnStore {
 public:
  static Result<std::unique_ptr<OwnStore>> open(const BenchArguments& arguments) {
    auto own = std::make_unique<OwnStore>();
    PERDURE_TRY(declared, domain_of(arguments));
    own->directory_ = fmt::format("{}/perdure-kv-bench.{}", arguments.directory, ::getpid());
    std::error_code failed;
    std::filesystem::create_directory(own->directory_, failed);
    if (failed) {
      return Error{ErrorCode::SystemError,
                   fmt::format("'{}' can not be made: {}", own->directory_, failed.message())};
    }
    KvServerOptions options;
    options.pool = own->directory_ + "/kv.pool";
    options.keys_max = 2 * arguments.sizes.records + arguments.sizes.operations;
    options.block_bytes = 1024;
    options.bytes = (arguments.sizes.records + arguments.sizes.operations / 10) *
                        (arguments.sizes.value_bytes + 2048) +
                    options.keys_max * 256 + (64 << 20);
    options.clients_max = 4;
    options.value_bytes_max = std::max<std::size_t>(arguments.sizes.value_bytes, 64 * 1024);
    options.listen = options.data_listen = "127.0.0.1:0";
    options.declared = declared;
    if (declared) own->declared_ = to_string(*declared);
    PERDURE_TRY(server, KvServer::open(options));
    own->server_.emplace(std::move(server));
    return own;
  }
  OwnStore() = default;
  OwnStore(const OwnStore&) = delete;
  OwnStore& operator=(const OwnStore&) = delete;
  ~OwnStore() {
    server_.reset();
    std::error_code ignored;
    if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
  }
  const std::string& address() const { return server_->address(); }
  /// As what its domain is declared; empty: nothing is.
  const std::string& declared() const { return declared_; }

 private:
  std::string directory_;
  std::string declared_;
  std::optional<KvServer> server_;
};

nlohmann::ordered_json json_of(const BenchResult& result) {
  nlohmann::ordered_json kinds = nlohmann::ordered_json::array();
  for (std::size_t kind = 0; kind < result.times.size(); ++kind) {
    const Times& times = result.times[kind];
    if (times.count() == 0) continue;
    kinds.push_back({{"kind", std::string(to_string(static_cast<workload::YcsbKind>(kind)))},
                     {"n", times.count()},
                     {"median_us", static_cast<double>(times.quantile(0.5)) / 1000},
                     {"p99_us", static_cast<double>(times.quantile(0.99)) / 1000},
                     {"max_us", static_cast<double>(times.max()) / 1000}});
  }
  return {{"workload", std::string(1, result.workload)},
          {"label", "measured"},
          {"operations", result.operations()},
          {"seconds", result.seconds},
          {"operations_per_second", static_cast<double>(result.operations()) / result.seconds},
          {"missing", result.missing},
          {"kinds", std::move(kinds)}};
}

void print_text(const BenchResult& result) {
  fmt::print("YCSB {}  {:>9.0f} operations/s [measured]\n", result.workload,
             static_cast<double>(result.operations()) / result.seconds);
  for (std::size_t kind = 0; kind < result.times.size(); ++kind) {
    const Times& times = result.times[kind];
    if (times.count() == 0) continue;
    fmt::print("        {:<18} n {:>7}  median {:>8.1f} us  p99 {:>8.1f} us\n",
               to_string(static_cast<workload::YcsbKind>(kind)), times.count(),
               static_cast<double>(times.quantile(0.5)) / 1000,
               static_cast<double>(times.quantile(0.99)) / 1000);
  }
  std::fflush(stdout);
}

Result<std::vector<workload::YcsbMix>> mixes_of(const std::string& word) {
  std::vector<workload::YcsbMix> mixes;
  for (const char name : word == "all" ? std::string("ABCDEF") : word) {
    PERDURE_TRY(mix, workload::ycsb_mix(name));
    mixes.push_back(mix);
  }
  return mixes;
}

Result<void> bench(BenchArguments& arguments) {
  PERDURE_TRY(mixes, mixes_of(arguments.workload));
  BenchSizes& sizes = arguments.sizes;
  PERDURE_TRY(stop, stop_descriptor());
  sizes.stop = stop;
  if (arguments.full) sizes.records = kFullRecords;
  if (arguments.full) sizes.operations = kFullOperations;
  sizes.acknowledged = arguments.acknowledged == "applied" ? RpcLevel::Applied : RpcLevel::Durable;
  std::unique_ptr<OwnStore> own;
  if (arguments.server.empty()) {
    PERDURE_TRY(opened, OwnStore::open(arguments));
    own = std::move(opened);
  }
  const std::string declared = own != nullptr ? own->declared() : "";
  PERDURE_TRY(client, open_store(own != nullptr ? own->address() : arguments.server,
                                 fmt::format("bench-{}", ::getpid()), PortArguments{}));
  PERDURE_TRY_VOID(load_records(client, sizes));
  const bool text = arguments.format == "text";
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  if (text) {
    fmt::print("{} records of {} bytes, {} operations of each workload, SET acknowledged {}\n",
               sizes.records, sizes.value_bytes, sizes.operations, arguments.acknowledged);
    if (!declared.empty()) fmt::print("its own store, its domain declared as {}\n", declared);
  }
  std::uint64_t missing = 0;
  for (const workload::YcsbMix& mix : mixes) {
    PERDURE_TRY(result, run_workload(client, mix, sizes));
    missing += result.missing;
    if (text)
      print_text(result);
    else
      results.push_back(json_of(result));
  }
  if (!text) {
    const nlohmann::ordered_json json = {{"format", kBenchFormat},
                                         {"records", sizes.records},
                                         {"value_bytes", sizes.value_bytes},
                                         {"acknowledged", arguments.acknowledged},
                                         {"declared_domain", declared},
                                         {"seed", sizes.seed},
                                         {"method", client.status().small_method},
                                         {"results", std::move(results)}};
    fmt::print("{}\n", json_text(json, 2));
  }
  if (missing == 0) return {};
  return Error{ErrorCode::Corrupt, fmt::format("{} reads did not find what was stored", missing)};
}

}  // namespace

void add_bench_command(const app::Program& program, int& status) {
  static BenchArguments arguments;
  const app::Command command = program.add_subcommand("bench", "YCSB A to F on a store.");
  command.footer(kBenchFooter);
  command.add_option("--server", arguments.server, "host:port of a server's control plane")
      .type_name("HOST:PORT");
  command.add_option("--directory", arguments.directory, "where its own store's file is made")
      .capture_default();
  command
      .add_option("--declare-domain", arguments.declared,
                  "of its own store; in memory dmp, unless given")
      .type_name("DOMAIN");
  command.add_option("--workload", arguments.workload, "letters of A to F, or all")
      .capture_default();
  command.add_option("--records", arguments.sizes.records, "that are there")
      .range(std::uint64_t{1}, std::uint64_t{100'000'000})
      .capture_default();
  command.add_option("--operations", arguments.sizes.operations, "of each workload")
      .range(std::uint64_t{1}, std::uint64_t{1'000'000'000})
      .capture_default();
  command.add_option("--seed", arguments.sizes.seed, "of the choices").capture_default();
  command.add_flag("--full", arguments.full, "50,000 records and 300,000 operations");
  command.add_option("--acknowledge", arguments.acknowledged, "a SET waits for: durable or applied")
      .is_member({"durable", "applied"})
      .capture_default();
  command.add_option("--format", arguments.format, "text or json")
      .is_member({"text", "json"})
      .capture_default();
  command.callback([&status] {
    const auto done = bench(arguments);
    status = done.ok() ? 0 : report(done.error());
  });
}

}  // namespace perdure::kv_app
