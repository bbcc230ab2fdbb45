#include "log/reconnection.h"

#include <fmt/format.h>

#include "core/try.h"

namespace perdure::log {

Result<void> require_open(const control::PoolDescription& pool) {
  if (pool.state == control::PoolStatus::Open) return {};
  return Error{ErrorCode::NotFound,
               fmt::format("its pool is {}: {}", to_string(pool.state),
                           pool.reason.empty() ? "open it on the peer" : pool.reason)};
}

Result<pmem::Uuid> check_pool(const control::PoolDescription& pool, const KnownReplicas& known) {
  PERDURE_TRY_VOID(require_open(pool));
  const auto uuid = parse_uuid(pool.uuid);
  if (!uuid || !known.configuration.has(*uuid)) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("its pool ({}) is no replica of this log, which has {}; `perdure log "
                             "replica replace` admits it",
                             pool.uuid, describe(known.configuration))};
  }
  for (const auto& [peer, other] : known.others) {
    if (other != *uuid) continue;
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("it is the same pool as {} ({}); a replica counts once", peer, pool.uuid)};
  }
  if (pool.epoch > known.epoch) {
    return Error{ErrorCode::Fenced,
                 fmt::format("writer '{}' took over with epoch {}; ours was {}", pool.writer_name,
                             pool.epoch.value, known.epoch.value)};
  }
  return *uuid;
}

Result<Connected> connect(const ConnectOptions& options, client::DurableSession successor,
                          const std::function<Deadline()>& until) {
  const std::string& name = options.request.pool;
  Connected connected{{}, {}, {}, std::move(successor), {}};
  client::DurableSession& session = connected.session;
  session.set_deadline(until());
  PERDURE_TRY(pool, session.peer().describe(name, session.deadline()));
  PERDURE_TRY_VOID(check_pool(pool, options.known));
  connected.pool = std::move(pool);
  session.set_deadline(until());
  PERDURE_TRY_VOID(session.open(options.request));
  const std::string& opened = session.connection().pool.uuid;
  if (opened != connected.pool.uuid) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{} has another pool '{}' now ({}) than a moment ago",
                             session.peer().name(), name, opened)};
  }
  PERDURE_TRY(staging, session.register_memory(options.staging));
  connected.staging = std::move(staging);
  PERDURE_TRY(words, session.register_memory(options.words));
  connected.words = std::move(words);
  session.set_deadline(until());
  PERDURE_TRY_VOID(session.prepare(options.shape == LogShape::Compound));
  PERDURE_TRY(bytes, client::RemoteBytes::open_for_writer(session.peer(), name, options.timeout,
                                                          *options.clock, until()));
  connected.bytes = std::move(bytes);
  return connected;
}

std::unique_ptr<Reconnection> begin_connecting(ConnectOptions options,
                                               client::DurableSession successor) {
  const Clock& clock = *options.clock;
  const auto shared = std::make_shared<client::DurableSession>(std::move(successor));
  const auto work = [shared, options = std::move(options)](const StoppableClock& steps) {
    return connect(options, std::move(*shared), [&] { return steps.after(options.timeout); });
  };
  return std::make_unique<Reconnection>(clock, work);
}

}  // namespace perdure::log
