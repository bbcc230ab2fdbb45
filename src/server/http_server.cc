// A PeerService over HTTP and JSON: see http_server.h.
#include "server/http_server.h"

#include <fmt/format.h>

#include <charconv>
#include <new>
#include <system_error>
#include <utility>

#include "control/host_port.h"
#include "control/http_status.h"
#include "control/json_codec.h"
#include "control/json_fields.h"
#include "core/try.h"
#include "server/live_page.h"
#include "server/metrics.h"
#include "server/plane_addresses.h"
#include "server/process_metrics.h"

namespace perdure::server {
namespace {

constexpr const char* kJson = "application/json";
constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kText = "text/plain; charset=utf-8";
constexpr const char* kPrometheus = "text/plain; version=0.0.4; charset=utf-8";

Caller caller_of(const ReceivedRequest& request) {
  return {request.address, request.authorization};
}

Result<std::uint64_t> session_id(const std::string& digits) {
  std::uint64_t id = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, id, 16);
  if (error == std::errc{} && stopped == end) return id;
  return Error{ErrorCode::InvalidArgument, "a session's id is 1 to 16 hexadecimal digits"};
}

/// What is refused whatever the route. Browsers add an Origin to what one page asks another server:
/// no page may command this daemon.
Result<void> refuse(const ReceivedRequest& request) {
  if (request.method == "GET" && !request.too_large) return {};
  if (request.from_web_page) {
    return Error{ErrorCode::PermissionDenied,
                 "requests that change something are not taken from web pages (they carry an "
                 "Origin header)"};
  }
  if (request.too_large) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("the body is larger than the limit of {} bytes", control::kJsonBytesMax)};
  }
  if (request.compressed) {
    return Error{ErrorCode::InvalidArgument, "compressed bodies are not accepted"};
  }
  if (request.content_type.compare(0, 10, "multipart/") == 0) {
    return Error{ErrorCode::InvalidArgument, "a body is one JSON object, not a form"};
  }
  return {};
}

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at + 1), path.size());
    parts.push_back(path.substr(at + 1, end - at - 1));
    at = end;
  }
  return parts;
}

}  // namespace

HttpServer::HttpServer(PeerService& service, const HttpServerOptions& options)
    : service_(service),
      power_cut_(options.power_cut),
      more_metrics_(options.more_metrics),
      more_documents_(options.more_documents) {
  add_routes();
  add_pool_routes();
  add_session_routes();
}

Result<void> HttpServer::listen(const HttpServerOptions& options) {
  PERDURE_TRY(at, control::parse_host_port(options.listen));
  if (!options.allow_remote && !is_local(at)) {
    return Error{ErrorCode::PermissionDenied,
                 fmt::format("'{}' can be reached from other machines, and nobody is "
                             "authenticated; listen on 127.0.0.1, or set allow_remote = true if "
                             "the network itself is trusted",
                             options.listen)};
  }
  HttpListener::Options http;
  http.listen = options.listen;
  http.workers = options.threads;
  http.reserved_workers = options.reserved_threads;
  http.limits = options.limits;
  http.limits.body_bytes_max = control::kJsonBytesMax;
  http.lane = [this](const ReceivedRequest& request) { return lane(request); };
  http.answer = [this](const ReceivedRequest& request) { return answer(request); };
  PERDURE_TRY(listener, HttpListener::open(std::move(http)));
  listener_ = std::move(listener);
  counted_.store(listener_.get(), std::memory_order_release);
  return {};
}

void HttpServer::add(const char* method, const char* path, int status, Lane lane, Handler handler,
                     const char* content_type) {
  routes_.push_back({method, parts_of(path), status, content_type, lane, std::move(handler)});
}

void HttpServer::add_routes() {
  add(
      "GET", "/healthz", 200, Lane::Now,
      [](const auto&, const auto&) -> Answer { return std::string("ok\n"); }, kText);
  add(
      "GET", "/", 200, Lane::Now, [](const auto&, const auto&) -> Answer { return live_page(); },
      kHtml);
  add(
      "GET", "/metrics", 200, Lane::Common,
      [this](const auto& request, const auto&) -> Answer {
        PERDURE_TRY(report, service_.report(caller_of(request)));
        const HttpListener* const listener = counted_.load(std::memory_order_acquire);
        return metrics_text(report) +
               (listener != nullptr ? metrics_text(listener->counters()) : std::string()) +
               process_metrics_text() + (more_metrics_ ? more_metrics_() : std::string());
      },
      kPrometheus);
  add("GET", "/v1/profile", 200, Lane::Common, [this](const auto&, const auto&) -> Answer {
    return control::encode(service_.description()) + "\n";
  });
  for (const auto& [path, document] : more_documents_) {
    add("GET", path.c_str(), 200, Lane::Common,
        [this, &document = document](const auto& request, const auto&) -> Answer {
          PERDURE_TRY_VOID(service_.list(caller_of(request)));  // whoever may look
          return document();
        });
  }
  if (!power_cut_) return;
  add("POST", "/v1/power-cut", 202, Lane::Common,
      [this](const auto& request, const auto&) -> Answer {
        PERDURE_TRY_VOID(control::decode_empty(request.body));
        // Whoever may not even look may not do this.
        PERDURE_TRY_VOID(service_.list(caller_of(request)));
        power_cut_();
        return control::encode_accepted() + "\n";
      });
}

void HttpServer::add_pool_routes() {
  add("GET", "/v1/pools", 200, Lane::Common, [this](const auto& request, const auto&) -> Answer {
    PERDURE_TRY(pools, service_.list(caller_of(request)));
    return control::encode(pools) + "\n";
  });
  add("GET", "/v1/pools/*", 200, Lane::Common,
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY(pool, service_.describe(name, caller_of(request)));
        return control::encode(pool) + "\n";
      });
  add("POST", "/v1/pools", 201, Lane::Common, [this](const auto& request, const auto&) -> Answer {
    PERDURE_TRY(wanted, control::decode_pool_request(request.body));
    PERDURE_TRY(pool, service_.create(wanted, caller_of(request)));
    return control::encode(pool) + "\n";
  });
  add("POST", "/v1/pools/*/open", 200, Lane::Common,
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY_VOID(control::decode_empty(request.body));
        PERDURE_TRY(pool, service_.open_pool(name, caller_of(request)));
        return control::encode(pool) + "\n";
      });
  add("POST", "/v1/pools/*/close", 200, Lane::Common,
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY_VOID(control::decode_empty(request.body));
        PERDURE_TRY_VOID(service_.close_pool(name, caller_of(request)));
        return control::encode_accepted() + "\n";
      });
  add("POST", "/v1/pools/*/delete", 200, Lane::Common,
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY(asked, control::decode_deletion(request.body));
        const server::Caller caller = caller_of(request);
        PERDURE_TRY_VOID(asked.look ? service_.check_deletion(name, asked.uuid, caller)
                                    : service_.delete_pool(name, asked.uuid, caller));
        return control::encode_accepted() + "\n";
      });
  add("POST", "/v1/pools/*/fence", 200, Lane::Reserved,
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY(epoch, control::decode_fence(request.body));
        PERDURE_TRY_VOID(service_.fence(name, epoch, caller_of(request)));
        return control::encode_accepted() + "\n";
      });
}

void HttpServer::add_session_routes() {
  add("POST", "/v1/pools/*/sessions", 201, Lane::Common,  // a writer's: see lane()
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY(ask, control::decode_session_ask(request.body, name));
        PERDURE_TRY(grant, service_.open_session(ask.request, ask.transport, caller_of(request)));
        return control::encode(grant) + "\n";
      });
  add("GET", "/v1/sessions", 200, Lane::Common, [this](const auto& request, const auto&) -> Answer {
    PERDURE_TRY(report, service_.report(caller_of(request)));
    return control::encode(report.sessions) + "\n";
  });
  add("GET", "/v1/sessions/*", 200, Lane::Common,
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY(id, session_id(name));
        PERDURE_TRY(session, service_.describe_session(id, caller_of(request)));
        return control::encode(session) + "\n";
      });
  add("POST", "/v1/sessions/*/close", 200, Lane::Reserved,
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY_VOID(control::decode_empty(request.body));
        PERDURE_TRY(id, session_id(name));
        PERDURE_TRY_VOID(service_.close_session(id, control::Left::AllDurable, caller_of(request)));
        return control::encode_accepted() + "\n";
      });
  add("DELETE", "/v1/sessions/*", 200, Lane::Reserved,
      [this](const auto& request, const auto& name) -> Answer {
        PERDURE_TRY(id, session_id(name));
        PERDURE_TRY_VOID(service_.close_session(id, control::Left::NotKnown, caller_of(request)));
        return control::encode_accepted() + "\n";
      });
}

const HttpServer::Route* HttpServer::find(const ReceivedRequest& request, std::string& name) const {
  const auto parts = parts_of(request.path);
  const std::string method = request.method == "HEAD" ? "GET" : request.method;
  for (const Route& route : routes_) {
    if (route.method != method || route.parts.size() != parts.size()) continue;
    bool same = true;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      const bool any = route.parts[i] == "*";
      if (any && !parts[i].empty()) name = parts[i];
      same = same && (any ? !parts[i].empty() : route.parts[i] == parts[i]);
    }
    if (same) return &route;
  }
  return nullptr;
}

/// Who writes is decided on workers of its own: fencing, ending a session, and a writer's session.
Lane HttpServer::lane(const ReceivedRequest& request) const {
  std::string name;
  const Route* const route = find(request, name);
  if (route == nullptr) return Lane::Now;
  if (route->lane != Lane::Common || route->parts.back() != "sessions") return route->lane;
  if (route->method != "POST") return route->lane;
  const auto ask = control::decode_session_ask(request.body, name);
  return ask.ok() && ask->request.write ? Lane::Reserved : Lane::Common;
}

HttpReply HttpServer::answer(const ReceivedRequest& request) {
  if (dark_.load()) return refusal({ErrorCode::Disconnected, "no power"}, 503);
  try {
    std::string name;
    const Route* const route = find(request, name);
    if (route == nullptr) {
      return refusal({ErrorCode::NotFound, fmt::format("there is nothing at {} {}", request.method,
                                                       request.path.substr(0, 256))},
                     404);
    }
    const auto answered = [&]() -> Answer {
      PERDURE_TRY_VOID(refuse(request));
      return route->handler(request, name);
    }();
    if (answered.ok()) return {route->status, route->content_type, *answered};
    return refusal(answered.error(), control::http_status(answered.code()));
  } catch (const std::bad_alloc&) {
    return refusal({ErrorCode::SystemError, "out of memory"}, 500);
  }
}

HttpReply HttpServer::refusal(const Error& error, int status) {
  if (!dark_.load()) service_.count_refused_request();
  return {status, kJson, control::encode(error) + "\n"};
}

Result<std::unique_ptr<HttpServer>> HttpServer::open(PeerService& service,
                                                     const HttpServerOptions& options) {
  std::unique_ptr<HttpServer> server(new HttpServer(service, options));
  PERDURE_TRY_VOID(server->listen(options));
  return server;
}

}  // namespace perdure::server
