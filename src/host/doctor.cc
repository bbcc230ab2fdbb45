// The doctor: who is examined, and the list of checks.
#include "host/doctor.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/try.h"
#include "host/doctor_checks.h"
#include "pmem/file.h"
#include "pmem/pool.h"
#include "pmem/probe.h"

namespace perdure::host {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPoolFilesMax = 4096;

PoolThere pool_at(const fs::path& file) {
  PoolThere pool;
  pool.name = file.stem().string();
  const auto info = pmem::Pool::inspect(file.string());
  if (info.ok()) {
    pool.declared = info->header.declared;
  } else {
    pool.unreadable = info.error().message;
    pool.forbidden = info.code() == ErrorCode::PermissionDenied;
  }
  if (const auto holder = pmem::Pool::holder(file.string()); holder.ok()) pool.holder = *holder;
  const auto opened = pmem::open_file(file.string(), pmem::OpenMode::ReadOnly);
  if (!opened.ok()) return pool;
  if (const auto bytes = pmem::size_of(*opened); bytes.ok()) pool.bytes = *bytes;
  if (!opened->is_device()) pool.unwritten_bytes = pmem::unwritten_bytes(*opened);
  return pool;
}

void add_pools_in(const std::string& directory, Place& place) {
  std::size_t seen = 0;
  std::error_code failed;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (++seen > kPoolFilesMax) break;
    std::error_code gone;
    if (at->path().extension() != ".pool") continue;
    const std::uintmax_t size = at->file_size(gone);
    if (!gone) place.pool_bytes += size;
    place.pools.push_back(pool_at(at->path()));
  }
  std::sort(place.pools.begin(), place.pools.end(),
            [](const PoolThere& a, const PoolThere& b) { return a.name < b.name; });
}

Result<Place> examine_place(const std::string& path, const SystemTree& tree) {
  PERDURE_TRY(report, pmem::probe(path));
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    return Error{ErrorCode::NotFound, fmt::format("{}: is gone", path)};
  }
  Place place;
  place.path = path;
  place.medium = std::move(report.medium);
  place.device = place.medium.is_device ? status.st_rdev : status.st_dev;
  if (S_ISDIR(status.st_mode)) {
    add_pools_in(path, place);
  } else if (S_ISREG(status.st_mode)) {
    place.pool_bytes = static_cast<std::uint64_t>(status.st_size);
    place.pools.push_back(pool_at(path));
  } else {
    const std::string size =
        fmt::format("/sys/dev/char/{}:{}/size", major(place.device), minor(place.device));
    place.pool_bytes = tree.read(size).number().value_or(0);
    place.pools.push_back(pool_at(path));
  }
  return place;
}

}  // namespace

std::string_view to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::Ok: return "ok";
    case Verdict::Advice: return "advice";
    case Verdict::NotKnown: return "not known";
    case Verdict::Problem: return "problem";
    case Verdict::NotApplicable: break;
  }
  return "not applicable";
}

void Check::find(Verdict found, std::string sentence, std::string what_to_do,
                 std::vector<std::string> by_commands) {
  if (found <= verdict && !finding.empty()) return;
  verdict = found;
  finding = std::move(sentence);
  advice = std::move(what_to_do);
  commands = std::move(by_commands);
}

void Check::find_nothing(std::string sentence, std::string evidence_for_it) {
  if (!finding.empty()) return;
  evidence.push_back(std::move(evidence_for_it));
  find(Verdict::NotApplicable, std::move(sentence));
}

Reading Check::keep(Reading reading) {
  evidence.push_back(reading.evidence());
  return reading;
}

server::Config InspectedHost::settings() const { return config.ok() ? *config : server::Config{}; }

server::PoolSettings InspectedHost::settings_of(const std::string& pool) const {
  const server::Config all = settings();
  const auto own = all.settings_by_pool.find(pool);
  return own == all.settings_by_pool.end() ? all.settings : own->second;
}

PersistenceDomain InspectedHost::domain() const {
  const auto decided = pmem::decide_domain(place.medium, settings().settings.declared);
  return decided.ok() ? *decided : place.medium.found;
}

Result<InspectedHost> inspect_host(const std::string& path, const std::string& config_file) {
  InspectedHost inspected;
  inspected.config_file = config_file;
  inspected.is_root = ::geteuid() == 0;
  PERDURE_TRY(place, examine_place(path, inspected.tree));
  inspected.place = std::move(place);
  inspected.config = server::load_config(config_file);
  return inspected;
}

std::vector<Check> check_host(const InspectedHost& inspected) {
  // What keeps the data first, then the network, then what costs time.
  constexpr Check (*kChecks[])(const InspectedHost&) = {
      check_pool_file_system,
      check_write_cache,
      check_file_sync,
      check_declared_domain,
      check_pool_owner,
      check_persistence_domain,
      check_deep_flush,
      check_namespaces,
      check_nvdimm_health,
      check_bad_blocks,
      check_cxl_memory,
      check_flush_instructions,
      check_ddio,
      check_write_order,
      check_pages_under_rnic,
      check_cqe_payload,
      check_immediate_length,
      check_fencing,
      check_forks,
      check_rdma_devices,
      check_rnic_choice,
      check_rnic_timeouts,
      check_rdma_mtu,
      check_roce_gid,
      check_congestion_control,
      check_iommu,
      check_numa,
      check_completion_vectors,
      check_locked_memory,
      check_memory_cgroup,
      check_open_files,
      check_huge_pages,
      check_transparent_huge_pages,
      check_frequency_governor,
      check_idle_states,
      check_clock_source,
  };
  std::vector<Check> checks;
  for (const auto& check : kChecks) {
    checks.push_back(check(inspected));
    if (inspected.is_root) checks.back().root_tells.clear();
  }
  return checks;
}

}  // namespace perdure::host
