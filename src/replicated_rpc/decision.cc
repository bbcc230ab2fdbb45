// Of openings and ends of servers nothing is said here: who opens the service next finds what the
// last server has left of that.
#include "replicated_rpc/decision.h"

#include <fmt/format.h>
#include <perdure/log.h>

#include <utility>

#include "core/try.h"
#include "replicated_rpc/group.h"

namespace perdure::replicated_rpc {
namespace {

/// Not the hints of a log: to fence a server is not the way to decide about a call.
Error why_not(const ReplicatedRpcGroup& group, const Error& error) {
  if (error.code == ErrorCode::NotFound) {
    return {error.code,
            fmt::format("these peers have no service '{}': {}", group.service, error.message)};
  }
  if (error.code != ErrorCode::Busy && error.code != ErrorCode::Fenced) return error;
  return {error.code, fmt::format("a server executes service '{}', or is opened just now: its "
                                  "program decides (ReplicatedRpcServer::retry and drop), or it is "
                                  "stopped first: {}",
                                  group.service, error.message)};
}

}  // namespace

Result<void> decide(const ReplicatedRpcGroup& group, const std::string& client,
                    std::uint64_t sequence, Decision decision) {
  PERDURE_TRY_VOID(check_group(group));
  const std::string pool = effects_pool(group.service);
  LogOptions options = log_options(group, pool);
  options.writer_name = "an operator's decision";
  auto opened = Log::open(std::move(options));
  if (!opened.ok()) return why_not(group, opened.error());
  Log& log = *opened;
  Effects effects;
  PERDURE_TRY_VOID(read_all(group, log, pool, [&](const Record& record) {
    return effects.apply(record.bytes, record.lsn);
  }));
  PERDURE_TRY(record, effects.decide(client, sequence, decision));
  PERDURE_TRY(ticket, log.append(record));
  PERDURE_TRY_VOID(log.wait(ticket, Level::Committed));
  (void)log.close();  // or it is closed with less patience
  return {};
}

}  // namespace perdure::replicated_rpc
