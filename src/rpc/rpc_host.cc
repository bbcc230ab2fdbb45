// A durable RPC server without its control plane: see rpc_host.h.
#include "rpc/rpc_host.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "core/assert.h"
#include "core/log_message.h"
#include "core/try.h"

namespace perdure::rpc {
namespace {

// One-sided calls tell nobody: they are found when their ring is looked at. With many rings, most
// of them in no cache, that is done less often, so that it takes a few percent of a processor.
constexpr Nanoseconds kLookEvery = std::chrono::milliseconds(1);
constexpr Nanoseconds kLookEveryByPlace = std::chrono::microseconds(5);

}  // namespace

RpcHost::RpcHost(RpcHostOptions options) : options_(std::move(options)) {}

Result<std::unique_ptr<RpcHost>> RpcHost::open(std::unique_ptr<pmem::Pool> pool,
                                               const PoolShape& shape, RpcHostOptions options,
                                               std::vector<server::DataPlane> planes) {
  PERDURE_TRY(recovered, RpcPool::open(std::move(pool), shape));
  std::unique_ptr<RpcHost> host(new RpcHost(std::move(options)));
  PERDURE_TRY(executor, Executor::open(std::move(recovered), host->options_.executor));
  host->executor_ = std::move(executor);
  PERDURE_TRY_VOID(host->serve(std::move(planes)));
  return host;
}

Result<void> RpcHost::serve(std::vector<server::DataPlane> planes) {
  store_ = std::make_unique<ClientStore>(*executor_);
  const bool threads = options_.service.threads;
  const std::size_t clients = executor_->shape().clients;
  for (std::size_t place = 0; place < clients; ++place) {
    const ClientRequestOptions how{threads ? options_.reply_wait : Nanoseconds{0},
                                   options_.slow_from_percent};
    requests_.push_back(std::make_unique<ClientRequests>(*executor_, place, how, look_));
  }
  server::ServiceOptions service = options_.service;
  service.directory.clear();
  service.store = store_.get();
  service.handlers = [this](const server::SessionTerms& terms) { return handlers_of(terms); };
  service.reply_bytes_max = kRequestReplyBytesMax;
  service.handled = [this](const server::SessionTerms& terms) { note_handled(terms); };
  service.ended = [this](const server::SessionTerms& terms) { note_ended(terms); };
  // Each client has one writer; those who look, and those who come back, need room beside.
  service.sessions_max = 2 * clients + 8;
  service.sessions_for_writers = clients;
  // What persistent receive buffers hold is in the rings afterwards.
  PERDURE_TRY(opened, server::PeerService::open(std::move(service), std::move(planes)));
  service_ = std::move(opened);
  for (;;) {  // what was durable when the last server ended, and bounded by it
    PERDURE_TRY(executed, executor_->process());
    if (executed == 0) break;
  }
  PERDURE_TRY_VOID(executor_->pool().region().check());  // or zeros were taken for empty rings
  executor_->note_all_heard();
  if (threads) thread_ = std::thread([this] { run(); });
  return {};
}

RpcHost::~RpcHost() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  service_.reset();  // its sessions ask the executor
  if (executor_ != nullptr && !abandoned_) (void)executor_->pool().close();
}

void RpcHost::abandon() {
  abandoned_ = true;
  service_->abandon();
}

persist::RequestHandlers RpcHost::handlers_of(const server::SessionTerms& terms) {
  const auto place = executor_->place_of(terms.pool);
  // Between the grant and this a client can not expire: its pool is held.
  if (!place || !terms.write) return persist::built_in_handlers();
  return requests_[*place]->handlers();
}

void RpcHost::wake() {
  {
    const MutexLock lock(mutex_);
    if (woken_) return;
    woken_ = true;
  }
  changed_.notify_all();
}

/// In the thread of a session. Most of what it handles are questions, which bring no call.
void RpcHost::note_handled(const server::SessionTerms& terms) {
  const ClientRequests* const requests = ClientRequests::of(terms.handlers);
  if (requests == nullptr || !executor_->may_hold_call(requests->place())) return;
  look_for_calls(requests->place());
}

/// Its lease begins now.
void RpcHost::note_ended(const server::SessionTerms& terms) {
  const ClientRequests* const requests = ClientRequests::of(terms.handlers);
  if (requests == nullptr) return;
  executor_->note_heard(requests->place());
  requests_[requests->place()]->forget_answer();
}

/// There may be some at that place, whose session's thread this is. Other clients' calls are not
/// executed in it: it is their own sessions that wait for a handler which is slow all the same.
void RpcHost::look_for_calls(std::size_t place) {
  if (options_.quick_handlers) {
    const auto executed = executor_->try_process_at(place);
    // Who is at it may have looked there before; and where much has come, there may be more.
    if (executed && (!executed->ok() || **executed < kCallsPerTransaction)) return;
  }
  executor_->hint(place);
  wake();
}

Result<void> RpcHost::retry(const std::string& name, std::uint64_t sequence) {
  auto decided = executor_->retry(name, sequence);
  if (decided.ok()) wake();
  return decided;
}

Result<void> RpcHost::drop(const std::string& name, std::uint64_t sequence) {
  auto decided = executor_->drop(name, sequence);
  if (decided.ok()) wake();
  return decided;
}

bool RpcHost::pump() {
  PERDURE_ASSERT(!options_.service.threads);
  const bool served = service_->pump();
  const auto executed = executor_->process();
  return served || (executed.ok() && *executed != 0);
}

void RpcHost::run() {
  const Clock& clock = *options_.executor.clock;
  Nanoseconds worked = clock.now();
  Nanoseconds looked = worked;
  Nanoseconds scanned = worked;
  for (;;) {
    {
      const MutexLock lock(mutex_);
      if (stopping_) return;
      woken_ = false;
    }
    Nanoseconds now = clock.now();
    const bool scan = now - scanned >= scan_interval();
    if (scan) scanned = now;
    const auto executed = scan ? executor_->process() : executor_->process_hinted();
    now = clock.now();
    if (options_.lease > Nanoseconds{0} && now - looked >= options_.lease / 4) {
      looked = now;
      expire_clients();
    }
    if (executed.ok() && *executed != 0) {
      worked = now;
      continue;
    }
    if (options_.quick_handlers || now - worked >= options_.spin) rest();
  }
}

Nanoseconds RpcHost::scan_interval() const {
  return kLookEvery + kLookEveryByPlace * executor_->shape().clients;
}

void RpcHost::rest() {
  const Deadline until = Deadline::after(kLookEvery);
  MutexLock lock(mutex_);
  while (!woken_ && !stopping_ && !until.passed()) lock.wait_for(changed_, until.left());
}

void RpcHost::expire_clients() {
  if (options_.lease == Nanoseconds{0}) return;
  for (const std::string& name : executor_->silent_for(options_.lease)) {
    const auto pool = service_->describe(name);
    if (!pool.ok()) continue;
    // Who is kept out is not silent; nor is it known what the place's receive buffers hold.
    if (pool->state != control::PoolStatus::Open) {
      if (const auto place = executor_->place_of(name)) executor_->note_heard(*place);
      continue;
    }
    // Who is connected is not silent; and who was a moment ago has just been heard of.
    if (pool->writer_present || !executor_->is_silent(name, options_.lease)) continue;
    // This is the thread that executes: it waits for no request, and comes again.
    const auto deleted = service_->delete_pool(name, pool->uuid, {}, Nanoseconds{0});
    if (!deleted.ok()) continue;  // it has calls to apply, or somebody is at it
    log_message(Severity::Info, fmt::format("client '{}' has expired", name));
  }
}

}  // namespace perdure::rpc
