// Durable RPC on k of n servers: calls that outlive the loss of machines.
//
//   perdure::ReplicatedRpcServerOptions server;
//   server.group.peers = {"10.0.0.1:7470", "10.0.0.2:7470", "10.0.0.3:7470"};
//   server.group.service = "bank";
//   server.handlers[kPay] = pay;  // as RpcServer has it
//   auto serving = perdure::ReplicatedRpcServer::open(server);
//
//   perdure::ReplicatedRpcClientOptions client;
//   client.group = server.group;
//   client.name = "teller-1";
//   auto bank = perdure::ReplicatedRpcClient::open(client);
//   auto paid = bank->call(kPay, payload);
//   bank->wait(*paid, perdure::RpcLevel::Durable);
//
// The peers are `perdured` daemons. They hold calls and effects, each in replicated logs of n
// replicas of which k are the quorum; one process at a time executes, on any machine. With
// n - max(k, n - k + 1) peers lost for good, and the process that executes, no call that was
// reported Durable is lost, none is executed twice, and what was reported Applied stays.
//
// Handlers are those of RpcServer, and exactly once is the same: what a handler does to its
// transaction is applied with the mark that the call is applied and with its reply, all or nothing.
// What it does elsewhere may happen again. docs/rpc.md has the whole contract.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/rnic.h>
#include <perdure/rpc.h>
#include <perdure/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure {

/// Where a service is: the same for its server and its clients.
struct ReplicatedRpcGroup {
  /// Control planes of the peers, "host:port". Pools are made there as they are needed.
  std::vector<std::string> peers;
  /// Its name, and the beginning of its pools' names: [A-Za-z0-9_-], at most 20 characters.
  std::string service;
  /// Peers on which calls and effects must be durable. Each log of the service keeps the one with
  /// which it was created; another one is refused. 0: a majority, and what is there is not checked.
  std::size_t quorum = 0;
  std::optional<Transport> transport;  // nothing: each peer's fastest that works
  RnicOptions rnic;
  /// A peer that does not answer for this long is left out; one that is read, after 5 s at most.
  std::chrono::milliseconds peer_timeout{5000};
  /// Peers that are back are brought back: first this long after the loss. 0: they are not.
  std::chrono::milliseconds reconnect{50};
};

struct ReplicatedRpcServerOptions {
  ReplicatedRpcGroup group;

  // Of a service that is created; one that is there keeps its own.
  /// Of the handlers. Each server that executes has them in memory; each peer's pool has four times
  /// as much, and room for the replies.
  std::uint64_t data_bytes = 16 * 1024 * 1024;
  std::uint32_t clients_max = 64;
  std::uint32_t replies = 64;           // of each client that are kept, at most 1024
  std::uint32_t reply_bytes_max = 256;  // at most 64 KiB, and 2 MiB for a client's replies
  std::uint64_t transaction_bytes = 1024 * 1024;  // that one call may change, at most 4 MiB
  /// As RpcServerOptions::application.
  std::uint32_t application = 0;

  std::map<std::uint32_t, RpcHandler> handlers;  // by operator
  /// End the session of a server that still executes (it is fenced), instead of answering Busy.
  bool take_over = false;
  /// A call in whose handler so many servers have ended without a word is refused with SystemError,
  /// and its reply is `dropped`. At most 1000.
  std::uint32_t attempts_max = 3;
  /// Set such a call aside instead: it waits for an operator (retry and drop below), and so does
  /// what its client has called behind it. What is set aside a server opened without this refuses.
  bool hold_failed = false;
};

/// Sets one option from words: see set_option of log.h. There are quorum, transport, rnic,
/// rnic_ack_timeout, rnic_traffic_class, peer_timeout_ms, reconnect_ms of the group, and
/// data_bytes, clients_max, replies, reply_bytes_max, transaction_bytes, application, take_over,
/// attempts_max, hold_failed. Handlers are none. Errors: InvalidArgument, naming what there is.
Result<void> set_option(ReplicatedRpcServerOptions& options, std::string_view name,
                        std::string_view value);
/// All of them in one string: "perdure://HOST:PORT[,HOST:PORT...]/SERVICE[?OPTION=VALUE[&...]]".
/// Errors: InvalidArgument.
Result<ReplicatedRpcServerOptions> parse_replicated_rpc_server_options(std::string_view connection);
/// All of them from a TOML file: peers and service, and the names of set_option, as
/// read_log_options takes them.
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<ReplicatedRpcServerOptions> read_replicated_rpc_server_options(const std::string& path);

struct ReplicatedRpcClientPlace {
  std::string name;
  std::uint64_t client_id = 0;
  std::uint64_t applied = 0;  // sequence of the last call that was executed
  /// Of its log, that are committed, as far as is known, and were not read yet.
  std::uint64_t waiting_bytes = 0;
  std::uint32_t attempts = 0;  // servers that have ended in its next call
  /// Nothing more of it is executed by this server: its calls contradict what was executed.
  std::optional<Error> failure;
  bool held = false;  // its next call is set aside, and waits for an operator
};

struct ReplicatedRpcServerStatus {
  Epoch epoch;
  std::uint64_t executed = 0;    // calls since it was opened, refused ones among them
  std::uint64_t refused = 0;     // by their handlers, for want of one, set aside, or dropped
  std::uint64_t set_aside = 0;   // refused or held, for servers have ended in their handlers
  std::uint64_t rounds = 0;      // copies of everything that were written, so that old effects go
  std::optional<Error> waiting;  // for what it waits: of the quorum, for example
  std::optional<Error> failure;  // it executes nothing any more: Fenced, Corrupt, ...
  std::uint64_t effects_bytes = 0;      // of the log of effects, that are kept
  std::uint64_t effects_bytes_max = 0;  // when half of it is in use a round begins
  std::size_t quorum = 0;               // of the log of effects, and of its replicas
  std::size_t replicas = 0;
  std::size_t replicas_up = 0;
  /// Clients whose calls are executed one at a time, for the server before has ended without a
  /// word, and it may have been in one of them.
  std::size_t careful = 0;
  std::vector<ReplicatedRpcClientPlace> clients;
};

/// Executes the calls of a service: one at a time. Whoever opens the service next goes on.
/// Threads: any; a call of it waits for the handler that runs. Handlers run in a thread of its own,
/// one at a time, and must not call the server.
/// Processes: a child made by fork() must not use it.
class ReplicatedRpcServer {
 public:
  /// Fences earlier servers, reads what they have left, and begins to execute.
  /// Errors: Busy (another one executes; take_over), Fenced (one is taking over just now),
  /// QuorumLost, InvalidArgument (options; another application's service), Corrupt, NoSpace,
  /// VersionMismatch, Disconnected, TimedOut, and those of Log::open and create_pool.
  /// Cost: reads all effects that are kept.
  static Result<ReplicatedRpcServer> open(ReplicatedRpcServerOptions options);

  ReplicatedRpcServer(ReplicatedRpcServer&&) noexcept;
  ReplicatedRpcServer& operator=(ReplicatedRpcServer&&) noexcept;
  /// Waits for the handler that runs, says that this server ends in order, and ends the session.
  /// What is durable and not executed the next server executes.
  ~ReplicatedRpcServer();

  /// Bytes of the handlers, of whole calls, all of them committed.
  /// Errors: OutOfRange, TimedOut, and why it does not execute any more.
  Result<void> read(std::uint64_t at, std::span<std::byte> into,
                    std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// One peer for another, for the effects, and for the calls of clients that are away, now or as
  /// soon as they are; as long as this server executes. Clients that are there do it by their own
  /// call. A peer that has lost its pools is replaced by itself. Harmless when repeated.
  /// Errors: InvalidArgument (neither is one of the peers), AlreadyExists (both are), and those of
  /// Log::replace_replica and create_pool: of the effects, or of a client's calls: do it again.
  /// Behind OutcomeUnknown of the effects this server executes nothing more; open the service
  /// again.
  Result<void> replace_peer(const std::string& which, const std::string& peer);

  /// An operator's decision about a call that is set aside (ReplicatedRpcClientPlace::held): it is
  /// executed again, alone, and as many servers may end in it as before; or it is refused, as
  /// attempts_max says it, and what was called behind it goes on. `perdure rpc service-retry` and
  /// `service-drop` do the same where no server executes. Durability: on success the decision is
  /// committed, and a call that is dropped is never executed. Errors: NotFound (no such client),
  /// InvalidArgument (this call is not set aside), TimedOut (after 30 s; the message says whether
  /// anything may be decided), those of Log::append (nothing was decided), and why it does not
  /// execute any more: then the status of the next server says what was decided.
  Result<void> retry(const std::string& client, std::uint64_t sequence);
  Result<void> drop(const std::string& client, std::uint64_t sequence);

  ReplicatedRpcServerStatus status() const;
  /// The same as text for Prometheus, each value with the label `service`: docs/rpc.md has a table.
  std::string metrics() const;

 private:
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  explicit ReplicatedRpcServer(std::unique_ptr<State, Delete> state);
  std::unique_ptr<State, Delete> state_;
};

struct ReplicatedRpcClientOptions {
  ReplicatedRpcGroup group;
  /// As RpcClientOptions::name, at most 32 characters.
  std::string name;
  /// Of its calls on each peer, when it is opened for the first time: those that are durable and
  /// not applied, 64 KiB to 1 GiB. One call takes at most a quarter, and 16 MiB.
  std::uint64_t calls_bytes = 1024 * 1024;
  /// For read: it keeps a copy of the handlers' bytes in memory, made of the effects that it reads.
  bool reads = false;
};

/// Sets one option from words, as of a server: those of the group, and name, calls_bytes, reads.
/// Errors: InvalidArgument, naming what there is.
Result<void> set_option(ReplicatedRpcClientOptions& options, std::string_view name,
                        std::string_view value);
/// All of them in one string, as of a server, for example
/// "perdure://10.0.0.1:7470,10.0.0.2:7470,10.0.0.3:7470/bank?name=teller-1".
/// Errors: InvalidArgument.
Result<ReplicatedRpcClientOptions> parse_replicated_rpc_client_options(std::string_view connection);
/// All of them from a TOML file, as of a server.
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<ReplicatedRpcClientOptions> read_replicated_rpc_client_options(const std::string& path);

struct ReplicatedRpcClientStatus {
  std::uint64_t client_id = 0;
  Epoch epoch;
  std::uint64_t earlier_durable = 0;  // when it was opened: calls of earlier processes
  std::uint64_t begun = 0;            // sequence of the last call
  std::uint64_t applied = 0;          // up to here, as far as it has learned
  std::uint64_t calls_bytes = 0;      // of its log, that are kept
  std::uint64_t calls_bytes_max = 0;
  std::size_t quorum = 0;  // of its log, and of its replicas
  std::size_t replicas = 0;
  std::size_t replicas_up = 0;
  std::optional<Error> unread;   // why it learns nothing of effects now
  std::optional<Error> failure;  // it calls nothing any more: Fenced, Corrupt
};

/// A client. Its calls are a replicated log of which it is the writer.
/// Threads: one caller at a time; a thread of its own says what is committed while nobody calls.
/// Processes: a child made by fork() must not use it.
class ReplicatedRpcClient {
 public:
  /// Continues the name, and fences its earlier process. All peers must answer when the name is
  /// opened for the first time. Errors: InvalidArgument, Corrupt (its pools are older than what was
  /// executed, or hold something else), and those of Log::open and create_pool.
  static Result<ReplicatedRpcClient> open(ReplicatedRpcClientOptions options);

  ReplicatedRpcClient(ReplicatedRpcClient&&) noexcept;
  ReplicatedRpcClient& operator=(ReplicatedRpcClient&&) noexcept;
  ~ReplicatedRpcClient();

  /// Begins a call; the payload is copied. Calls of one client are executed in the order in which
  /// they were begun. Errors: QueueFull (not enough was applied for `peer_timeout`; nothing was
  /// begun), InvalidArgument (size), QuorumLost, Fenced (another process has the name, or the
  /// server took it for dead while no peer was reached: open it again), Corrupt (its pools are
  /// older than what was executed), and those of Log::append.
  Result<RpcHandle> call(std::uint32_t operation, std::span<const std::byte> payload,
                         std::uint64_t order_key = 0);

  /// Durable: on the quorum. Applied: its effects and its reply are on the quorum.
  /// Errors: TimedOut (wait again; of Applied also while no server executes, or no peer can be
  /// read; and a peer that has stopped may hold it up for `peer_timeout`), OutcomeUnknown (of
  /// Durable: Log::wait), Fenced (of Applied: a newer process has the name, or the server took this
  /// one for dead, and what became of the call the next process knows; one that is durable is or
  /// will be applied all the same), Busy (of Applied: this call, or one before it, is set aside
  /// until an operator decides, and a moment longer), Corrupt (its pools are older than what was
  /// executed), InvalidArgument (not a call of this client).
  Result<void> wait(const RpcHandle& handle, RpcLevel level,
                    std::chrono::milliseconds timeout = std::chrono::seconds(30));
  /// Waits until it is applied and returns its reply. `cancelled` is never set.
  /// Errors: those of wait; NotFound: its reply is not kept any more.
  Result<RpcReply> reply(const RpcHandle& handle,
                         std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// Bytes of the handlers, of whole calls, all of them committed: with all that this client knows
  /// to be applied, and nothing that an earlier read has seen is missing, but for what was given up
  /// when a loss was accepted: then it waits for a server that has executed since. What others were
  /// told a moment ago it may not have yet. Needs no server that executes.
  /// Errors: Unsupported (it was opened without `reads`), OutOfRange, TimedOut (the effects can not
  /// be read to their end, or there are none yet), and those of wait for Applied.
  /// When its service was made anew under the same name, the client has to be opened again.
  /// Cost: asks a peer or two; the first one reads all effects that are kept.
  Result<void> read(std::uint64_t at, std::span<std::byte> into,
                    std::chrono::milliseconds timeout = std::chrono::seconds(30));

  /// One peer for another. Errors: as ReplicatedRpcServer::replace_peer; behind OutcomeUnknown
  /// every call is QuorumLost: open the client again.
  Result<void> replace_peer(const std::string& which, const std::string& peer);

  /// A call of this client by its sequence, an earlier process's too: up to `earlier_durable`, and
  /// only before this process has called. What the earlier one had begun behind that is lost, and
  /// its sequences are given again.
  RpcHandle handle_of(std::uint64_t sequence) const;
  ReplicatedRpcClientStatus status() const;
  /// The same as text for Prometheus, each value with the labels `service` and `client`.
  std::string metrics() const;

 private:
  class State;
  struct Delete {
    void operator()(State* state) const;
  };
  explicit ReplicatedRpcClient(std::unique_ptr<State, Delete> state);
  std::unique_ptr<State, Delete> state_;
};

}  // namespace perdure
