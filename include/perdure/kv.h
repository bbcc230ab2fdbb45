// A key-value store on durable RPC (rpc.h): keys of up to 512 bytes, values of up to 1 MiB, in the
// pool of one server. Each change is executed exactly once after any crash.
//
//   perdure::KvServerOptions server;                perdure::KvClientOptions client;
//   server.pool = "/srv/kv.pool";                   client.rpc.server = "127.0.0.1:7470";
//   auto served = KvServer::open(server);           client.rpc.name = "app-1";
//                                                   auto store = KvClient::open(client);
//                                                   store->set("key", value, RpcLevel::Durable);
//                                                   auto found = store->get("key");
//
// `perdure-kv` is a server, and a port for clients of Redis, made of these. docs/kv.md has the
// contract.
#pragma once

#include <perdure/rpc.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure {

inline constexpr std::size_t kKvKeyBytesMax = 512;
inline constexpr std::size_t kKvValueBytesMax = 1024 * 1024;

struct KvServerOptions {
  /// File of the server's pool. Made if there is none, with the sizes below; one that is there
  /// keeps its own.
  std::string pool;
  std::uint64_t bytes = 256 * 1024 * 1024;  // for keys, values and their index
  std::uint64_t keys_max = 0;               // 0: one for each KiB
  /// Values take whole blocks, but for the first 40 bytes of key and value. Smaller ones waste
  /// less, larger ones take fewer steps.
  std::uint32_t block_bytes = 512;
  std::uint32_t clients_max = 16;  // each costs four of the largest values
  std::size_t value_bytes_max = kKvValueBytesMax;
  std::optional<PersistenceDomain> declared;  // see docs/hardware.md. Nothing: the evidence

  std::string listen = "127.0.0.1:7470";       // control plane; port 0: any free one
  std::string data_listen = "127.0.0.1:7471";  // tcp
  std::vector<Transport> transports = {Transport::Tcp, Transport::Shm};
  RnicOptions rnic;
  bool allow_remote = false;           // see RpcServerOptions
  std::chrono::microseconds spin{50};  // see RpcServerOptions
  /// A change of which the handler failed, or in which the server ended, each time is refused with
  /// SystemError, and its client's later changes go on; else they and all its reads wait for an
  /// operator. So for clients that carry the changes of many users, and wait for Applied: what was
  /// acknowledged as Durable only may be refused then, with nobody left who hears it.
  bool refuse_failed = false;
};

/// Threads: any. Processes: a child made by fork() must not use it.
class KvServer {
 public:
  /// Recovers the pool, executes every change that it finds, then serves. Errors: those of
  /// RpcServer::open; InvalidArgument (the sizes make no store).
  static Result<KvServer> open(const KvServerOptions& options);
  const std::string& address() const { return rpc_.address(); }
  RpcServerStatus status() const { return rpc_.status(); }

 private:
  explicit KvServer(RpcServer rpc) : rpc_(std::move(rpc)) {}
  RpcServer rpc_;
};

struct KvClientOptions {
  RpcClientOptions rpc;
  /// How long an operation takes at most, where it has no time of its own.
  std::chrono::milliseconds timeout{5000};
};

/// As those of RpcClientOptions (rpc.h), with timeout_ms besides. Errors: InvalidArgument.
Result<void> set_option(KvClientOptions& options, std::string_view name, std::string_view value);
/// Errors: InvalidArgument.
Result<KvClientOptions> parse_kv_client_options(std::string_view connection);
/// Errors: NotFound, PermissionDenied, SystemError (the file); InvalidArgument, with the line.
Result<KvClientOptions> read_kv_client_options(const std::string& path);

enum class KvCondition { Always, IfAbsent, IfPresent };

/// A change that was begun.
struct KvTicket {
  RpcHandle call;
  /// The server keeps room for it, so it can not be refused for want of room once it is durable.
  bool assured = false;
};

struct KvChange {
  bool stored = false;  // of a set: its condition held
  bool was_there = false;
  std::uint64_t version = 0;  // of the record, unique in the store
  std::uint64_t erased = 0;   // of an erase: keys that were there
};

struct KvEntry {
  std::string key;
  std::uint32_t value_bytes = 0;
  std::vector<std::byte> value;  // if it was asked for
};

struct KvKeys {
  std::vector<std::string> keys;
  std::uint64_t cursor = 0;  // where to go on; 0: that was all
};

struct KvInfo {
  std::uint64_t keys = 0;
  std::uint64_t record_bytes = 0;  // of keys and values
  std::uint64_t version = 0;       // changes of records so far
  std::uint64_t keys_max = 0;
  std::uint64_t keys_available = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t blocks = 0;
  std::uint64_t blocks_available = 0;
  std::uint64_t keys_granted = 0;  // of those that are available, kept for clients
  std::uint64_t blocks_granted = 0;
  std::size_t value_bytes_max = 0;
};

/// A client of a store. Its changes are executed in the order in which they were begun, and it sees
/// them all.
/// Threads: one caller at a time; progress is made in the calls. Processes: not after fork().
class KvClient {
 public:
  /// Errors: those of RpcClient::open; Unsupported (the server has no key-value store).
  static Result<KvClient> open(const KvClientOptions& options);
  KvClient(KvClient&&) noexcept;
  KvClient& operator=(KvClient&&) noexcept;
  ~KvClient();

  /// Begins to store; key and value are copied.
  /// Errors     InvalidArgument (key or value are too large), and those of RpcClient::call.
  /// Durability none yet: wait for a level.
  Result<KvTicket> begin_set(std::string_view key, std::span<const std::byte> value,
                             KvCondition condition = KvCondition::Always);
  /// Begins to remove keys, all in one step. Errors: as begin_set; InvalidArgument: more than
  /// kKvEraseKeysMax.
  Result<KvTicket> begin_erase(std::span<const std::string_view> keys);
  /// Durable: it is executed exactly once, whatever crashes, and not refused for want of room:
  /// where that is not assured, this waits until it is applied. Errors: those of RpcClient::wait;
  /// NoSpace (the store is full: nothing was changed).
  Result<void> wait(const KvTicket& ticket, RpcLevel level,
                    std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// Waits until it is applied and says what it did. Errors: those of wait and RpcClient::reply.
  Result<KvChange> outcome(const KvTicket& ticket,
                           std::optional<std::chrono::milliseconds> timeout = std::nullopt);
  /// begin_set and wait.
  Result<void> set(std::string_view key, std::span<const std::byte> value, RpcLevel level);
  /// begin_erase and outcome: how many of them were there.
  Result<std::uint64_t> erase(std::span<const std::string_view> keys);

  using Value = std::optional<std::vector<std::byte>>;
  /// The value now; nothing: there is none. Errors: those of RpcClient::query; Corrupt (its
  /// checksum is wrong); Busy (a large value changed again and again while it was read).
  Result<Value> get(std::string_view key);
  /// The same of several; each is of one moment, not all of the same.
  Result<std::vector<Value>> get(std::span<const std::string_view> keys);
  /// Keys in no order, in steps, from cursor 0 until 0 comes back. One that is there all the time
  /// is returned exactly once. Looks at up to `slots` places in a step; may return no key.
  Result<KvKeys> walk(std::uint64_t cursor, std::uint32_t slots = 1024);
  /// Up to `limit` entries in the order of keys, from the first that is not before `key` (or, with
  /// `behind`, that is behind it). Each step of several thousand bytes is of one moment; a value
  /// that is larger is read later than what is before it, and before what is behind it.
  Result<std::vector<KvEntry>> range(std::string_view key, std::size_t limit,
                                     bool with_values = true, bool behind = false);
  Result<KvInfo> info();

  RpcClientStatus status() const;

 private:
  class State;
  explicit KvClient(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

inline constexpr std::size_t kKvEraseKeysMax = 512;

}  // namespace perdure
