// PeerService: how it begins and how it ends: its planes, and all its pools side by side. What
// requests do to a pool is in service.cc.
#include <fmt/format.h>

#include "core/log_message.h"
#include "core/try.h"
#include "server/service.h"

namespace perdure::server {
namespace {

constexpr int kRevokeTries = 3;
constexpr Nanoseconds kSettledWithin = std::chrono::seconds{20};
constexpr Nanoseconds kBusyFor = std::chrono::minutes{10};  // after the start

/// A pool that somebody may still write to, by a key that could not be taken away: it stays mapped
/// and locked, and is not marked as cleanly closed, until the kernel ends the RNIC's keys with the
/// process.
void keep_until_exit(std::unique_ptr<ServedPool> pool) {
  static Mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<ServedPool>>;
  const MutexLock lock(mutex);
  kept.push_back(std::move(pool));
}

/// Leaves one core to those that have work.
int spinners_max() {
  const unsigned cores = std::thread::hardware_concurrency();
  return cores <= 2 ? 1 : static_cast<int>(cores) - 1;
}

}  // namespace

PeerService::PeerService(ServiceOptions options)
    : options_(std::move(options)), store_(options_.store), spin_slots_(spinners_max()) {
  if (options_.directory.empty()) return;
  own_store_ = std::make_unique<PoolDirectory>(options_.directory);
  store_ = own_store_.get();
}

Result<std::unique_ptr<PeerService>> PeerService::open(ServiceOptions options,
                                                       std::vector<DataPlane> planes) {
  if (options.reply_bytes_max > persist::kReplyPayloadMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("replies of {} bytes; they have at most {}", options.reply_bytes_max,
                             persist::kReplyPayloadMax)};
  }
  std::unique_ptr<PeerService> service(new PeerService(std::move(options)));
  if (!planes.empty()) service->transport_ = planes.front().device->transport();
  if (service->store_ != nullptr) PERDURE_TRY_VOID(service->open_pools());
  PERDURE_TRY_VOID(service->listen(std::move(planes)));
  return service;
}

PeerService::~PeerService() {
  stop_acceptors();
  std::vector<PoolPointer> pools;
  {
    const MutexLock lock(mutex_);
    for (const auto& [name, entry] : pools_) pools.push_back(entry);
  }
  // What is at work on a pool is waited for: it would use what is about to go.
  for_each_side_by_side(
      pools, [this](PoolEntry& entry) { close_entry(entry); },
      Deadline::after(std::chrono::hours{24 * 365}));
  join_finished();
}

void PeerService::close_entry(PoolEntry& entry) {
  while (!entry.control.take(entry.control.held() + std::chrono::hours{1})) {
    log_message(Severity::Warning, fmt::format("pool '{}': waiting for its medium", entry.name));
  }
  const PoolHold control(entry.control);
  const bool ended = end_before_closing(entry);
  deregister_pool(entry);
  if (!ended) {
    keep_until_exit(std::move(entry.served));
  } else if (entry.served != nullptr && !abandoned_.load()) {
    (void)close_served(*entry.served, kSettledWithin);
  }
}

/// What it can not make durable in time the next opening does: whoever stops a daemon waits.
Result<void> PeerService::close_served(ServedPool& served, Nanoseconds within) {
  const Deadline patience = Deadline::after(within);
  return served.close([patience] { return patience.passed(); });
}

/// What may wait for a pool's medium, for each of the pools: one that does not answer holds up no
/// other. Returns when all is done, or at the deadline, unless without threads.
void PeerService::for_each_side_by_side(const std::vector<PoolPointer>& entries,
                                        const std::function<void(PoolEntry&)>& work,
                                        const Deadline& until) {
  std::vector<MediaWorkers::Work> pieces;
  for (const PoolPointer& entry : entries) {
    if (options_.threads) {
      pieces.emplace_back([entry, work] { work(*entry); });
    } else {
      work(*entry);
    }
  }
  media_.run(std::move(pieces), until);
}

/// Whether all its sessions are over. A session whose thread is stuck in the medium would use the
/// region after it is gone: that is waited for. An RNIC that keeps a key is asked a few times; it
/// loses the key with the process.
bool PeerService::end_before_closing(const PoolEntry& entry) {
  for (int refusals = 0; refusals < kRevokeTries;) {
    const auto ended = end_all(sessions_of(entry, false), false);
    if (ended.ok()) return true;
    log_message(Severity::Warning,
                fmt::format("pool '{}' can not be closed: {}", entry.name, ended.error().message));
    if (ended.code() != ErrorCode::TimedOut) ++refusals;
  }
  return false;
}

void PeerService::stop_acceptors() {
  closing_.store(true);
  for (std::thread& acceptor : acceptors_) acceptor.join();
  acceptors_.clear();
  if (watch_.joinable()) watch_.join();
}

void PeerService::abandon() {
  abandoned_.store(true);
  stop_acceptors();
  std::vector<SessionPointer> sessions;
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, entry] : sessions_) sessions.push_back(entry);
  }
  (void)end_all(sessions, false);
}

Result<void> PeerService::listen(std::vector<DataPlane> planes) {
  for (DataPlane& plane : planes) {
    fabric::EndpointOptions endpoints = options_.endpoints;
    endpoints.receive_depth = std::max(endpoints.receive_depth, options_.queue.depth);
    PERDURE_TRY(listener, plane.device->listen(plane.listen, endpoints));
    const MutexLock lock(mutex_);
    planes_.push_back({std::move(plane), std::move(listener)});
  }
  if (!options_.threads) return {};
  for (Plane& plane : planes_) {
    acceptors_.emplace_back([this, &plane] { run_acceptor(plane); });
  }
  watch_ = std::thread([this] { run_watch(); });
  return {};
}

Result<void> PeerService::open_pools() {
  PERDURE_TRY(names, store_->names());
  const Deadline patience =
      Deadline::after(options_.threads ? options_.busy_within : Nanoseconds{0});
  busy_until_ = Deadline::after(kBusyFor);
  std::vector<PoolPointer> entries;
  for (const std::string& name : names) {
    PERDURE_TRY(entry, insert_pool(name));
    const MutexLock lock(mutex_);
    entry->shown.state = control::PoolStatus::Unavailable;
    entry->shown.reason =
        "it is still being opened: if that goes on, its medium does not answer; see to the medium";
    entries.push_back(std::move(entry));
  }
  // Shown as unavailable, with the reason, if it fails.
  const auto open = [this, patience](PoolEntry& entry) {
    const auto control = hold(entry);
    if (!control.ok()) return;
    if (store_->has_pool(entry.name)) {
      (void)open_entry(entry, patience);
      return;
    }
    const MutexLock lock(mutex_);
    pools_.erase(entry.name);
  };
  for_each_side_by_side(entries, open,
                        Deadline::after(options_.busy_within + options_.opened_within));
  for (const PoolPointer& entry : entries) {
    if (entry->control.held() == Nanoseconds{0}) continue;
    log_message(Severity::Warning,
                fmt::format("pool '{}' is not open yet: its medium may not answer; the other pools "
                            "are served meanwhile",
                            entry->name));
  }
  return {};
}

}  // namespace perdure::server
