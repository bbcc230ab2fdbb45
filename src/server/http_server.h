// HttpServer: a PeerService over HTTP and JSON. The routes are in docs/control-plane.md.
#pragma once

#include <perdure/result.h>

#include <functional>
#include <memory>
#include <string>

#include "server/http_listener.h"
#include "server/service.h"

namespace perdure::server {

struct HttpServerOptions {
  std::string listen = "127.0.0.1:7470";  // port 0: any free one, see address()
  /// Without it an address that other machines can reach is refused: nobody is authenticated.
  bool allow_remote = false;
  std::size_t threads = 4;  // requests that are executed at a time; slow requesters hold none
  /// More of them, for nothing but fencing, ending sessions and opening a writer's.
  std::size_t reserved_threads = 2;
  HttpLimits limits;
  /// Called for POST /v1/power-cut; must return at once. Without it there is no such route.
  std::function<void()> power_cut;
};

/// Threads: any.
class HttpServer {
 public:
  /// Listens and answers until destroyed. `service` outlives it.
  /// Errors: InvalidArgument (the address), PermissionDenied (allow_remote), Busy (the port is in
  /// use), SystemError.
  static Result<std::unique_ptr<HttpServer>> open(PeerService& service,
                                                  const HttpServerOptions& options);
  virtual ~HttpServer() = default;

  /// Where it listens, with the port that was chosen.
  virtual const std::string& address() const = 0;
  virtual HttpCounters counters() const = 0;
  /// From now on every request is refused (503): for a machine that has lost its power, and of
  /// which nothing may be heard any more.
  virtual void go_dark() = 0;
};

}  // namespace perdure::server
