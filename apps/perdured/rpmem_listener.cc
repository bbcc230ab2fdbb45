// perdured in ssh's place for librpmem: see rpmem_listener.h.
#include "rpmem_listener.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "control/host_port.h"
#include "core/errno_error.h"
#include "core/json.h"
#include "core/log_message.h"
#include "core/try.h"
#include "fabric/resolve.h"
#include "rpmem/asked_command.h"

namespace perdure::daemon {
namespace {

namespace fs = std::filesystem;

constexpr int kSignalled = 128;  // of a status: from here on a signal has ended it
constexpr std::size_t kWaitingMax = 64;
constexpr int kAcceptBurst = 16;  // then those that came are heard
constexpr Nanoseconds kAskWithin = std::chrono::seconds(5);
constexpr Nanoseconds kAcceptAgain = std::chrono::milliseconds(100);
constexpr Nanoseconds kLogEvery = std::chrono::seconds(1);
constexpr Nanoseconds kSoon = std::chrono::seconds(1);  // a process ends behind its last word
constexpr int kLookOftenMs = 10;
constexpr int kLookSeldomMs = 500;
constexpr Nanoseconds kEndWithin = std::chrono::seconds(5);
constexpr Nanoseconds kKilledWithin = std::chrono::seconds(2);

bool can_be_run(const std::string& path) {
  std::error_code none;
  return fs::is_regular_file(path, none) && ::access(path.c_str(), X_OK) == 0;
}

/// Its path. Errors: NotFound.
Result<std::string> find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (can_be_run(name)) return fs::absolute(name).string();
    return Error{ErrorCode::NotFound,
                 fmt::format("[rpmem] rpmemd = \"{}\": there is no such program; correct the path, "
                             "or leave poolset_dir out",
                             name)};
  }
  const char* const path = std::getenv("PATH");  // NOLINT(concurrency-mt-unsafe): nobody sets it
  std::istringstream directories(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string each; std::getline(directories, each, ':');) {
    const std::string whole = fmt::format("{}/{}", each, name);
    if (!each.empty() && can_be_run(whole)) return whole;
  }
  return Error{ErrorCode::NotFound,
               fmt::format("[rpmem] rpmemd = \"{}\": there is no such program in PATH; install it, "
                           "name its path (--rpmemd), or leave poolset_dir out",
                           name)};
}

}  // namespace

Result<std::unique_ptr<RpmemListener>> RpmemListener::open(const server::RpmemConfig& config) {
  std::unique_ptr<RpmemListener> listener(new RpmemListener(config));
  PERDURE_TRY_VOID(listener->prepare());
  PERDURE_TRY_VOID(listener->listen());
  listener->thread_ = std::thread([own = listener.get()] { own->run(); });
  return listener;
}

RpmemListener::~RpmemListener() {
  begin_closing();
  if (thread_.joinable()) thread_.join();
}

void RpmemListener::begin_closing() {
  stopping_.store(true);
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.number(), &one, sizeof one);
}

Result<void> RpmemListener::prepare() {
  std::error_code none;
  if (!fs::is_directory(config_.poolset_dir, none)) {
    return Error{
        ErrorCode::NotFound,
        fmt::format("[rpmem] poolset_dir = \"{}\": there is no such directory; make it, or "
                    "name another one (--rpmem-poolset-dir)",
                    config_.poolset_dir)};
  }
  PERDURE_TRY(program, find_program(config_.rpmemd));
  command_ = {program, "--poolset-dir", config_.poolset_dir};
  if (!config_.config.empty()) command_.insert(command_.end(), {"--config", config_.config});
  if (!config_.credential_file.empty()) {
    auto credential = rpmem::load_credential(config_.credential_file);
    if (!credential.ok()) {
      return Error{credential.code(),
                   fmt::format("[rpmem] credential_file: {}", credential.error().message)};
    }
    credential_ = std::move(credential).value();
  }
  const MutexLock lock(mutex_);
  counters_.clients_max = config_.clients_max;
  return {};
}

Result<void> RpmemListener::listen() {
  PERDURE_TRY(at, control::parse_host_port(config_.listen));
  PERDURE_TRY(found, fabric::resolve(at.host, at.port, Deadline::after(fabric::kListenNameWithin)));
  const fabric::SocketAddress& wanted = found.front();
  wake_ = Descriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  listening_ =
      Descriptor(::socket(wanted.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  (void)::setsockopt(listening_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  fabric::SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (wake_.number() < 0 ||
      ::bind(listening_.number(), reinterpret_cast<const sockaddr*>(&wanted.storage),
             wanted.length) != 0 ||
      ::listen(listening_.number(), SOMAXCONN) != 0 ||
      ::getsockname(listening_.number(), reinterpret_cast<sockaddr*>(&bound.storage),
                    &bound.length) != 0) {
    const int why = errno;
    return Error{why == EADDRINUSE ? ErrorCode::Busy : ErrorCode::SystemError,
                 fmt::format("[rpmem] can not listen on '{}': {}; stop what listens there, or "
                             "choose another address (--rpmem-listen)",
                             config_.listen, std::generic_category().message(why))};
  }
  address_ = control::to_string({at.host, fabric::port_of(bound)});
  return {};
}

void RpmemListener::run() {
  while (!stopping_.load()) {
    wait();
    accept_all();
    hear_all();
    end_silent();
    watch();
  }
  listening_ = Descriptor();
  waiting_.clear();
  end_all();
}

void RpmemListener::wait() {
  std::vector<pollfd> watched{{wake_.number(), POLLIN, 0}};
  if (!no_accept_until_) watched.push_back({listening_.number(), POLLIN, 0});
  for (const AskingClient& each : waiting_)
    watched.push_back({each.connection().number(), POLLIN, 0});
  for (const Served& each : served_) watched.push_back({each.child.report(), POLLIN, 0});
  if (::poll(watched.data(), watched.size(), wait_ms()) <= 0) return;
  std::uint64_t count = 0;
  [[maybe_unused]] const auto got = ::read(wake_.number(), &count, sizeof count);
}

/// Until there is something to look at that poll(2) does not tell; below zero: there is nothing.
int RpmemListener::wait_ms() const {
  int wait_ms = -1;
  const auto at_most = [&wait_ms](int ms) { wait_ms = wait_ms < 0 ? ms : std::min(wait_ms, ms); };
  const auto until = [&at_most](const Deadline& deadline) {
    at_most(
        static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count()));
  };
  if (no_accept_until_) until(*no_accept_until_);
  if (!waiting_.empty()) until(waiting_.front().until());
  for (const Served& each : served_) {
    if (each.soon) at_most(each.soon->passed() ? kLookSeldomMs : kLookOftenMs);
  }
  return wait_ms;
}

void RpmemListener::accept_all() {
  if (no_accept_until_ && !no_accept_until_->passed()) return;
  no_accept_until_.reset();
  for (int i = 0; i < kAcceptBurst; ++i) {
    fabric::SocketAddress from;
    from.length = sizeof from.storage;
    const int connection =
        ::accept4(listening_.number(), reinterpret_cast<sockaddr*>(&from.storage), &from.length,
                  SOCK_CLOEXEC);
    if (connection >= 0) {
      said_lacking_ = false;
      admit(connection, from);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      return put_off(errno);
    }
  }
}

/// What keeps it from accepting may pass. Whoever has been silent the longest gives its descriptor
/// up for the next one.
void RpmemListener::put_off(int why) {
  no_accept_until_ = Deadline::after(kAcceptAgain);
  if (!waiting_.empty()) {
    waiting_.pop_front();
    count(&server::RpmemCounters::silent);
  }
  if (std::exchange(said_lacking_, true)) return;
  log_message(
      Severity::Warning,
      fmt::format("rpmem: clients wait ({}): end other programs, or raise the limit of open "
                  "files; it is tried again",
                  errno_error("accept", why).message));
}

void RpmemListener::admit(int connection, const fabric::SocketAddress& from) {
  if (waiting_.size() >= kWaitingMax) {
    waiting_.pop_front();
    count(&server::RpmemCounters::silent);
  }
  waiting_.emplace_back(Descriptor(connection), fabric::to_string(from),
                        Deadline::after(kAskWithin));
}

void RpmemListener::hear_all() {
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    const AskingClient::Heard heard = each->hear();
    const auto client = each++;
    if (heard == AskingClient::Heard::More) continue;
    AskingClient taken = std::move(*client);
    waiting_.erase(client);
    if (heard == AskingClient::Heard::Command) {
      serve(std::move(taken));
    } else {
      count(&server::RpmemCounters::silent);
    }
  }
}

void RpmemListener::end_silent() {
  while (!waiting_.empty() && waiting_.front().until().passed()) {
    waiting_.pop_front();
    count(&server::RpmemCounters::silent);
  }
}

void RpmemListener::serve(AskingClient client) {
  auto child = start_for(client);
  if (!child.ok()) return refuse(client, child.error());
  count(&server::RpmemCounters::started);
  log_message(
      Severity::Info,
      fmt::format("rpmem: rpmemd {} serves client {}{}", child->pid(), client.address(),
                  child->removes() ? ", which asks for " + rpmem::visible(client.command()) : ""));
  served_.push_back(
      {std::move(child).value(), client.address(), Clock::monotonic().now(), std::nullopt});
  show();
}

Result<std::vector<std::string>> RpmemListener::asked_by(const AskingClient& client) {
  const bool shown = client.credential().has_value();
  if (!credential_.empty() &&
      !(shown && rpmem::same_credential(*client.credential(), credential_))) {
    count(&server::RpmemCounters::unauthorized);
    return Error{ErrorCode::PermissionDenied,
                 fmt::format("perdured asks for a credential there, and {}; name the file that has "
                             "it in PERDURE_RPMEM_CREDENTIAL_FILE",
                             shown ? "the one that was shown is another" : "none was shown")};
  }
  auto asked = rpmem::arguments_in(client.command());
  if (!asked.ok()) count(&server::RpmemCounters::wrong);
  return asked;
}

Result<RpmemChild> RpmemListener::start_for(AskingClient& client) {
  PERDURE_TRY(asked, asked_by(client));
  if (served_.size() >= config_.clients_max) {
    count(&server::RpmemCounters::full);
    return Error{ErrorCode::QueueFull,
                 fmt::format("perdured serves {} clients of librpmem there, and takes no more; "
                             "close pools, or raise clients_max of its [rpmem]",
                             served_.size())};
  }
  auto child = RpmemChild::start(command_, asked, client.connection());
  if (child.ok()) return child;
  count(&server::RpmemCounters::not_started);
  return Error{child.code(),
               fmt::format("perdured can not start an rpmemd there: {}; see that it is installed, "
                           "and that memory, processes and open files suffice",
                           child.error().message)};
}

void RpmemListener::refuse(const AskingClient& client, const Error& why) {
  const std::string words = rpmem::refusal(client.command(), why);
  (void)::send(client.connection().number(), words.data(), words.size(),
               MSG_NOSIGNAL | MSG_DONTWAIT);
  if (quiet_until_ && !quiet_until_->passed()) return;
  quiet_until_ = Deadline::after(kLogEvery);
  log_message(Severity::Warning, fmt::format("rpmem: client {} is refused: {}", client.address(),
                                             rpmem::visible(why.message)));
}

void RpmemListener::watch() {
  bool changed = false;
  for (auto each = served_.begin(); each != served_.end();) {
    if (each->child.hear()) {
      changed = true;
      log_message(Severity::Info, fmt::format("rpmem: client {} has the set '{}', by rpmemd {}",
                                              each->address, each->child.set(), each->child.pid()));
    }
    if (each->child.report() < 0 && !each->soon) each->soon = Deadline::after(kSoon);
    const pid_t process = each->child.pid();
    const auto status = each->soon ? each->child.reap() : std::nullopt;
    if (!status) {
      ++each;
      continue;
    }
    changed = true;
    say_ended(*each, process, *status);
    each = served_.erase(each);
  }
  if (changed) show();
}

void RpmemListener::say_ended(const Served& served, pid_t process, int status) {
  // Whoever removes a set hears from the status why it could not be.
  const bool failed = status != 0 && !served.child.removes();
  if (failed) count(&server::RpmemCounters::failed);
  const std::string set = served.child.set();
  const auto seconds =
      std::chrono::floor<std::chrono::seconds>(Clock::monotonic().now() - served.since);
  log_message(
      failed ? Severity::Warning : Severity::Info,
      fmt::format("rpmem: client {} has gone{}, and rpmemd {} ended with status {} after {} s{}",
                  served.address, set.empty() ? "" : " from the set '" + set + "'", process, status,
                  seconds.count(), failed && status < kSignalled ? "; its log says why" : ""));
}

void RpmemListener::end_all() {
  for (Served& each : served_) each.child.hang_up();
  Deadline patience = Deadline::after(kEndWithin);
  bool killed = false;
  while (!served_.empty()) {
    for (Served& each : served_) each.soon = each.soon ? each.soon : patience;
    watch();
    if (served_.empty() || !patience.passed()) {
      (void)::poll(nullptr, 0, kLookOftenMs);
      continue;
    }
    log_message(Severity::Warning,
                fmt::format("rpmem: {} rpmemd do not end; {}", served_.size(),
                            killed ? "they keep their sets until they do" : "they are killed"));
    if (std::exchange(killed, true)) return;
    for (Served& each : served_) each.child.kill();
    patience = Deadline::after(kKilledWithin);
  }
}

void RpmemListener::count(std::uint64_t server::RpmemCounters::*which) {
  const MutexLock lock(mutex_);
  ++(counters_.*which);
}

void RpmemListener::show() {
  std::vector<Shown> shown;
  for (const Served& each : served_) {
    shown.push_back({each.child.pid(), each.address, each.child.set(), each.since});
  }
  const MutexLock lock(mutex_);
  shown_ = std::move(shown);
  counters_.clients = shown_.size();
}

server::RpmemCounters RpmemListener::counters() const {
  const MutexLock lock(mutex_);
  return counters_;
}

std::string RpmemListener::document() const {
  nlohmann::json clients = nlohmann::json::array();
  const Nanoseconds now = Clock::monotonic().now();
  {
    const MutexLock lock(mutex_);
    for (const Shown& each : shown_) {
      const auto seconds = std::chrono::floor<std::chrono::seconds>(now - each.since);
      clients.push_back({{"process", each.process},
                         {"client", each.address},
                         {"set", each.set},
                         {"seconds", seconds.count()}});
    }
  }
  return json_text(nlohmann::json{{"format", 1},
                                  {"address", address_},
                                  {"clients_max", config_.clients_max},
                                  {"clients", std::move(clients)}}) +
         "\n";
}

}  // namespace perdure::daemon
