// Durable RPC: calls that are executed exactly once after any crash, by a server that nobody has to
// send them to again.
//
//   perdure::RpcServerOptions server;                      perdure::RpcClientOptions client;
//   server.pool = "/srv/bank.pool";                        client.server = "127.0.0.1:7470";
//   server.handlers[kPay] = [](const RpcCall& call,        client.name = "teller-1";
//       RpcTransaction& data, std::span<std::byte> reply)  auto bank = RpcClient::open(client);
//       -> perdure::Result<std::size_t> { ... };           auto paid = bank->call(kPay, payload);
//   auto served = RpcServer::open(server);                 bank->wait(*paid, RpcLevel::Durable);
//
// A call that was reported Durable is in the server's persistence domain and will be executed
// exactly once, whatever crashes from then on, without its client. Reported Applied, its effects
// are durable, too, and its reply is there.
//
// Exactly once holds for what a handler does to its transaction: that is applied with the mark that
// the call is done and with its reply, all or nothing. What a handler does elsewhere (another
// process, a file, a message) may happen again after a crash: there it is at least once, and
// RpcCall has (client_id, generation, sequence) as idempotency key. docs/rpc.md has the whole
// contract.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/rnic.h>
#include <perdure/time_counts.h>
#include <perdure/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace perdure {

/// Of calls that were cancelled (RpcClient::cancel): no handler has it, and nobody calls it.
inline constexpr std::uint32_t kRpcCancelled = UINT32_MAX;

/// How far a call has come. The second includes the first.
enum class RpcLevel {
  /// Will be executed exactly once, whatever crashes; but what ends its server, or throws, each
  /// time is set aside in the end (RpcServerOptions::attempts_max), and an operator may refuse it.
  Durable,
  Applied,  // was: its effects and its reply are durable
};

std::string_view to_string(RpcLevel level);

/// One call as its handler sees it. Valid during the handler.
struct RpcCall {
  std::uint32_t operation = 0;
  std::uint64_t client_id = 0;  // of one client, from its first opening until it expires
  std::string_view client;      // its name
  std::uint64_t sequence = 0;   // of this client, from 1, without a gap
  std::uint64_t order_key = 0;  // as the caller gave it
  std::span<const std::byte> payload;
  /// Grows with each opening of the client's name. A call that was never durable is nobody's any
  /// more when its process has died; what the next one calls may have the same sequence.
  std::uint32_t generation = 0;
};

/// The handlers' bytes of the server's pool.
class RpcData {
 public:
  virtual ~RpcData() = default;
  virtual std::uint64_t bytes() const = 0;
  /// What is there, with this transaction's own writes. Errors: OutOfRange.
  virtual Result<void> read(std::uint64_t at, std::span<std::byte> into) const = 0;

  template <typename T>
  Result<T> load(std::uint64_t at) const {
    static_assert(std::is_trivially_copyable_v<T>);
    T value;
    auto got = read(at, std::as_writable_bytes(std::span<T, 1>(&value, 1)));
    if (!got.ok()) return got.error();
    return value;
  }
};

/// What one call does to them: all of it or nothing.
class RpcTransaction : public RpcData {
 public:
  /// Copies the bytes. Errors: OutOfRange; NoSpace (RpcServerOptions::transaction_bytes). After
  /// either the call is refused with it, whatever the handler returns.
  virtual Result<void> write(std::uint64_t at, std::span<const std::byte> bytes) = 0;

  template <typename T>
  Result<void> store(std::uint64_t at, const T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    return write(at, std::as_bytes(std::span<const T, 1>(&value, 1)));
  }
};

/// Executes one call and returns how many bytes of `reply` it has written. An error refuses the
/// call: nothing of its transaction is kept, and its client gets the code, once and for all. One
/// that throws is tried again, and set aside after RpcServerOptions::attempts_max; one that did not
/// fit behind the calls before it in their transaction, and throws or not, is run again in one of
/// its own.
/// Threads: one call of one server at a time, by a thread of the server; with several of them
/// (RpcServerOptions::handler_threads) at the same time as calls of other clients with other keys.
using RpcHandler = std::function<Result<std::size_t>(const RpcCall& call, RpcTransaction& data,
                                                     std::span<std::byte> reply)>;
/// Answers a query, of the effects of whole calls. Threads: any, one at a time, and no call's
/// effects appear meanwhile: it should be short.
using RpcQueryHandler = std::function<Result<std::size_t>(
    std::span<const std::byte> payload, const RpcData& data, std::span<std::byte> reply)>;

struct RpcServerOptions {
  /// File of the server's pool. Made if there is none, with the sizes below; one that is there
  /// keeps its own (they must be valid all the same).
  std::string pool;
  std::uint64_t data_bytes = 16 * 1024 * 1024;  // of the handlers
  std::uint32_t clients_max = 64;
  /// Of each client: its calls that are durable and not applied; one call takes at most half.
  std::uint64_t ring_bytes = 1024 * 1024;
  /// Replies of each client that are kept, so calls that it may have in flight.
  std::uint32_t replies = 64;
  /// Of one reply, at most 16 MiB. Each of those kept has room for so many in the pool; what is
  /// beyond 8,000 bytes comes in several messages.
  std::uint32_t reply_bytes_max = 256;
  /// That the calls of one flush may change, their replies among it: at least twice a reply.
  std::uint64_t transaction_bytes = 1024 * 1024;
  /// Any number that other programs do not have, or 0. It is kept in the pool; a server of another
  /// one is refused the pool, before it refuses for good what calls it does not know.
  std::uint32_t application = 0;
  std::optional<PersistenceDomain> declared;  // see docs/hardware.md. Nothing: the evidence
  ReceiveBuffers receive_buffers = ReceiveBuffers::Dram;

  std::map<std::uint32_t, RpcHandler> handlers;      // by operator
  std::map<std::uint32_t, RpcQueryHandler> queries;  // by operator
  /// Room for the answer of one query, at most 16 MiB. What is beyond 8,000 bytes is kept in memory
  /// until its client has it.
  std::uint64_t answer_bytes_max = 8000;
  /// A call is set aside when its handler has thrown, or its server has ended in it, so often (once
  /// more where other calls shared its transaction): it and what its client has called behind it
  /// wait, also in servers after this one, until it is retried or dropped. At most 1000.
  std::uint32_t attempts_max = 3;
  /// Such a call is refused at once instead, with SystemError, and its client's later calls go on:
  /// where one client carries the calls of many users.
  bool refuse_failed = false;
  /// A client of which nothing is unapplied and that was silent for this long loses its place
  /// and name; it is told when it comes back. 0: never. Counted while the server runs.
  std::chrono::milliseconds lease{0};

  std::string listen = "127.0.0.1:7470";       // control plane; port 0: any free one
  std::string data_listen = "127.0.0.1:7471";  // tcp
  std::vector<Transport> transports = {Transport::Tcp, Transport::Shm};
  RnicOptions rnic;
  /// Nobody is authenticated. Without it an address that other machines reach, of either plane or
  /// of an RNIC, is PermissionDenied. With it, where they reach `listen` but not `data_listen`,
  /// that is InvalidArgument: they would be sent to their own loopback.
  bool allow_remote = false;
  /// How long it polls for calls before it sleeps; one-sided calls are then found after at most a
  /// millisecond.
  std::chrono::microseconds spin{50};
  /// From so many percent of its ring, or of the calls that it may have in flight, a client is
  /// slowed: each further call waits until one more is applied, or for a time that grows from
  /// nothing there to a millisecond where it is full. 100: it is not, and waits where it is full.
  std::uint32_t slow_from_percent = 75;
  /// Calls are executed where they arrive, by the thread of their client's session, which saves a
  /// change of threads for each: where every handler is so short that nobody minds that the
  /// client's next calls become durable only afterwards. Still one at a time.
  bool quick_handlers = false;
  /// That execute calls, at most 64. With more than one, calls of different clients with different
  /// order keys, neither of them 0, are executed at the same time: so calls that touch the same
  /// data must have the same key, or 0, which goes beside nothing. Calls of one key are executed
  /// one after the other, and so are those of one client.
  std::uint32_t handler_threads = 1;
};

struct RpcClientPlace {
  std::string name;
  std::uint64_t client_id = 0;
  std::uint64_t applied = 0;    // sequence of the last call that is
  std::uint64_t waiting = 0;    // whole entries behind it
  std::uint32_t attempts = 0;   // at the next one
  std::uint32_t set_aside = 0;  // how often a call was
  std::uint32_t dropped = 0;    // calls that an operator refused
  bool held = false;            // call `applied` + 1 is set aside: it is retried or dropped
};

/// A call, or a query, that is in its handler.
struct RpcExecuting {
  std::string client;  // its name
  std::uint64_t client_id = 0;
  std::uint64_t sequence = 0;  // 0: a query, which has none
  std::uint32_t operation = 0;
  std::chrono::nanoseconds lasted{0};  // so far
};

struct RpcServerStatus {
  std::uint64_t applied = 0;         // calls since it was opened, refused ones among them
  std::uint64_t refused = 0;         // by their handlers
  std::uint64_t unknown = 0;         // for operators without a handler
  std::uint64_t set_aside = 0;       // since it was opened
  std::uint64_t dropped = 0;         // by operators, since it was opened
  std::uint64_t refused_failed = 0;  // at once: RpcServerOptions::refuse_failed
  std::uint64_t cancelled = 0;       // by their clients
  std::uint64_t transactions = 0;    // each took one flush
  std::uint64_t queries = 0;
  std::uint64_t expired = 0;     // clients
  std::optional<Error> failure;  // the medium refused: nothing is executed any more
  std::vector<RpcClientPlace> clients;
  std::vector<RpcExecuting> executing;  // now: one for each thread that is in a handler; a query
};

/// A server of calls. Its control plane is that of perdured: its clients are pools there.
/// Threads: any. Processes: a child made by fork() is refused with InvalidArgument, and ends
/// nothing of its parent's.
class RpcServer {
 public:
  /// Recovers the pool, executes every call that it finds, then serves.
  /// Errors: InvalidArgument, Busy (the pool or the port), Corrupt, VersionMismatch, NoSpace,
  /// PermissionDenied, SystemError, Unsupported (`declared` contradicts what this machine shows, or
  /// says nothing of a pool that was made with more than that).
  static Result<RpcServer> open(RpcServerOptions options);
  /// Recovers the pool, executes every call that it finds, and serves nobody: before an upgrade, or
  /// when the service ends. What is left is in the status: clients of which `waiting` is not 0 have
  /// a call set aside. Of the options, addresses and transports are not looked at. A call for an
  /// operator without a handler is refused for good here, too.
  /// Errors: NotFound (no such file), and those of open.
  static Result<RpcServerStatus> replay(RpcServerOptions options);

  RpcServer(RpcServer&&) noexcept;
  RpcServer& operator=(RpcServer&&) noexcept;
  /// Ends sessions; calls that are durable and not applied are executed by the next server. Not in
  /// one of its handlers, for which it waits.
  ~RpcServer();

  /// Of the control plane, with the port that was chosen. Empty, and the status too, when it was
  /// moved from, or in a child of fork().
  const std::string& address() const;
  RpcServerStatus status() const;

  /// An operator's decision about a call that is set aside (RpcClientPlace::held): it is executed
  /// again, as if for the first time; or it is refused, its client gets SystemError in its reply,
  /// and what was called behind it goes on. `perdure rpc` does the same where no server runs.
  /// Durability: on success the decision outlives any crash, and a call that is dropped is never
  /// executed. Errors: NotFound (no such client), InvalidArgument (this call is not set aside, or a
  /// handler of this server asks), Busy (the calls and the query that are in their handlers have
  /// been for longer than a second: the message names them; nothing was decided), Corrupt (of drop:
  /// the ring does not hold it any more), NoSpace (the medium is full), SystemError.
  Result<void> retry(const std::string& client, std::uint64_t sequence);
  Result<void> drop(const std::string& client, std::uint64_t sequence);

 private:
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  explicit RpcServer(std::unique_ptr<State, Delete> state);
  bool usable() const;
  std::unique_ptr<State, Delete> state_;
};

struct RpcClientOptions {
  std::string server;  // control plane of the RpcServer, "host:port"
  /// Who it is: [A-Za-z0-9._-], at most 64 characters. Whoever opens the same name again continues
  /// it, and fences its earlier process.
  std::string name;
  std::optional<Transport> transport;  // nothing: the fastest that works
  RnicOptions rnic;
  std::optional<Primary> primary;  // nothing: what is cheapest on the connection
  bool measure_costs = true;
  std::chrono::milliseconds server_timeout{5000};  // without an answer for this long: connect anew
  std::chrono::milliseconds reconnect{50};         // first back-off; 0: it does not come back
  std::chrono::microseconds spin{200};             // how long waiting polls before it sleeps
};

/// Sets one option from words: see set_option of log.h. There are transport, rnic,
/// rnic_ack_timeout, rnic_traffic_class, primary, measure_costs, server_timeout_ms, reconnect_ms,
/// spin_us. Errors: InvalidArgument, naming what there is.
Result<void> set_option(RpcClientOptions& options, std::string_view name, std::string_view value);
/// All options in one string: "perdure://HOST:PORT/NAME[?OPTION=VALUE[&...]]", for example
/// "perdure://10.0.0.1:7470/teller-1?reconnect_ms=100". Errors: InvalidArgument.
Result<RpcClientOptions> parse_rpc_client_options(std::string_view connection);
/// All options from a TOML file: server and name, and the names of set_option, as
/// read_log_options takes them.
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<RpcClientOptions> read_rpc_client_options(const std::string& path);

/// A call that was begun.
struct RpcHandle {
  std::uint64_t sequence = 0;
  std::uint64_t client_id = 0;
};

struct RpcReply {
  /// Why it was not executed, once and for all: what its handler said, Unsupported (no handler),
  /// SystemError (its handler failed each time, and it was dropped).
  std::optional<ErrorCode> refused;
  /// Not by its handler: that failed each time, and the call was dropped. What else it may have
  /// done outside of the pool nobody knows.
  bool dropped = false;
  /// It was cancelled before it was sent, so `refused` is TimedOut.
  bool cancelled = false;
  std::vector<std::byte> bytes;
};

struct RpcClientStatus {
  bool up = false;
  std::string down_reason;
  std::uint64_t client_id = 0;
  /// When it was opened: calls of earlier processes that are durable, and the last that was
  /// applied. The replies of the last RpcServerOptions::replies calls can be asked for.
  std::uint64_t earlier_durable = 0;
  std::uint64_t begun = 0;    // sequence of the last call
  std::uint64_t durable = 0;  // up to here
  std::uint64_t applied = 0;  // up to here
  std::uint64_t resent = 0;   // calls, after connections were lost
  std::uint64_t cancelled = 0;
  std::uint64_t slowed = 0;                // calls that waited: RpcServerOptions::slow_from_percent
  std::chrono::nanoseconds slowed_for{0};  // in all
  std::uint64_t connections = 0;
  std::string small_method;
  std::string large_method;
};

/// How long calls took, of a sample (see LogTimes): from call() until the client learned that they
/// were durable and applied, which who never waits for the latter does late; and every query that
/// was answered. One call is timed at a time: until it is applied no other is.
struct RpcTimes {
  TimeCounts durable;
  TimeCounts applied;
  TimeCounts queries;
};

/// A client. Threads: one caller at a time; progress is made in the calls, and it has no threads.
/// Any of them may return Corrupt: the server's pool is an older copy of what it told this client.
/// Processes: a child made by fork() is refused with InvalidArgument, and ends nothing of its
/// parent's.
class RpcClient {
 public:
  /// Errors: NoSpace (the server has no place for one more client), InvalidArgument (the name),
  /// Unsupported (nothing in the server's memory is ever durable), Fenced (another process opens
  /// the name), Busy (its place is being made, or is closed, or a handler takes long: try again),
  /// Disconnected, TimedOut.
  static Result<RpcClient> open(RpcClientOptions options);

  RpcClient(RpcClient&&) noexcept;
  RpcClient& operator=(RpcClient&&) noexcept;
  /// What is not durable by then may be executed or not; whoever opens the name next learns it.
  ~RpcClient();

  /// Begins a call; the payload is copied. Calls of one client are executed in the order in which
  /// they were begun.
  /// Errors     InvalidArgument (kRpcCancelled), QueueFull (the server does not apply fast enough,
  /// or one is set aside; nothing was
  ///            begun: call again, or wait for an earlier one), InvalidArgument (the payload is too
  ///            large), Fenced, NotFound (it expired). Waits up to `server_timeout` while too much
  ///            is in flight, and as long again if it comes back to the server meanwhile.
  /// Durability none yet: wait for a level.
  Result<RpcHandle> call(std::uint32_t operation, std::span<const std::byte> payload,
                         std::uint64_t order_key = 0);

  /// Waits until the call, and all before it, have reached `level`. Comes back after a lost
  /// connection meanwhile, and sends again what is neither durable nor applied; coming back may
  /// take up to `server_timeout`, however little time is left.
  /// Errors   TimedOut (it may still get there: wait again), OutcomeUnknown (it is not known to be
  ///          durable, and another process has the name, or the client expired: it may be executed
  ///          or not), Fenced, NotFound (the same of a call that is durable: it is executed), Busy
  ///          (Applied only: it, or one before it, is set aside; an operator decides: wait again),
  ///          InvalidArgument (not a call of this client; one that was cancelled).
  Result<void> wait(const RpcHandle& handle, RpcLevel level,
                    std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// Waits until it is applied and returns its reply, as often as asked, of the last 4096 calls
  /// (fewer if their replies have more than 64 MiB in all).
  /// Errors: those of wait; NotFound also: its reply is not kept any more.
  Result<RpcReply> reply(const RpcHandle& handle,
                         std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// Cancels a call that was never sent: because too much was in flight, or the server was away. It
  /// keeps its place, and its handler is never called, whatever crashes. Waiting for it is
  /// InvalidArgument, its reply says that it was cancelled.
  /// Errors: Busy (it was sent before, and is executed if it gets there: wait for it);
  /// InvalidArgument (not a call of this client).
  Result<void> cancel(const RpcHandle& handle);

  /// Asks for what calls have left, in about 1,000 bytes; not logged.
  /// After a lost connection it is asked again, so its handler may run more than once.
  /// Sees every call of this client that was applied, and with `own_calls` all that were begun.
  /// Errors: those of wait and of the handler; Unsupported (no handler).
  Result<std::vector<std::byte>> query(
      std::uint32_t operation, std::span<const std::byte> payload, bool own_calls = true,
      std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// Makes progress without waiting, but for up to `server_timeout` when it comes back to a server
  /// that does not answer. Errors: Fenced, NotFound.
  Result<void> poll();

  std::uint64_t payload_bytes_max() const;
  /// A call of this client by its sequence, an earlier process's too.
  RpcHandle handle_of(std::uint64_t sequence) const;
  RpcClientStatus status() const;
  /// Since it was opened. Cost: for each call that is not timed, a decrement, or a look at the one
  /// that is.
  RpcTimes times() const;

 private:
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  explicit RpcClient(std::unique_ptr<State, Delete> state);
  bool usable() const;
  std::unique_ptr<State, Delete> state_;
};

}  // namespace perdure
