// Everything here is asked of the peers by the public calls of pools and logs.
#include "replicated_rpc/group.h"

#include <fmt/format.h>
#include <perdure/pool.h>

#include <algorithm>
#include <thread>

#include "core/try.h"
#include "replicated_rpc/effects.h"

namespace perdure::replicated_rpc {
namespace {

constexpr std::size_t kServiceNameMax = 20;
constexpr std::string_view kEffects = ".effects";
constexpr std::string_view kCalls = ".calls.";
/// Records that a log had when it was opened can be read by then.
constexpr Nanoseconds kReadableWithin = std::chrono::seconds(30);

bool is_word(std::string_view name, std::string_view more) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [&](char each) {
    return (each >= 'a' && each <= 'z') || (each >= 'A' && each <= 'Z') ||
           (each >= '0' && each <= '9') || more.find(each) != std::string_view::npos;
  });
}

}  // namespace

Result<void> check_group(const ReplicatedRpcGroup& group) {
  if (group.peers.empty()) return Error{ErrorCode::InvalidArgument, "no peers are named"};
  if (is_word(group.service, "_-") && group.service.size() <= kServiceNameMax) return {};
  return Error{ErrorCode::InvalidArgument,
               "a service's name has at most 20 of the characters [A-Za-z0-9_-]"};
}

Result<void> check_client_name(const std::string& name) {
  if (is_word(name, "._-") && name.size() <= kClientNameMax) return {};
  return Error{ErrorCode::InvalidArgument,
               "a client's name has at most 32 of the characters [A-Za-z0-9._-]"};
}

std::string effects_pool(const std::string& service) { return service + std::string(kEffects); }

std::string calls_pool(const std::string& service, const std::string& client) {
  return service + std::string(kCalls) + client;
}

std::optional<std::string> client_of(const std::string& service, std::string_view pool) {
  const std::string prefix = service + std::string(kCalls);
  if (!pool.starts_with(prefix)) return std::nullopt;
  std::string name(pool.substr(prefix.size()));
  if (!check_client_name(name).ok()) return std::nullopt;
  return name;
}

LogOptions log_options(const ReplicatedRpcGroup& group, const std::string& pool) {
  LogOptions options;
  options.peers = group.peers;
  options.pool = pool;
  options.quorum = group.quorum;
  options.create = false;
  options.transport = group.transport;
  options.rnic = group.rnic;
  options.record_bytes_max = kRecordBytesMax;
  options.replica_timeout = group.peer_timeout;
  options.reconnect = group.reconnect;
  return options;
}

LogReaderOptions reader_options(const ReplicatedRpcGroup& group, const std::string& pool,
                                std::size_t first) {
  LogReaderOptions options;
  options.peers = group.peers;
  std::rotate(options.peers.begin(),
              options.peers.begin() + static_cast<std::ptrdiff_t>(first % options.peers.size()),
              options.peers.end());
  options.pool = pool;
  options.transport = group.transport;
  options.rnic = group.rnic;
  // Where one says nothing there are others to read: a patient writer is no reason to wait longer.
  options.timeout = std::min(group.peer_timeout, options.timeout);
  return options;
}

Result<Log> open_or_create(const ReplicatedRpcGroup& group, LogOptions options,
                           std::uint64_t bytes) {
  auto there = Log::open(options);
  if (there.ok() || there.code() != ErrorCode::NotFound) return there;
  for (const std::string& peer : group.peers) {
    PoolOptions pool;
    pool.name = options.pool;
    pool.bytes = bytes;
    const auto made = create_pool(peer, pool);
    if (!made.ok() && made.code() != ErrorCode::AlreadyExists) return made.error();
  }
  options.create = true;
  return Log::open(std::move(options));
}

Result<void> read_all(const ReplicatedRpcGroup& group, Log& log, const std::string& pool,
                      const std::function<Result<void>(const Record&)>& visit) {
  const Lsn tail = log.status().tail;
  if (log.status().head == tail) return {};
  PERDURE_TRY(reader, log.reader(reader_options(group, pool)));
  for (const Deadline deadline = Deadline::after(kReadableWithin); reader.position() < tail;) {
    PERDURE_TRY_VOID(log.poll());  // readers learn from it what is committed
    PERDURE_TRY(record, reader.next());
    if (record) PERDURE_TRY_VOID(visit(*record));
    if (!record && deadline.passed()) {
      return Error{ErrorCode::TimedOut,
                   fmt::format("log '{}' could not be read to its end in time", pool)};
    }
  }
  return {};
}

std::size_t replicas_up(const LogStatus& log) {
  return static_cast<std::size_t>(std::count_if(log.replicas.begin(), log.replicas.end(),
                                                [](const auto& each) { return each.up; }));
}

Result<void> check_replacement(const ReplicatedRpcGroup& group, const std::string& which,
                               const std::string& peer) {
  const auto is_peer = [&](const std::string& name) {
    return std::find(group.peers.begin(), group.peers.end(), name) != group.peers.end();
  };
  if (!is_peer(which) && !is_peer(peer)) {
    return Error{ErrorCode::InvalidArgument, which + " is none of the service's peers"};
  }
  if (which == peer || !is_peer(which) || !is_peer(peer)) return {};
  return Error{ErrorCode::AlreadyExists, peer + " is one of the service's peers, as " + which};
}

Result<void> make_like(const ReplicatedRpcGroup& group, const std::string& pool,
                       const std::string& peer) {
  Error error{ErrorCode::NotFound, "no other peer has pool '" + pool + "'"};
  for (const std::string& other : group.peers) {
    const auto there = describe_pool(other, pool);
    if (!there.ok() || other == peer) continue;
    PoolOptions like;
    like.name = pool;
    like.bytes = there->bytes;
    const auto made = create_pool(peer, like);
    if (made.ok() || made.code() == ErrorCode::AlreadyExists) return {};
    error = made.error();
  }
  return error;
}

Result<void> replace_in(const ReplicatedRpcGroup& group, Log& log, const std::string& pool,
                        const std::string& which, const std::string& peer) {
  for (const ReplicaStatus& replica : log.status().replicas) {
    // One that is named and has no pool yet is listed, too. At its own address it is another pool
    // that is wanted, unless this one is there.
    const bool known = which != peer && !replica.pool_uuid.empty();
    if (replica.peer == peer && (replica.up || known)) return {};
  }
  PERDURE_TRY_VOID(make_like(group, pool, peer));
  return log.replace_replica(which, peer);
}

}  // namespace perdure::replicated_rpc
