// The logs of a replicated RPC service: how their pools are called, made and found, and how they
// are opened, read to their end, and brought to another peer.
#pragma once

#include <perdure/log.h>
#include <perdure/replicated_rpc.h>

#include "core/clock.h"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::replicated_rpc {

inline constexpr std::size_t kClientNameMax = 32;
/// Between two looks at logs that had nothing.
inline constexpr auto kIdle = std::chrono::microseconds(200);

/// With how much time a log is polled that somebody looks after again and again: mostly none, and
/// now and then enough to bring up a peer that is back (Log::poll).
class Looks {
 public:
  std::chrono::milliseconds next() {
    const Nanoseconds now = Clock::monotonic().now();
    if (now - last_ < kLongEvery) return std::chrono::milliseconds(0);
    last_ = now;
    return kLong;
  }

 private:
  static constexpr auto kLongEvery = std::chrono::milliseconds(10);
  static constexpr auto kLong = std::chrono::milliseconds(200);
  Nanoseconds last_{0};
};

/// Errors: InvalidArgument.
Result<void> check_group(const ReplicatedRpcGroup& group);
Result<void> check_client_name(const std::string& name);

std::string effects_pool(const std::string& service);
std::string calls_pool(const std::string& service, const std::string& client);
/// Nothing: it is no pool of a client's calls of this service.
std::optional<std::string> client_of(const std::string& service, std::string_view pool);

/// Of a log that is there.
LogOptions log_options(const ReplicatedRpcGroup& group, const std::string& pool);
/// `first`: the number of the peer to be asked first, modulo theirs. One that was left behind is as
/// readable as the others: whoever has come to its end without the next record asks another first.
LogReaderOptions reader_options(const ReplicatedRpcGroup& group, const std::string& pool,
                                std::size_t first = 0);

/// Opens the log; creates it, and pools of `bytes` bytes on all peers, if there is none.
/// Errors: those of Log::open and create_pool.
Result<Log> open_or_create(const ReplicatedRpcGroup& group, LogOptions options,
                           std::uint64_t bytes);

/// Reads all that was in the log when it was opened, which is committed.
/// Errors: those of LogReader, of `visit`, and TimedOut.
Result<void> read_all(const ReplicatedRpcGroup& group, Log& log, const std::string& pool,
                      const std::function<Result<void>(const Record&)>& visit);

std::size_t replicas_up(const LogStatus& log);

/// Whether one may come for the other, or has already.
/// Errors: InvalidArgument (neither is one of the peers), AlreadyExists (both are).
Result<void> check_replacement(const ReplicatedRpcGroup& group, const std::string& which,
                               const std::string& peer);
/// A pool on `peer` as those on the others are, if there is none.
/// Errors: NotFound (no other has one), those of create_pool.
Result<void> make_like(const ReplicatedRpcGroup& group, const std::string& pool,
                       const std::string& peer);
/// Replaces a replica of a log that is open, unless that was done already.
/// Errors: those of make_like and Log::replace_replica.
Result<void> replace_in(const ReplicatedRpcGroup& group, Log& log, const std::string& pool,
                        const std::string& which, const std::string& peer);

}  // namespace perdure::replicated_rpc
