// HttpServer: a PeerService over HTTP and JSON. The routes are in docs/control-plane.md.
#pragma once

#include <perdure/result.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

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
  /// Of the program that serves, behind the service's own: for /metrics. Threads: any.
  std::function<std::string()> more_metrics;
  /// The same: documents of JSON, by their paths.
  std::map<std::string, std::function<std::string()>> more_documents;
};

/// Threads: any.
class HttpServer {
 public:
  /// Listens and answers until destroyed. `service` outlives it.
  /// Errors: InvalidArgument (the address), PermissionDenied (allow_remote), Busy (the port is in
  /// use), SystemError.
  static Result<std::unique_ptr<HttpServer>> open(PeerService& service,
                                                  const HttpServerOptions& options);

  /// Where it listens, with the port that was chosen.
  const std::string& address() const { return listener_->address(); }
  HttpCounters counters() const { return listener_->counters(); }
  /// From now on every request is refused (503): for a machine that has lost its power, and of
  /// which nothing may be heard any more.
  void go_dark() { dark_.store(true); }

 private:
  using Answer = Result<std::string>;
  /// `name` is the part of the path that stands for "*".
  using Handler = std::function<Answer(const ReceivedRequest&, const std::string& name)>;
  struct Route {
    std::string method;
    std::vector<std::string> parts;  // "*": any
    int status;
    const char* content_type;
    Lane lane;
    Handler handler;
  };

  HttpServer(PeerService& service, const HttpServerOptions& options);
  Result<void> listen(const HttpServerOptions& options);
  void add_routes();
  void add_pool_routes();
  void add_session_routes();
  void add(const char* method, const char* path, int status, Lane lane, Handler handler,
           const char* content_type = "application/json");
  const Route* find(const ReceivedRequest& request, std::string& name) const;
  Lane lane(const ReceivedRequest& request) const;
  HttpReply answer(const ReceivedRequest& request);
  HttpReply refusal(const Error& error, int status);

  PeerService& service_;
  const std::function<void()> power_cut_;
  const std::function<std::string()> more_metrics_;
  const std::map<std::string, std::function<std::string()>> more_documents_;
  std::vector<Route> routes_;
  std::atomic<bool> dark_{false};
  /// Requests are answered while open() has not returned yet.
  std::atomic<const HttpListener*> counted_{nullptr};
  std::unique_ptr<HttpListener> listener_;
};

}  // namespace perdure::server
