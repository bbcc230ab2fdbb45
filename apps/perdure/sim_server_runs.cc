#include "sim_server_runs.h"

#include "core/assert.h"
#include "core/random.h"
#include "core/try.h"
#include "output.h"
#include "sim_files.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>

namespace perdure::app {

using memsys::Ordering;
using memsys::ServerResult;
using workload::StructureKind;

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20;
constexpr std::uint64_t kRemoteBytes = 64 * kMiB;  // where remote epochs go, behind the program

std::uint64_t footprint_of(StructureKind kind, const ServerRunOptions& options) {
  return options.footprint_mib > 0 ? options.footprint_mib * kMiB
                                   : workload::published_footprint(kind);
}

workload::TransactionsOptions program_options(const ServerRunOptions& options,
                                              std::uint32_t threads) {
  workload::TransactionsOptions program;
  program.logging = options.logging;
  program.threads = threads;
  program.partitions = static_cast<std::uint32_t>(options.partitions);
  program.seed = options.seed;
  program.durable_commits = options.durable_commits;
  program.log_gap = options.log_gap;
  return program;
}

/// Of the remote channels. Another seed, or a channel would do what a thread does.
workload::TransactionsOptions remote_program_options(const ServerRunOptions& options) {
  workload::TransactionsOptions program =
      program_options(options, static_cast<std::uint32_t>(options.remote_channels));
  program.seed = ~options.seed;
  return program;
}

Result<ServerResult> simulate(const ServerSetup& setup, const ServerRunOptions& options,
                              const workload::Structure& structure, Ordering order,
                              const std::string& which, StatusLine& status) {
  workload::Transactions program(structure.clone(),
                                 program_options(options, setup.processor.threads()));
  std::optional<workload::Transactions> remote;
  if (options.remote_trace) remote.emplace(structure.clone(), remote_program_options(options));
  memsys::ServerOptions run;
  run.ordering = order;
  run.persist_point = options.persist_point;
  run.transactions = options.transactions;
  run.warm_transactions = options.warm_up;
  run.warm_progress = [&](std::uint64_t transactions) {
    status.show(fmt::format("{}, warm-up {} %", which, 100 * transactions / options.warm_up));
  };
  run.progress = [&](std::uint64_t transactions) {
    status.show(fmt::format("{}, {} %", which, 100 * transactions / options.transactions));
  };
  run.remote = {static_cast<std::uint32_t>(options.remote_channels),
                options.remote_epoch_bytes,
                options.remote_interval_ns * 1000,
                program.bytes() / memsys::kCacheLineBytes,
                kRemoteBytes / memsys::kCacheLineBytes,
                options.seed,
                remote ? &*remote : nullptr};
  return memsys::run_server(setup.device, setup.processor, program, run);
}

}  // namespace

Result<ServerSetup> read_server_setup(const ServerRunOptions& options) {
  PERDURE_TRY(device, device_of(options.device));
  PERDURE_TRY(processor, processor_of(options.processor));
  if (device.geometry.line_bytes != memsys::kCacheLineBytes) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: lines of {} bytes; the caches' have {}", options.device,
                             device.geometry.line_bytes, memsys::kCacheLineBytes)};
  }
  if (options.cores > 0) processor.cores = static_cast<std::uint32_t>(options.cores);
  return ServerSetup{std::move(device), std::move(processor)};
}

ServerSetup scaled(ServerSetup setup, const ServerScale& scale) {
  memsys::Geometry& geometry = setup.device.geometry;
  PERDURE_ASSERT(geometry.rows % scale.banks == 0);
  geometry.banks *= scale.banks;
  geometry.rows /= scale.banks;
  memsys::ControllerOptions& controller = setup.device.controller;
  for (std::uint64_t* const places :
       {&controller.window, &controller.read_queue, &controller.write_queue,
        &controller.high_watermark, &controller.low_watermark}) {
    *places *= scale.window;
  }
  setup.processor.buffer_entries *= scale.entries;
  setup.processor.queue_entries *= scale.entries;
  setup.processor.barrier_registers *= scale.entries;
  return setup;
}

Result<void> check_whole_lines(std::string_view option, std::uint64_t bytes) {
  if (bytes % memsys::kCacheLineBytes == 0) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("{}: {} bytes are no whole lines of {}; use a multiple of it", option,
                           bytes, memsys::kCacheLineBytes)};
}

Result<void> check_log_gap(const ServerRunOptions& options) {
  return check_whole_lines("--log-gap", options.log_gap);
}

Result<void> check_servers(const ServerSetup& setup, const ServerRunOptions& options) {
  for (const StructureKind kind : options.workloads) {
    const std::uint64_t bytes = footprint_of(kind, options);
    if (bytes / options.partitions < workload::kPartitionBytesMin) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} in {} MiB has less than {} bytes for each of {} partitions: "
                               "use fewer with --partitions, or a larger --footprint-mib",
                               workload::to_string(kind), bytes / kMiB,
                               workload::kPartitionBytesMin, options.partitions)};
    }
    const auto needs = [&](const workload::TransactionsOptions& program) {
      return workload::Transactions::bytes_for(bytes, program);
    };
    const std::uint64_t needed =
        needs(program_options(options, setup.processor.threads())) +
        (options.remote_trace ? needs(remote_program_options(options)) : kRemoteBytes);
    if (needed > setup.device.geometry.bytes()) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} needs {} MiB of memory and {} has {}: use a smaller "
                               "--footprint-mib",
                               workload::to_string(kind), needed / kMiB, setup.device.name,
                               setup.device.geometry.bytes() / kMiB)};
    }
  }
  return {};
}

const workload::Structure& BuiltStructures::of(StructureKind kind,
                                               const ServerRunOptions& options) {
  const std::uint64_t bytes = footprint_of(kind, options);
  auto& structure = built_[{kind, bytes, options.partitions, options.seed}];
  if (structure == nullptr) {
    Random random(options.seed);
    structure = workload::make_structure(
        kind, {bytes, static_cast<std::uint32_t>(options.partitions)}, random);
  }
  return *structure;
}

Result<void> simulate_servers(const ServerSetup& setup, const ServerRunOptions& options,
                              BuiltStructures& structures, std::vector<ServerRow>& rows) {
  PERDURE_TRY_VOID(check_servers(setup, options));
  StatusLine status;
  for (const StructureKind kind : options.workloads) {
    status.show(fmt::format("{}: building", workload::to_string(kind)));
    const workload::Structure& structure = structures.of(kind, options);
    for (const Ordering order : options.orders) {
      const std::string which =
          fmt::format("{}: {} ({} of {})", workload::to_string(kind), memsys::to_string(order),
                      rows.size() + 1, options.workloads.size() * options.orders.size());
      status.show(which);
      auto result = simulate(setup, options, structure, order, which, status);
      if (!result.ok()) {
        return Error{result.code(), fmt::format("{} under {}: {}", workload::to_string(kind),
                                                memsys::to_string(order), result.error().message)};
      }
      rows.push_back({kind, order, *result});
    }
  }
  return {};
}

Result<std::vector<ServerRow>> simulate_servers(const ServerSetup& setup,
                                                const ServerRunOptions& options,
                                                BuiltStructures& structures) {
  std::vector<ServerRow> rows;
  PERDURE_TRY_VOID(simulate_servers(setup, options, structures, rows));
  return rows;
}

const ServerResult* find_row(const std::vector<ServerRow>& rows, StructureKind kind,
                             Ordering order) {
  for (const ServerRow& row : rows) {
    if (row.workload == kind && row.order == order) return &row.result;
  }
  return nullptr;
}

ServerGain gain_of(const std::vector<ServerRow>& rows, Ordering better, Ordering than) {
  ServerGain gain;
  double operations = 0;
  double bus = 0;
  for (const StructureKind kind : kServerWorkloads) {
    const ServerResult* const before = find_row(rows, kind, than);
    const ServerResult* const after = find_row(rows, kind, better);
    if (before == nullptr || after == nullptr) continue;
    operations += std::log(after->transactions_per_us() / before->transactions_per_us());
    bus += std::log(after->bus_gb_per_s() / before->bus_gb_per_s());
    ++gain.workloads;
  }
  if (gain.workloads == 0) return gain;
  gain.operations = std::exp(operations / static_cast<double>(gain.workloads));
  gain.bus = std::exp(bus / static_cast<double>(gain.workloads));
  return gain;
}

}  // namespace perdure::app
