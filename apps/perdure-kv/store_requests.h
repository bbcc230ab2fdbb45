// Executes the requests of Redis's clients on a key-value store. All clients share one client of
// the store: changes that are found together become durable together, with one flush.
#pragma once

#include <perdure/kv.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "resp_session.h"

namespace perdure::kv_app {

/// What INFO shows besides the store.
struct PortCounts {
  std::uint64_t connections = 0;  // now
  std::uint64_t accepted = 0;
  std::uint64_t rejected = 0;  // there were too many
  std::uint64_t commands = 0;
  std::uint64_t broken = 0;  // connections that were ended because they did not speak RESP
  std::uint64_t stalled =
      0;  // connections that were ended because nothing came, or nothing was read
};

/// Threads: one caller at a time.
class StoreRequests {
 public:
  /// `acknowledged`: when a SET is answered. Nothing is executed while the sessions have more than
  /// `unsent_max` bytes of output together.
  StoreRequests(KvClient client, RpcLevel acknowledged, std::chrono::milliseconds timeout,
                std::uint64_t unsent_max);
  ~StoreRequests();
  StoreRequests(const StoreRequests&) = delete;
  StoreRequests& operator=(const StoreRequests&) = delete;

  /// Executes what is there, each session's requests in order, until none is left or its session
  /// has more than kUnsentMax of output. `sessions` are all that there are. Returns whether there
  /// was anything that it could execute. Errors: the client of the store is of no use any more
  /// (Fenced, OutcomeUnknown: another process has its name; NotFound: it expired); whoever asked
  /// has been told.
  Result<bool> run(std::span<RespSession* const> sessions);

  /// The store is asked again, if it did not answer before: until then nobody waits for it twice.
  void forget_outage() { outage_.reset(); }
  PortCounts& counts() { return counts_; }

  /// Of one session; more is executed when its client has read.
  static constexpr std::size_t kUnsentMax = 1024 * 1024;

 private:
  struct Step;

  void collect(std::span<RespSession* const> sessions);
  void begin(Step& step);
  void begin_set(Step& step);
  void begin_erase(Step& step);
  void finish_changes();
  void look_up();
  void look_up_some(std::span<Step* const> steps, std::span<const std::string_view> keys);
  void read(Step& step);
  void scan(Step& step);
  void info(Step& step);
  void fail(Step& step, const Error& error);
  bool ends_all(const Error& error);

  KvClient client_;
  const RpcLevel acknowledged_;
  const std::chrono::milliseconds timeout_;
  const std::uint64_t unsent_max_;
  PortCounts counts_;
  std::vector<Step> steps_;
  std::optional<Error> outage_;   // the store did not answer: nobody waits again
  std::optional<Error> failure_;  // for good
};

}  // namespace perdure::kv_app
