// The process that executes, as its files share it: replicated_rpc_server.cc has its life and the
// log of effects, _clients.cc which clients there are, _trials.cc calls that may end a server.
#pragma once

#include <perdure/log.h>
#include <perdure/pool.h>
#include <perdure/replicated_rpc.h>

#include "core/clock.h"
#include "core/forks.h"
#include "core/mutex.h"
#include "replicated_rpc/effects.h"
#include "replicated_rpc/group.h"

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace perdure {

namespace replicated_rpc {

/// A client's log that could not be read, or opened, is tried again.
inline constexpr Nanoseconds kCallsAgainAfter = std::chrono::milliseconds(500);

/// A call that is executed alone, for a server may have ended in it. The stages in their order:
/// it is noted, and the note committed; it is executed; its effects are committed.
struct Trial {
  enum class Stage { Note, Execute, Settle };
  Stage stage = Stage::Note;
  std::string client;
  std::vector<std::byte> payload;
  RpcCall call;  // of these two
};

}  // namespace replicated_rpc

class ReplicatedRpcServer::State {
 public:
  explicit State(ReplicatedRpcServerOptions asked) : options_(std::move(asked)) {}
  ~State() {
    stopping_.store(true);
    if (thread_.joinable()) thread_.join();
    end();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Result<void> open();
  void start() {
    thread_ = std::thread([this] { run(); });
  }

  Result<void> read(std::uint64_t at, std::span<std::byte> into, Nanoseconds timeout);
  Result<void> replace_peer(const std::string& which, const std::string& peer);
  Result<void> decide(const std::string& client, std::uint64_t sequence,
                      replicated_rpc::Decision decision);
  ReplicatedRpcServerStatus status();
  std::string metrics();

  const std::uint32_t process = forks_so_far();

 private:
  /// The calls of one client.
  struct Calls {
    std::optional<LogReader> reader;
    std::size_t reads_first = 0;   // of the log: a peer's number
    Nanoseconds read_again{0};     // not before
    Nanoseconds resolve_again{0};  // not before
    Epoch resolved;                // what is committed of this epoch and the ones before is known
    bool careful = false;          // they are tried one at a time ...
    Nanoseconds first_read{0};     // since when it is known what is committed
    std::optional<Lsn> careful_up_to;  // ... as long as they begin before
    bool held = false;  // the last record that was read is a call that waits for an operator
    std::optional<Error> failure;
    std::map<std::string, std::string> pools;  // by peer: the UUID of what was listed there last
    std::set<std::string> listed_by;           // peers, when they were asked last
  };
  /// Holds the mutex for a caller: the thread lets him in between two turns.
  class Caller {
   public:
    explicit Caller(State& state) : state_(state) { ++state_.callers_; }
    ~Caller() { --state_.callers_; }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

   private:
    State& state_;
  };

  void run();
  void end();
  bool is_served(const std::string& pool) PERDURE_REQUIRES(mutex_);
  Result<bool> turn() PERDURE_REQUIRES(mutex_);
  Result<void> note_opening() PERDURE_REQUIRES(mutex_);
  bool is_calm() PERDURE_REQUIRES(mutex_);
  Result<void> note_calm() PERDURE_REQUIRES(mutex_);
  Result<void> await_committed() PERDURE_REQUIRES(mutex_);
  Result<void> check_application() PERDURE_REQUIRES(mutex_);
  bool has_place_for(const std::string& name) const PERDURE_REQUIRES(mutex_);
  void look_for_clients() PERDURE_REQUIRES(mutex_);
  void forget_who_has_gone(const std::string& peer, const std::vector<PoolDescription>& pools)
      PERDURE_REQUIRES(mutex_);
  Result<void> resolve(const std::string& name, Calls& calls) PERDURE_REQUIRES(mutex_);
  bool execute_calls(const std::string& name, Calls& calls) PERDURE_REQUIRES(mutex_);
  static bool is_careful(Calls& calls);
  bool is_held(const std::string& name, Calls& calls) PERDURE_REQUIRES(mutex_);
  Result<void> take(const std::string& name, Calls& calls, const Record& record, bool alone)
      PERDURE_REQUIRES(mutex_);
  void execute(const RpcCall& call) PERDURE_REQUIRES(mutex_);
  Result<void> go_on_with_trial() PERDURE_REQUIRES(mutex_);
  std::vector<std::byte> set_aside(const RpcCall& call) PERDURE_REQUIRES(mutex_);
  Result<void> append_transaction() PERDURE_REQUIRES(mutex_);
  Result<void> go_round(std::uint64_t bytes) PERDURE_REQUIRES(mutex_);
  Result<std::uint64_t> append_piece(const std::vector<std::byte>& piece) PERDURE_REQUIRES(mutex_);
  Result<void> trim() PERDURE_REQUIRES(mutex_);

  Mutex mutex_;
  std::condition_variable idle_;
  std::atomic<int> callers_{0};
  std::atomic<bool> stopping_{false};
  ReplicatedRpcServerOptions options_ PERDURE_GUARDED_BY(mutex_);
  std::optional<Log> log_ PERDURE_GUARDED_BY(mutex_);
  replicated_rpc::Looks looks_ PERDURE_GUARDED_BY(mutex_);  // at log_
  replicated_rpc::Effects effects_ PERDURE_GUARDED_BY(mutex_);
  std::map<std::string, Calls> calls_ PERDURE_GUARDED_BY(mutex_);  // by client
  /// Replaced peers and those that are in their places now: a client's log may still have one of
  /// the former.
  std::vector<std::pair<std::string, std::string>> replaced_ PERDURE_GUARDED_BY(mutex_);
  std::vector<std::byte> pending_ PERDURE_GUARDED_BY(mutex_);  // a transaction to be appended
  std::optional<Ticket> last_ PERDURE_GUARDED_BY(mutex_);      // of what was appended
  std::optional<Ticket> round_end_ PERDURE_GUARDED_BY(mutex_);
  enum class Opening { Unsaid, Said, Noted };  // of this server, in the log of effects
  Opening opening_ PERDURE_GUARDED_BY(mutex_) = Opening::Unsaid;
  bool died_ PERDURE_GUARDED_BY(mutex_) = false;  // the server before, without a word
  bool careful_ PERDURE_GUARDED_BY(mutex_) = false;
  std::optional<replicated_rpc::Trial> trial_ PERDURE_GUARDED_BY(mutex_);
  std::string served_ PERDURE_GUARDED_BY(mutex_);  // the client of which a call was executed last
  std::size_t next_peer_ PERDURE_GUARDED_BY(mutex_) = 0;
  std::set<std::string> answered_ PERDURE_GUARDED_BY(mutex_);  // peers that said who there is
  Nanoseconds look_again_ PERDURE_GUARDED_BY(mutex_){0};
  ReplicatedRpcServerStatus counted_ PERDURE_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace perdure
