// A PeerService over HTTP and JSON: see http_server.h.
#include "server/http_server.h"

#include <fmt/format.h>
#include <httplib.h>

#include <atomic>
#include <charconv>
#include <system_error>
#include <thread>

#include "control/host_port.h"
#include "control/http_status.h"
#include "control/json_codec.h"
#include "control/json_fields.h"
#include "core/log_message.h"
#include "core/try.h"
#include "server/live_page.h"
#include "server/metrics.h"

namespace perdure::server {
namespace {

using httplib::Request;
using httplib::Response;

constexpr const char* kJson = "application/json";
constexpr auto kSocketTimeout = std::chrono::seconds{5};

Caller caller_of(const Request& request) {
  constexpr std::string_view scheme = "Bearer ";
  const std::string header = request.get_header_value("Authorization");
  const bool bearer = header.compare(0, scheme.size(), scheme) == 0;
  return {request.remote_addr, bearer ? header.substr(scheme.size()) : ""};
}

Result<std::uint64_t> session_id(const std::string& digits) {
  std::uint64_t id = 0;
  const char* const end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, id, 16);
  if (error == std::errc{} && stopped == end) return id;
  return Error{ErrorCode::InvalidArgument, "a session's id is 1 to 16 hexadecimal digits"};
}

/// Browsers add an Origin to what one page asks another server: no page may command this daemon.
Result<void> refuse_browsers(const Request& request) {
  if (!request.has_header("Origin")) return {};
  return Error{ErrorCode::PermissionDenied,
               "requests that change something are not taken from "
               "web pages (they carry an Origin header)"};
}

/// The body of a request, however it is sent: by length or in chunks.
Result<std::string> read_body(const Request& request, const httplib::ContentReader& reader) {
  const Error too_large{
      ErrorCode::InvalidArgument,
      fmt::format("the body is larger than the limit of {} bytes", control::kJsonBytesMax)};
  if (request.has_header("Content-Encoding")) {
    return Error{ErrorCode::InvalidArgument, "compressed bodies are not accepted"};
  }
  if (request.is_multipart_form_data()) {
    return Error{ErrorCode::InvalidArgument, "a body is one JSON object, not a form"};
  }
  const auto announced = request.get_header_value<std::uint64_t>("Content-Length");
  if (announced > control::kJsonBytesMax) return too_large;
  std::string body;
  const bool whole = reader([&](const char* data, std::size_t length) {
    if (body.size() + length > control::kJsonBytesMax) return false;
    body.append(data, length);
    return true;
  });
  if (whole) return body;
  if (request.get_header_value("Transfer-Encoding") == "chunked") return too_large;
  return Error{ErrorCode::InvalidArgument, "the body ended early"};
}

class Server final : public HttpServer {
 public:
  Server(PeerService& service, std::function<void()> power_cut)
      : service_(service), power_cut_(std::move(power_cut)) {}
  ~Server() override {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  Result<void> listen(const HttpServerOptions& options);
  const std::string& address() const override { return address_; }
  void go_dark() override { dark_.store(true); }

 private:
  using Answer = Result<std::string>;
  using Get = std::function<Answer(const Request&, const Caller&)>;
  using Post = std::function<Answer(const Request&, const std::string& body, const Caller&)>;

  void add_routes();
  void add_pool_routes();
  void add_session_routes();
  void get(const char* route, Get handler, const char* type = kJson);
  void post(const char* route, int status, Post handler);
  void respond(Response& response, const Answer& answer, int status, const char* type);

  PeerService& service_;
  const std::function<void()> power_cut_;
  httplib::Server server_;
  std::string address_;
  std::atomic<bool> dark_{false};
  std::thread thread_;
};

Result<void> Server::listen(const HttpServerOptions& options) {
  PERDURE_TRY(at, control::parse_host_port(options.listen));
  if (!options.allow_remote && !control::is_loopback(at.host)) {
    return Error{ErrorCode::PermissionDenied,
                 fmt::format("'{}' can be reached from other machines, and nobody is "
                             "authenticated; listen on 127.0.0.1, or set allow_remote = true if "
                             "the network itself is trusted",
                             options.listen)};
  }
  // One request per connection: nothing that is left of a refused body is read as a request.
  server_.set_keep_alive_max_count(1);
  server_.set_payload_max_length(control::kJsonBytesMax);
  server_.set_read_timeout(kSocketTimeout);
  server_.set_write_timeout(kSocketTimeout);
  server_.set_tcp_nodelay(true);
  server_.new_task_queue = [threads = options.threads] { return new httplib::ThreadPool(threads); };
  // The library's default would let a second daemon share the port.
  server_.set_socket_options([](socket_t socket) {
    const int yes = 1;
    (void)::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  add_routes();
  errno = 0;
  const int port = at.port == 0 ? server_.bind_to_any_port(at.host)
                                : (server_.bind_to_port(at.host, at.port) ? at.port : -1);
  if (port <= 0) {
    const int reason = errno;
    return Error{reason == EADDRINUSE ? ErrorCode::Busy : ErrorCode::SystemError,
                 fmt::format("can not listen on '{}': {}; stop what listens there, or choose "
                             "another address",
                             options.listen, std::generic_category().message(reason))};
  }
  address_ = to_string(control::HostPort{at.host, static_cast<std::uint16_t>(port)});
  thread_ = std::thread([this] { server_.listen_after_bind(); });
  return {};
}

void Server::add_routes() {
  server_.set_pre_routing_handler([this](const Request&, Response& response) {
    using Routing = httplib::Server::HandlerResponse;
    if (!dark_.load()) return Routing::Unhandled;
    response.status = 503;
    response.set_content(control::encode(Error{ErrorCode::Disconnected, "no power"}) + "\n", kJson);
    return Routing::Handled;
  });
  server_.Get("/healthz", [](const Request&, Response& response) {
    response.set_content("ok\n", "text/plain; charset=utf-8");
  });
  server_.Get("/", [](const Request&, Response& response) {
    response.set_content(std::string(live_page()), "text/html; charset=utf-8");
  });
  get(
      "/metrics",
      [this](const Request&, const Caller& caller) -> Answer {
        PERDURE_TRY(report, service_.report(caller));
        return metrics_text(report);
      },
      "text/plain; version=0.0.4; charset=utf-8");
  get("/v1/profile", [this](const Request&, const Caller&) -> Answer {
    return control::encode(service_.description());
  });
  add_pool_routes();
  add_session_routes();
  if (power_cut_) {
    post("/v1/power-cut", 202,
         [this](const Request&, const std::string& body, const Caller& caller) -> Answer {
           PERDURE_TRY_VOID(control::decode_empty(body));
           PERDURE_TRY_VOID(service_.list(caller));  // whoever may not even look may not do this
           power_cut_();
           return control::encode_accepted();
         });
  }
  server_.set_error_handler([this](const Request& request, Response& response) {
    if (!response.body.empty()) return;
    service_.count_refused_request();
    const bool unknown = response.status == 404;
    const Error error = unknown ? Error{ErrorCode::NotFound,
                                        fmt::format("there is nothing at {} {}", request.method,
                                                    request.path.substr(0, 256))}
                                : Error{ErrorCode::InvalidArgument, "the request makes no sense"};
    response.set_content(control::encode(error) + "\n", kJson);
  });
  server_.set_exception_handler([](const Request&, Response& response, std::exception_ptr) {
    response.status = 500;
    response.set_content(control::encode(Error{ErrorCode::SystemError, "out of memory"}) + "\n",
                         kJson);
  });
}

void Server::add_pool_routes() {
  get("/v1/pools", [this](const Request&, const Caller& caller) -> Answer {
    PERDURE_TRY(pools, service_.list(caller));
    return control::encode(pools);
  });
  get("/v1/pools/([^/]+)", [this](const Request& request, const Caller& caller) -> Answer {
    PERDURE_TRY(pool, service_.describe(request.matches[1], caller));
    return control::encode(pool);
  });
  post("/v1/pools", 201,
       [this](const Request&, const std::string& body, const Caller& caller) -> Answer {
         PERDURE_TRY(request, control::decode_pool_request(body));
         PERDURE_TRY(pool, service_.create(request, caller));
         return control::encode(pool);
       });
  post("/v1/pools/([^/]+)/open", 200,
       [this](const Request& request, const std::string& body, const Caller& caller) -> Answer {
         PERDURE_TRY_VOID(control::decode_empty(body));
         PERDURE_TRY(pool, service_.open_pool(request.matches[1], caller));
         return control::encode(pool);
       });
  post("/v1/pools/([^/]+)/close", 200,
       [this](const Request& request, const std::string& body, const Caller& caller) -> Answer {
         PERDURE_TRY_VOID(control::decode_empty(body));
         PERDURE_TRY_VOID(service_.close_pool(request.matches[1], caller));
         return control::encode_accepted();
       });
  post("/v1/pools/([^/]+)/fence", 200,
       [this](const Request& request, const std::string& body, const Caller& caller) -> Answer {
         PERDURE_TRY(epoch, control::decode_fence(body));
         PERDURE_TRY_VOID(service_.fence(request.matches[1], epoch, caller));
         return control::encode_accepted();
       });
}

void Server::add_session_routes() {
  post("/v1/pools/([^/]+)/sessions", 201,
       [this](const Request& request, const std::string& body, const Caller& caller) -> Answer {
         PERDURE_TRY(ask, control::decode_session_ask(body, request.matches[1]));
         PERDURE_TRY(grant, service_.open_session(ask.request, ask.transport, caller));
         return control::encode(grant);
       });
  get("/v1/sessions", [this](const Request&, const Caller& caller) -> Answer {
    PERDURE_TRY(report, service_.report(caller));
    return control::encode(report.sessions);
  });
  get("/v1/sessions/([^/]+)", [this](const Request& request, const Caller& caller) -> Answer {
    PERDURE_TRY(id, session_id(request.matches[1]));
    PERDURE_TRY(session, service_.describe_session(id, caller));
    return control::encode(session);
  });
  server_.Delete("/v1/sessions/([^/]+)", [this](const Request& request, Response& response) {
    const auto answer = [&]() -> Answer {
      PERDURE_TRY_VOID(refuse_browsers(request));
      PERDURE_TRY(id, session_id(request.matches[1]));
      PERDURE_TRY_VOID(service_.close_session(id, caller_of(request)));
      return control::encode_accepted();
    }();
    respond(response, answer, 200, kJson);
  });
}

void Server::get(const char* route, Get handler, const char* type) {
  server_.Get(route, [this, handler = std::move(handler), type](const Request& request,
                                                                Response& response) {
    respond(response, handler(request, caller_of(request)), 200, type);
  });
}

void Server::post(const char* route, int status, Post handler) {
  server_.Post(
      route, [this, handler = std::move(handler), status](
                 const Request& request, Response& response, const httplib::ContentReader& reader) {
        const auto answer = [&]() -> Answer {
          PERDURE_TRY_VOID(refuse_browsers(request));
          PERDURE_TRY(body, read_body(request, reader));
          return handler(request, body, caller_of(request));
        }();
        respond(response, answer, status, kJson);
      });
}

void Server::respond(Response& response, const Answer& answer, int status, const char* type) {
  if (answer.ok()) {
    response.status = status;
    response.set_content(type == kJson ? *answer + "\n" : *answer, type);
    return;
  }
  service_.count_refused_request();
  response.status = control::http_status(answer.code());
  response.set_content(control::encode(answer.error()) + "\n", kJson);
}

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::open(PeerService& service,
                                                     const HttpServerOptions& options) {
  auto server = std::make_unique<Server>(service, options.power_cut);
  PERDURE_TRY_VOID(server->listen(options));
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace perdure::server
