// The port for clients of Redis: sockets, limits and time. What requests do is in store_requests.h.
#pragma once

#include <perdure/kv.h>
#include <perdure/result.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/clock.h"
#include "store_requests.h"

namespace perdure::kv_app {

struct RespPortOptions {
  std::string listen = "127.0.0.1:6379";  // port 0: any free one
  bool allow_remote = false;              // nobody who connects is authenticated
  RpcLevel acknowledged = RpcLevel::Durable;
  std::uint32_t connections_max = 256;  // each may make the port keep about 4 MiB of requests
  /// A connection ends that is silent for this long between requests. 0: never.
  std::chrono::seconds idle{0};
  /// One that is silent within a request, or does not read its replies.
  std::chrono::seconds stall{20};
  std::chrono::milliseconds timeout{5000};  // of a request, at the store
  /// Replies that are not sent yet, of all connections. Above it nothing is executed, and a
  /// connection ends that reads nothing for a second, however long `stall` is. One round of
  /// requests may go beyond it by 128 MiB.
  std::uint64_t unread_bytes_max = 256 * 1024 * 1024;
};

/// Threads: one caller at a time; it has none of its own.
class RespPort {
 public:
  /// Listens; serves nobody yet. Errors: InvalidArgument (the address; it is not of loopback and
  /// allow_remote is not set), Busy (the port), SystemError.
  static Result<std::unique_ptr<RespPort>> open(const RespPortOptions& options, KvClient client);
  ~RespPort();
  RespPort(const RespPort&) = delete;
  RespPort& operator=(const RespPort&) = delete;

  /// With the port that was chosen.
  const std::string& address() const { return address_; }
  /// Serves until `stop` (a descriptor) can be read from; then executes and answers what has come
  /// whole, and ends. Errors: as StoreRequests::run; SystemError.
  Result<void> run(int stop);

 private:
  struct Connection;

  RespPort(const RespPortOptions& options, KvClient client);
  Result<void> listen();
  Result<void> watch(int descriptor, std::uint32_t events, bool again);
  void accept_all();
  void accept(int socket);
  void hear(Connection& connection);
  void parse(Connection& connection, std::string_view input);
  void send(Connection& connection);
  void watch(Connection& connection);
  void cut_off_largest(Nanoseconds now);
  void look_at_time();
  void close_ended();
  bool too_much_unread() const;
  Result<void> execute();
  void finish();

  const RespPortOptions options_;
  StoreRequests store_;
  std::string address_;
  int listener_ = -1;
  int events_ = -1;
  std::map<int, std::unique_ptr<Connection>> connections_;  // by socket
  std::string buffer_;
};

}  // namespace perdure::kv_app
