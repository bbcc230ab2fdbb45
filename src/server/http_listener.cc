// HTTP requests over libmicrohttpd: see http_listener.h.
//
// The library parses and sends; accepting, deadlines and who has to go are ours. Its own limits are
// not enough: its time-out begins anew with every byte, and at its limit of connections it lets
// those wait that come, not those that dawdle. So this thread accepts by itself and hands the
// socket over (MHD_add_connection), and ends a connection by shutting its socket down, which the
// library sees as the requester's end. All calls into the library come from this thread.
#include "server/http_listener.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <map>
#include <thread>
#include <vector>

#include "control/host_port.h"
#include "core/assert.h"
#include "core/log_message.h"
#include "core/mutex.h"
#include "core/try.h"
#include "fabric/resolve.h"
#include "server/http_workers.h"

namespace perdure::server {
namespace {

/// A body beyond the limit is read to its end up to here, so that the refusal can be heard.
constexpr std::uint64_t kDiscardBytesMax = 1024 * 1024;
constexpr Nanoseconds kTick = std::chrono::milliseconds{50};     // between looks at deadlines
constexpr Nanoseconds kAnswersWithin = std::chrono::seconds{2};  // for answers when it closes
/// Descriptors kept for the time when there are none, so that operators are heard then too.
constexpr std::size_t kSpareDescriptors = 16;
constexpr int kAcceptBurst = 64;
constexpr int kDisplacedAtOnce = 8;
/// A request that was there when its connection was accepted has been read after so many rounds.
constexpr unsigned kHeardRounds = 2;

class Socket {
 public:
  explicit Socket(int number = -1) : number_(number) {}
  ~Socket() { close(); }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int number() const { return number_; }
  void take(int number) {
    close();
    number_ = number;
  }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

enum class Phase {
  Reading,  // its request is not in yet
  Working,  // a worker has it
  Sending,
};

struct Connection : HttpJob {
  Connection(int socket, std::string from, Nanoseconds within)
      : descriptor(socket), address(std::move(from)), until(Deadline::after(within)) {}
  const int descriptor;
  const std::string address;
  MHD_Connection* handle = nullptr;
  Phase phase = Phase::Reading;
  Deadline until;
  unsigned rounds = 0;  // how often the library has looked at what it sent
  bool over = false;    // it was shut down; the library will say when it is closed
  bool dispatched = false;
  std::uint64_t body_bytes = 0;  // those that were discarded too
};

std::string plain(int status, std::string_view words, std::string_view code,
                  std::string_view message) {
  const std::string body = fmt::format(
      "{{\"format\": 1, \"error\": {{\"code\": \"{}\", \"message\": \"{}\"}}}}\n", code, message);
  return fmt::format(
      "HTTP/1.1 {} {}\r\nConnection: close\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      status, words, body.size(), body);
}

/// Says it if the socket has room, and ends the connection.
void say_and_end(int socket, const std::string& text) {
  (void)::send(socket, text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  ::shutdown(socket, SHUT_RDWR);
}

class Listener final : public HttpListener {
 public:
  explicit Listener(Options options);
  ~Listener() override;

  Result<void> listen();
  const std::string& address() const override { return address_; }
  HttpCounters counters() const override;

 private:
  friend struct Callbacks;

  Result<void> bind_to(const fabric::SocketAddress& address);
  Result<void> start_library();
  bool watch(int descriptor);

  void run();
  void wait(Nanoseconds for_at_most);
  void accept_all();
  int accept_one(fabric::SocketAddress& from);
  void keep_spares();
  void admit(int socket, const fabric::SocketAddress& from);
  bool somebody_waits() const;
  bool make_room(const std::string& address);
  bool displace_oldest();
  void displace(Connection& connection);
  void end(Connection& connection, const std::string& words);
  void give_answers();
  bool anything_at_work() const;
  void end_the_slow();

  MHD_Result begin(Connection& connection, MHD_Connection* handle, const char* url,
                   const char* method);
  MHD_Result take_body(Connection& connection, const char* data, std::size_t* length);
  MHD_Result dispatch(Connection& connection);
  MHD_Result send(Connection& connection);

  const Options options_;
  std::string address_;
  Socket listening_, epoll_, wake_;
  MHD_Daemon* library_ = nullptr;
  std::map<int, std::unique_ptr<Connection>> connections_;  // by descriptor
  std::vector<std::unique_ptr<Socket>> spares_;
  std::optional<Deadline> no_accept_until_;
  std::atomic<bool> stopping_{false};
  mutable Mutex counters_mutex_;
  HttpCounters counters_ PERDURE_GUARDED_BY(counters_mutex_);
  std::unique_ptr<HttpWorkers> workers_;
  std::thread thread_;
};

std::string header(MHD_Connection* handle, const char* name) {
  const char* const value = ::MHD_lookup_connection_value(handle, MHD_HEADER_KIND, name);
  return value == nullptr ? "" : value;
}

/// Escapes that are none stay as they are.
std::string unescaped(std::string_view text) {
  std::string plain_text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    if (text[i] == '%' && i + 2 < text.size()) {
      const char* const digits = text.data() + i + 1;
      const auto [stopped, error] = std::from_chars(digits, digits + 2, byte, 16);
      if (error == std::errc{} && stopped == digits + 2) {
        plain_text += static_cast<char>(byte);
        i += 2;
        continue;
      }
    }
    plain_text += text[i];
  }
  return plain_text;
}

/// What the library calls; the closure is the Listener.
struct Callbacks {
  static MHD_Result request(void* closure, MHD_Connection* handle, const char* url,
                            const char* method, const char*, const char* data, std::size_t* length,
                            void** context) {
    auto& listener = *static_cast<Listener*>(closure);
    Connection* const connection = connection_of(listener, handle);
    if (connection == nullptr || connection->over) return MHD_NO;
    if (*context == nullptr) {
      *context = connection;
      return listener.begin(*connection, handle, url, method);
    }
    if (*length != 0) return listener.take_body(*connection, data, length);
    return connection->dispatched ? listener.send(*connection) : listener.dispatch(*connection);
  }
  static void closed(void* closure, MHD_Connection* handle, void**,
                     MHD_ConnectionNotificationCode code) {
    if (code != MHD_CONNECTION_NOTIFY_CLOSED) return;
    auto& listener = *static_cast<Listener*>(closure);
    listener.connections_.erase(descriptor_of(handle));
  }
  /// The router decodes paths: a decoded zero would end the library's text.
  static std::size_t keep_escapes(void*, MHD_Connection*, char* text) {
    return std::char_traits<char>::length(text);
  }
  static int descriptor_of(MHD_Connection* handle) {
    const MHD_ConnectionInfo* const info =
        ::MHD_get_connection_info(handle, MHD_CONNECTION_INFO_CONNECTION_FD);
    return info == nullptr ? -1 : info->connect_fd;
  }
  static Connection* connection_of(Listener& listener, MHD_Connection* handle) {
    const auto found = listener.connections_.find(descriptor_of(handle));
    return found == listener.connections_.end() ? nullptr : found->second.get();
  }
};

Listener::Listener(Options options) : options_(std::move(options)) {
  const auto wake = [this] {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_.number(), &one, sizeof one);
  };
  workers_ = std::make_unique<HttpWorkers>(options_.answer, options_.limits.queued_max, wake);
}

Listener::~Listener() {
  stopping_.store(true);
  workers_->stop();
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(wake_.number(), &one, sizeof one);
  if (thread_.joinable()) thread_.join();
  if (library_ != nullptr) ::MHD_stop_daemon(library_);
}

Result<void> Listener::listen() {
  PERDURE_TRY(at, control::parse_host_port(options_.listen));
  PERDURE_TRY(found, fabric::resolve(at.host, at.port, Deadline::after(fabric::kListenNameWithin)));
  PERDURE_TRY_VOID(bind_to(found.front()));
  epoll_.take(::epoll_create1(EPOLL_CLOEXEC));
  wake_.take(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  PERDURE_TRY_VOID(start_library());
  const MHD_DaemonInfo* const info = ::MHD_get_daemon_info(library_, MHD_DAEMON_INFO_EPOLL_FD);
  if (info == nullptr || !watch(listening_.number()) || !watch(wake_.number()) ||
      !watch(info->epoll_fd)) {
    return Error{ErrorCode::SystemError, "the control plane has no descriptors to wait on"};
  }
  keep_spares();
  workers_->start(options_.workers, options_.reserved_workers);
  thread_ = std::thread([this] { run(); });
  return {};
}

Result<void> Listener::bind_to(const fabric::SocketAddress& address) {
  listening_.take(
      ::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const int yes = 1;
  (void)::setsockopt(listening_.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  fabric::SocketAddress bound;
  bound.length = sizeof bound.storage;
  if (::bind(listening_.number(), reinterpret_cast<const sockaddr*>(&address.storage),
             address.length) != 0 ||
      ::listen(listening_.number(), SOMAXCONN) != 0 ||
      ::getsockname(listening_.number(), reinterpret_cast<sockaddr*>(&bound.storage),
                    &bound.length) != 0) {
    const int reason = errno;
    return Error{reason == EADDRINUSE ? ErrorCode::Busy : ErrorCode::SystemError,
                 fmt::format("can not listen on '{}': {}; stop what listens there, or choose "
                             "another address",
                             options_.listen, std::generic_category().message(reason))};
  }
  PERDURE_TRY(at, control::parse_host_port(options_.listen));
  address_ = to_string(control::HostPort{at.host, fabric::port_of(bound)});
  return {};
}

Result<void> Listener::start_library() {
  const std::array<MHD_OptionItem, 6> how{{
      {MHD_OPTION_CONNECTION_MEMORY_LIMIT,
       static_cast<std::intptr_t>(options_.limits.header_bytes_max), nullptr},
      {MHD_OPTION_CONNECTION_LIMIT, 65536, nullptr},  // we count them
      {MHD_OPTION_NOTIFY_CONNECTION, reinterpret_cast<std::intptr_t>(&Callbacks::closed), this},
      {MHD_OPTION_UNESCAPE_CALLBACK, reinterpret_cast<std::intptr_t>(&Callbacks::keep_escapes),
       this},
      {MHD_OPTION_STRICT_FOR_CLIENT, 1, nullptr},
      {MHD_OPTION_END, 0, nullptr},
  }};
  library_ = ::MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | MHD_ALLOW_SUSPEND_RESUME,
                                0, nullptr, nullptr, &Callbacks::request, this, MHD_OPTION_ARRAY,
                                how.data(), MHD_OPTION_END);
  if (library_ != nullptr) return {};
  return Error{ErrorCode::SystemError, "libmicrohttpd does not start"};
}

bool Listener::watch(int descriptor) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = descriptor;
  return ::epoll_ctl(epoll_.number(), EPOLL_CTL_ADD, descriptor, &event) == 0;
}

void Listener::run() {
  std::optional<Deadline> end_by;
  for (;;) {
    if (stopping_.load() && !end_by) {
      end_by = Deadline::after(kAnswersWithin);
      listening_.close();
      for (auto& [descriptor, each] : connections_) {
        if (each->phase == Phase::Reading) end(*each, {});
      }
    }
    wait(kTick);
    if (!end_by) accept_all();
    workers_->replace_stuck();
    give_answers();
    ::MHD_run(library_);
    end_the_slow();
    keep_spares();
    // A request at work is waited for, however long: the library must not end while it has a
    // connection that is suspended.
    if (end_by && (connections_.empty() || (end_by->passed() && !anything_at_work()))) return;
  }
}

bool Listener::anything_at_work() const {
  return std::any_of(connections_.begin(), connections_.end(),
                     [](const auto& each) { return each.second->phase == Phase::Working; });
}

void Listener::wait(Nanoseconds for_at_most) {
  std::int64_t wait_ms = std::chrono::ceil<std::chrono::milliseconds>(for_at_most).count();
  MHD_UNSIGNED_LONG_LONG library_ms = 0;
  if (::MHD_get_timeout(library_, &library_ms) == MHD_YES) {
    wait_ms = static_cast<std::int64_t>(
        std::min<std::uint64_t>(static_cast<std::uint64_t>(wait_ms), library_ms));
  }
  if (connections_.empty() && !stopping_.load() && !no_accept_until_) wait_ms = -1;
  std::array<epoll_event, 8> events{};
  const int ready =
      ::epoll_wait(epoll_.number(), events.data(), events.size(), static_cast<int>(wait_ms));
  for (int i = 0; i < ready; ++i) {
    std::uint64_t count = 0;
    if (events[static_cast<std::size_t>(i)].data.fd != wake_.number()) continue;
    [[maybe_unused]] const auto got = ::read(wake_.number(), &count, sizeof count);
  }
}

void Listener::keep_spares() {
  while (spares_.size() < kSpareDescriptors) {
    const int spare = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (spare < 0) return;
    spares_.push_back(std::make_unique<Socket>(spare));
  }
}

void Listener::accept_all() {
  if (no_accept_until_ && !no_accept_until_->passed()) return;
  if (no_accept_until_) {
    no_accept_until_.reset();
    (void)watch(listening_.number());
  }
  for (int i = 0; i < kAcceptBurst; ++i) {
    fabric::SocketAddress from;
    const int socket = accept_one(from);
    if (socket >= 0) {
      admit(socket, from);
    } else if (errno == EAGAIN) {
      return;
    } else if (errno != ECONNABORTED && errno != EINTR) {
      // No descriptors even so. The kernel says that also when nobody waits for one.
      if (!somebody_waits()) return;
      // Those who dawdle give theirs up, and this is tried again at once: some at a time, since
      // many like them may wait before somebody who does not.
      int displaced = 0;
      while (displaced < kDisplacedAtOnce && displace_oldest()) ++displaced;
      if (displaced != 0) return;
      // All are at work. The connection stays in the kernel's queue; asking again at once
      // would only burn a core.
      (void)::epoll_ctl(epoll_.number(), EPOLL_CTL_DEL, listening_.number(), nullptr);
      no_accept_until_ = Deadline::after(kTick);
      return;
    }
  }
}

bool Listener::somebody_waits() const {
  pollfd queue{listening_.number(), POLLIN, 0};
  return ::poll(&queue, 1, 0) == 1;
}

/// Without descriptors one of the spares is given up for it.
int Listener::accept_one(fabric::SocketAddress& from) {
  for (;;) {
    from.length = sizeof from.storage;
    const int socket = ::accept4(listening_.number(), reinterpret_cast<sockaddr*>(&from.storage),
                                 &from.length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (socket >= 0 || (errno != EMFILE && errno != ENFILE)) return socket;
    const int reason = errno;
    {
      const MutexLock lock(counters_mutex_);
      ++counters_.descriptors;
    }
    if (spares_.empty()) {
      errno = reason;
      return -1;
    }
    spares_.pop_back();
  }
}

void Listener::admit(int socket, const fabric::SocketAddress& from) {
  const std::string address = fabric::host_of(from);
  if (!make_room(address)) {
    say_and_end(socket, plain(503, "Service Unavailable", "queue-full",
                              "every connection that this peer takes at a time is in use; try "
                              "again"));
    ::close(socket);
    const MutexLock lock(counters_mutex_);
    ++counters_.full;
    return;
  }
  const int yes = 1;
  (void)::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  connections_.insert_or_assign(
      socket, std::make_unique<Connection>(socket, address, options_.limits.request_within));
  // On failure the library has closed the socket.
  const auto* generic = reinterpret_cast<const sockaddr*>(&from.storage);
  if (::MHD_add_connection(library_, socket, generic, from.length) != MHD_YES) {
    connections_.erase(socket);
    return;
  }
  const MutexLock lock(counters_mutex_);
  ++counters_.accepted;
  counters_.connections = connections_.size();
}

/// Whether one more may come from `address`: if all places, or all of that address, are taken,
/// whoever has been sending its request the longest has to go.
bool Listener::make_room(const std::string& address) {
  std::size_t all = 0;
  std::size_t of_address = 0;
  Connection* oldest = nullptr;
  Connection* oldest_of_address = nullptr;
  for (const auto& [descriptor, each] : connections_) {
    if (each->over) continue;
    const bool same = each->address == address;
    ++all;
    of_address += same ? 1 : 0;
    if (each->phase != Phase::Reading) continue;
    const auto waits_longer = [&candidate = *each](const Connection* than) {
      return than == nullptr || candidate.until.left() < than->until.left();
    };
    if (waits_longer(oldest)) oldest = each.get();
    if (same && waits_longer(oldest_of_address)) oldest_of_address = each.get();
  }
  const bool address_full = of_address >= options_.limits.connections_per_address_max;
  if (!address_full && all < options_.limits.connections_max) return true;
  Connection* const displaced = address_full ? oldest_of_address : oldest;
  if (displaced == nullptr) return false;
  displace(*displaced);
  return true;
}

/// Without descriptors: the connection that has been sending its request the longest goes. False:
/// every request is in, or has not been heard yet.
bool Listener::displace_oldest() {
  Connection* oldest = nullptr;
  for (const auto& [descriptor, each] : connections_) {
    if (each->over || each->phase != Phase::Reading || each->rounds < kHeardRounds) continue;
    if (oldest == nullptr || each->until.left() < oldest->until.left()) oldest = each.get();
  }
  if (oldest == nullptr) return false;
  displace(*oldest);
  return true;
}

void Listener::displace(Connection& connection) {
  end(connection, plain(408, "Request Timeout", "timed-out",
                        "the request came too slowly while others waited for its place"));
  const MutexLock lock(counters_mutex_);
  ++counters_.displaced;
}

void Listener::end(Connection& connection, const std::string& words) {
  connection.over = true;
  say_and_end(connection.descriptor, words);
}

void Listener::end_the_slow() {
  std::uint64_t slow = 0;
  for (auto& [descriptor, each] : connections_) {
    each->rounds = std::min(each->rounds + 1, kHeardRounds);
    if (each->over || each->phase == Phase::Working || !each->until.passed()) continue;
    const bool reading = each->phase == Phase::Reading;
    end(*each,
        reading ? plain(408, "Request Timeout", "timed-out", "the request was not in whole in time")
                : "");
    ++slow;
  }
  const MutexLock lock(counters_mutex_);
  counters_.slow += slow;
  counters_.connections = connections_.size();
}

HttpCounters Listener::counters() const {
  const MutexLock lock(counters_mutex_);
  return counters_;
}

void Listener::give_answers() {
  for (HttpJob* const job : workers_->answered()) {
    auto* const each = static_cast<Connection*>(job);
    each->phase = Phase::Sending;
    each->until = Deadline::after(options_.limits.answer_within);
    ::MHD_resume_connection(each->handle);
  }
}

/// The headers are in.
MHD_Result Listener::begin(Connection& connection, MHD_Connection* handle, const char* url,
                           const char* method) {
  constexpr std::string_view scheme = "Bearer ";
  connection.handle = handle;
  ReceivedRequest& request = connection.request;
  request.method = method == nullptr ? "" : method;
  request.path = unescaped(url == nullptr ? "" : url);
  request.address = connection.address;
  const std::string credential = header(handle, "Authorization");
  if (credential.compare(0, scheme.size(), scheme) == 0) {
    request.authorization = credential.substr(scheme.size());
  }
  request.content_type = header(handle, "Content-Type");
  const auto has = [&](const char* name) {
    return ::MHD_lookup_connection_value(handle, MHD_HEADER_KIND, name) != nullptr;
  };
  request.from_web_page = has("Origin");
  request.compressed = has("Content-Encoding");
  const auto count = ::MHD_get_connection_values(handle, MHD_HEADER_KIND, nullptr, nullptr);
  if (count > static_cast<int>(options_.limits.headers_max)) {
    connection.reply = {431, "text/plain", "too many headers\n"};
    return send(connection);
  }
  const std::string announced = header(handle, "Content-Length");
  std::uint64_t bytes = 0;
  (void)std::from_chars(announced.data(), announced.data() + announced.size(), bytes);
  request.too_large = bytes > options_.limits.body_bytes_max;
  // More than is worth reading to its end is refused at once.
  return bytes > kDiscardBytesMax ? dispatch(connection) : MHD_YES;
}

MHD_Result Listener::take_body(Connection& connection, const char* data, std::size_t* length) {
  ReceivedRequest& request = connection.request;
  connection.body_bytes += *length;
  if (connection.body_bytes > options_.limits.body_bytes_max) request.too_large = true;
  if (connection.body_bytes > kDiscardBytesMax) return MHD_NO;
  if (request.too_large)
    request.body.clear();
  else
    request.body.append(data, *length);
  *length = 0;
  return MHD_YES;
}

/// The request is in.
MHD_Result Listener::dispatch(Connection& connection) {
  connection.dispatched = true;
  const Lane lane = connection.request.too_large ? Lane::Now : options_.lane(connection.request);
  if (lane == Lane::Now) {
    connection.reply = options_.answer(connection.request);
    return send(connection);
  }
  connection.phase = Phase::Working;
  ::MHD_suspend_connection(connection.handle);
  if (workers_->take(connection, lane)) return MHD_YES;
  ::MHD_resume_connection(connection.handle);
  {
    const MutexLock lock(counters_mutex_);
    ++counters_.busy;
  }
  connection.reply = {503, "application/json",
                      "{\"format\": 1, \"error\": {\"code\": \"queue-full\", \"message\": \"too "
                      "many requests wait for an answer; try again\"}}\n"};
  connection.phase = Phase::Sending;
  connection.until = Deadline::after(options_.limits.answer_within);
  return MHD_YES;  // the library calls again, and is given the answer
}

MHD_Result Listener::send(Connection& connection) {
  connection.phase = Phase::Sending;
  connection.until = Deadline::after(options_.limits.answer_within);
  const HttpReply& reply = connection.reply;
  MHD_Response* const response = ::MHD_create_response_from_buffer(
      reply.body.size(), const_cast<char*>(reply.body.data()), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  (void)::MHD_add_response_header(response, "Content-Type", reply.content_type.c_str());
  (void)::MHD_add_response_header(response, "Connection", "close");
  const MHD_Result queued =
      ::MHD_queue_response(connection.handle, static_cast<unsigned int>(reply.status), response);
  ::MHD_destroy_response(response);
  return queued;
}

}  // namespace

Result<std::unique_ptr<HttpListener>> HttpListener::open(Options options) {
  auto listener = std::make_unique<Listener>(std::move(options));
  PERDURE_TRY_VOID(listener->listen());
  return std::unique_ptr<HttpListener>(std::move(listener));
}

}  // namespace perdure::server
