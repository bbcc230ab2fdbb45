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
#include "server/served_pool.h"

namespace perdure::host {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPoolsMax = 4096;

/// Notes what a pool lies on, if that is other than what the place does. Of DAX each file is asked.
void examine_storage(const std::string& file, const Result<pmem::File>& opened, const Place& place,
                     PoolThere& pool) {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0) {
    pool.is_unseen = true;
    return;
  }
  pool.device = S_ISCHR(status.st_mode) ? status.st_rdev : status.st_dev;
  const bool is_here = pool.device == place.device;
  if (is_here && place.medium.kind != pmem::MediumKind::Dax) return;
  auto medium = opened.ok() ? pmem::examine_medium(*opened) : opened.error();
  if (medium.ok()) {
    pool.medium = std::move(medium).value();
  } else {
    pool.is_unseen = !is_here;
  }
}

PoolThere pool_at(const fs::path& file, const Place& place) {
  PoolThere pool;
  pool.name = file.stem().string();
  const auto info = pmem::Pool::inspect(file.string());
  if (info.ok()) {
    pool.declared = info->header.declared;
    pool.relied_on = pmem::relied_on(info->header, info->state);
    pool.data_bytes = info->header.data_bytes;
    const auto queue = server::persistent_queue_of(info->state);
    pool.has_receive_buffers = queue.ok() && queue->depth != 0;
  } else {
    pool.unreadable = info.error().message;
    pool.forbidden = info.code() == ErrorCode::PermissionDenied;
    pool.is_blank = pmem::Pool::is_blank_device(file.string());
  }
  if (const auto holder = pmem::Pool::holder(file.string()); holder.ok()) pool.holder = *holder;
  const auto opened = pmem::open_file(file.string(), pmem::OpenMode::ReadOnly);
  examine_storage(file.string(), opened, place, pool);
  if (!opened.ok()) return pool;
  if (const auto bytes = pmem::size_of(*opened); bytes.ok()) pool.bytes = *bytes;
  if (!opened->is_device()) pool.unwritten_bytes = pmem::unwritten_bytes(*opened);
  return pool;
}

void add_pools_in(const std::string& directory, Place& place) {
  std::error_code failed;
  for (fs::directory_iterator at(directory, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (at->path().extension() != ".pool") continue;
    place.has_more = place.pools.size() == kPoolsMax;
    if (place.has_more) break;
    std::error_code gone;
    place.pools.push_back(pool_at(at->path(), place));
    const std::uintmax_t size = at->file_size(gone);
    const std::uint64_t bytes = place.pools.back().bytes;  // of a device, too
    place.pool_bytes += bytes != 0 || gone ? bytes : size;
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
    place.pools.push_back(pool_at(path, place));
  } else {
    const std::string size =
        fmt::format("/sys/dev/char/{}:{}/size", major(place.device), minor(place.device));
    place.pool_bytes = tree.read(size).number().value_or(0);
    place.pools.push_back(pool_at(path, place));
  }
  return place;
}

/// Where `pool` lies, and what is declared of it; null: the place.
Storage storage_of(const InspectedHost& inspected, const PoolThere* pool) {
  const server::Config config = inspected.settings();
  Storage storage;
  storage.path = inspected.place.path;
  storage.medium = inspected.place.medium;
  storage.device = inspected.place.device;
  std::optional<PersistenceDomain> today = config.service.settings.declared;
  std::optional<PersistenceDomain> once;
  if (pool != nullptr) {
    const bool elsewhere = pool->medium.has_value();
    if (elsewhere || config.service.settings_by_pool.contains(pool->name))
      storage.pool = pool->name;
    if (elsewhere) storage.path = fmt::format("{}/{}.pool", storage.path, pool->name);
    if (elsewhere) storage.medium = *pool->medium;
    if (elsewhere) storage.device = pool->device;
    today = inspected.settings_of(pool->name).declared;
    once = pool->declared;
  }
  storage.declared = pmem::still_declared(storage.medium, today, once);
  const auto decided = pmem::decide_domain(storage.medium, storage.declared);
  storage.domain = decided.ok() ? *decided : storage.medium.found;
  return storage;
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

void Check::take(const Check& part, const std::string& prefix) {
  for (const std::string& line : part.evidence) evidence.push_back(prefix + line);
  if (!part.root_tells.empty()) root_tells = part.root_tells;
  if (!part.finding.empty()) find(part.verdict, prefix + part.finding, part.advice, part.commands);
}

Reading Check::keep(Reading reading) {
  evidence.push_back(reading.evidence());
  return reading;
}

server::Config InspectedHost::settings() const { return config.ok() ? *config : server::Config{}; }

server::PoolSettings InspectedHost::settings_of(const std::string& pool) const {
  const server::Config all = settings();
  const auto own = all.service.settings_by_pool.find(pool);
  return own == all.service.settings_by_pool.end() ? all.service.settings : own->second;
}

std::vector<Storage> InspectedHost::storages() const {
  if (place.pools.empty()) return {storage_of(*this, nullptr)};
  std::vector<Storage> storages;
  for (const PoolThere& pool : place.pools) {
    if (pool.is_unseen) continue;
    Storage storage = storage_of(*this, &pool);
    const bool known = std::any_of(storages.begin(), storages.end(), [&](const Storage& each) {
      return each.pool == storage.pool && each.declared == storage.declared;
    });
    if (!known) storages.push_back(std::move(storage));
  }
  return storages;
}

std::set<PersistenceDomain> InspectedHost::domains() const {
  std::set<PersistenceDomain> domains;
  for (const Storage& storage : storages()) domains.insert(storage.domain);
  return domains;
}

bool InspectedHost::has_unread_config() const {
  return !config.ok() && config.code() != ErrorCode::NotFound;
}

bool lies_on(const InspectedHost& inspected, pmem::MediumKind kind) {
  const auto storages = inspected.storages();
  return std::any_of(storages.begin(), storages.end(),
                     [kind](const Storage& each) { return each.medium.kind == kind; });
}

std::string domain_words(const InspectedHost& inspected) {
  std::string words;
  for (const PersistenceDomain domain : inspected.domains())
    words += fmt::format("{}{}", words.empty() ? "" : ", ", to_string(domain));
  return words.empty() ? "that is not known" : words;
}

bool is_any_declared(const InspectedHost& inspected,
                     const std::function<bool(const server::PoolSettings&)>& holds) {
  const server::Config config = inspected.settings();
  return holds(config.service.settings) ||
         std::any_of(config.service.settings_by_pool.begin(), config.service.settings_by_pool.end(),
                     [&](const auto& pool) { return holds(pool.second); });
}

bool find_unread_config(const InspectedHost& inspected, Check& check) {
  if (!inspected.has_unread_config()) return false;
  check.evidence.push_back(inspected.config.error().message);
  check.find(Verdict::NotKnown,
             "the configuration of perdured, on which the answer rests, can not be read",
             "see declared-domain: repair it, or ask as a user who may read it",
             {"perdured --config " + inspected.config_file + " --check-config"});
  if (inspected.config.code() == ErrorCode::PermissionDenied)
    check.root_tells = "what the configuration says";
  return true;
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
      check_pool_header,
      check_pool_owner,
      check_pool_quota,
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
