// See tcp_endpoint.h: posting, polling, sleeping and losing a connection.
#ifdef PERDURE_WITH_LIBFABRIC
#include "fabric/ofi/tcp_endpoint.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include "core/log_message.h"
#include "core/try.h"
#include "fabric/ofi/failed_sends.h"

#include <algorithm>
#include <atomic>

namespace perdure::fabric::ofi {
namespace {

constexpr std::uint64_t kTransferBytesMax = std::uint64_t{1} << 30;
constexpr std::size_t kDepthMax = 4096;
constexpr std::size_t kBatch = 16;  // provider completions read at a time
// The end of a connection with nothing in flight shows in the event queue only. Reading that costs
// a system call, so it is done once in so many empty polls, and around sleeping.
constexpr std::uint32_t kEmptyPollsPerLook = 256;
constexpr int kKeepIdleS = 5;
constexpr int kKeepIntervalS = 1;
constexpr int kKeepCount = 5;

// Completions carry this instead of a pointer: bit 0 says that it is ours (the provider reports
// null for what it forgot), bit 1 that it is a receive; the rest is the number of the request.
void* request_tag(std::uint64_t index) { return reinterpret_cast<void*>(index << 2 | 1); }
void* receive_tag() { return reinterpret_cast<void*>(std::uintptr_t{3}); }

// The immediate of a WriteImm travels with the bytes it wrote: 32 bits each.
std::uint64_t pack(std::uint32_t immediate, std::uint64_t length) {
  return length << 32 | immediate;
}

/// As many as fit, and not none.
bool has_segments(const WorkRequest& request) { return request.segment_count - 1U < kSegmentsMax; }

// Not by a loop: with kSegmentsMax of them that takes twice as many instructions.
std::size_t gather(const WorkRequest& request, std::array<iovec, kSegmentsMax>& pieces) {
  static_assert(kSegmentsMax == 3);
  std::size_t length = 0;
  const auto piece = [&](std::size_t i) {
    pieces[i] = {request.segments[i].data, request.segments[i].length};
    length += request.segments[i].length;
  };
  if (request.segment_count > 0) piece(0);
  if (request.segment_count > 1) piece(1);
  if (request.segment_count > 2) piece(2);
  return length;
}

std::uint64_t flags_of(bool copied, bool asked) {
  return (copied ? FI_INJECT : 0) | (asked ? FI_COMPLETION : 0);
}

std::size_t depth_of(std::size_t asked) { return std::clamp(asked, std::size_t{1}, kDepthMax); }

/// Makes what is sent in its lifetime leave together. Each message is a system call of the
/// provider, and on loopback each of those carries its packet through the whole receive path.
/// Two system calls more, and yet for 64 bytes: write + message + reply 12.7 us without, 9.6 us
/// with; eight writes and a read 31 us without, 11.6 us with.
class Cork {
 public:
  explicit Cork(int socket) : socket_(socket) { set(1); }
  ~Cork() { set(0); }
  Cork(const Cork&) = delete;
  Cork& operator=(const Cork&) = delete;

 private:
  void set(int value) const {
    if (socket_ >= 0) ::setsockopt(socket_, IPPROTO_TCP, TCP_CORK, &value, sizeof value);
  }
  int socket_;
};

}  // namespace

TcpEndpoint::TcpEndpoint(std::shared_ptr<Domain> domain, const EndpointOptions& options,
                         std::string peer)
    : domain_(std::move(domain)),
      limits_{kTransferBytesMax, depth_of(options.send_depth), depth_of(options.receive_depth)},
      inject_bytes_max_(domain_->info->tx_attr->inject_size),
      peer_(std::move(peer)),
      requests_(limits_.send_depth),
      receives_(limits_.receive_depth),
      arrived_(limits_.receive_depth + kBatch) {
  message_.msg_iov = pieces_.data();
  access_.msg_iov = pieces_.data();
  access_.rma_iov = &target_;
  access_.rma_iov_count = 1;
}

// Closes the endpoint first, then its queues. A child of fork() may have the socket, too: the peer
// is to see the end all the same.
TcpEndpoint::~TcpEndpoint() {
  if (socket_ >= 0 && !lost_ && made_in_ == forks_so_far()) ::shutdown(socket_, SHUT_RDWR);
}

Result<std::unique_ptr<TcpEndpoint>> TcpEndpoint::open(std::shared_ptr<Domain> domain,
                                                       fi_info* info,
                                                       const EndpointOptions& options,
                                                       std::string peer) {
  std::unique_ptr<TcpEndpoint> made(new TcpEndpoint(std::move(domain), options, std::move(peer)));
  const auto failed = [](const char* call, std::int64_t returned) {
    return error_of(ErrorCode::SystemError, call, returned);
  };

  fi_eq_attr event_attr{};
  event_attr.wait_obj = FI_WAIT_POLLFD;  // tells which socket is waited for: see find_socket
  fid_eq* events = nullptr;
  int returned = ::fi_eq_open(made->domain_->fabric, &event_attr, &events, nullptr);
  if (returned != 0) return failed("libfabric tcp: fi_eq_open", returned);
  made->events_.reset(events);

  fi_cq_attr queue_attr{};
  queue_attr.size = made->limits_.send_depth * 2 + made->limits_.receive_depth + kBatch;
  queue_attr.format = FI_CQ_FORMAT_DATA;
  // The provider watches its socket in any case: with epoll if asked for a descriptor, else with
  // poll(2). Asking makes spinning faster, not slower: 0.20 us against 0.42 us per empty look.
  queue_attr.wait_obj = FI_WAIT_FD;
  fid_cq* queue = nullptr;
  returned = ::fi_cq_open(made->domain_->domain.get(), &queue_attr, &queue, nullptr);
  if (returned != 0) return failed("libfabric tcp: fi_cq_open", returned);
  made->queue_.reset(queue);
  returned = ::fi_control(&queue->fid, FI_GETWAIT, &made->wait_fd_);
  if (returned != 0) return failed("libfabric tcp: FI_GETWAIT", returned);

  info->rx_attr->size = made->limits_.receive_depth;
  fid_ep* endpoint = nullptr;
  returned = ::fi_endpoint(made->domain_->domain.get(), info, &endpoint, nullptr);
  if (returned != 0) return failed("libfabric tcp: fi_endpoint", returned);
  made->endpoint_.reset(endpoint);
  returned = ::fi_ep_bind(endpoint, &events->fid, 0);
  if (returned != 0) return failed("libfabric tcp: fi_ep_bind", returned);
  // A request completes when asked to; a receive always.
  returned = ::fi_ep_bind(endpoint, &queue->fid, FI_TRANSMIT | FI_SELECTIVE_COMPLETION);
  if (returned == 0) returned = ::fi_ep_bind(endpoint, &queue->fid, FI_RECV);
  if (returned != 0) return failed("libfabric tcp: fi_ep_bind", returned);
  returned = ::fi_enable(endpoint);
  if (returned != 0) return failed("libfabric tcp: fi_enable", returned);
  return made;
}

Result<void> TcpEndpoint::connect(const void* address, std::span<const std::byte> private_data,
                                  Deadline deadline) {
  const int returned =
      ::fi_connect(endpoint_.get(), address, private_data.data(), private_data.size());
  if (returned != 0) return error_of(ErrorCode::Disconnected, "connect to " + peer_, returned);
  find_socket();
  PERDURE_TRY_VOID(wait_connected(deadline));
  warn_of_libfabric();
  return {};
}

Result<void> TcpEndpoint::accept(Deadline deadline) {
  const int returned = ::fi_accept(endpoint_.get(), nullptr, 0);
  if (returned != 0) return error_of(ErrorCode::Disconnected, "accept " + peer_, returned);
  find_socket();
  PERDURE_TRY_VOID(wait_connected(deadline));
  warn_of_libfabric();
  return {};
}

/// Of what this libfabric does not show: each once in a process.
void TcpEndpoint::warn_of_libfabric() const {
  static std::atomic<bool> said{false};
  if (socket_ < 0 && !said.exchange(true)) {
    log_message(Severity::Warning,
                "libfabric's tcp provider does not show its sockets (1.18 and later do not): a "
                "peer whose machine has gone is not noticed on an idle connection, and connections "
                "are not cut in the instant in which a page of a pool is lost, so that wrong bytes "
                "may be read in its place; use libfabric 1.17");
  }
  static std::atomic<bool> said_of_log{false};
  if (!libfabric().shows_failed_sends && !said_of_log.exchange(true)) {
    log_message(Severity::Warning,
                "this program, or another copy of Perdure in it, has taken over libfabric's log "
                "(fi_import_log) before: where a page of a pool is lost that a peer is reading, "
                "wrong bytes may arrive in its place; let this copy open its first tcp device "
                "before that");
  }
}

/// While a connection is being set up, its socket is what the event queue waits for; from the
/// first look at the queue on (FI_PEEK leaves the event there).
void TcpEndpoint::find_socket() {
  std::uint32_t event = 0;
  fi_eq_cm_entry entry{};
  (void)::fi_eq_read(events_.get(), &event, &entry, sizeof entry, FI_PEEK);
  std::array<pollfd, 8> watched{};
  fi_wait_pollfd request{};
  request.nfds = watched.size();
  request.fd = watched.data();
  if (::fi_control(&events_->fid, FI_GETWAIT, &request) != 0) return;
  for (std::size_t i = 0; i < std::min<std::size_t>(request.nfds, watched.size()); ++i) {
    int protocol = 0;
    socklen_t length = sizeof protocol;
    const int returned = ::getsockopt(watched[i].fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &length);
    if (returned == 0 && protocol == IPPROTO_TCP) socket_ = watched[i].fd;
  }
  if (socket_ < 0) return;
  // A peer whose machine has gone says nothing. An idle connection asks after it, and gives it up
  // kKeepIdleS + kKeepCount * kKeepIntervalS seconds after its last sign of life.
  const auto set = [this](int level, int option, int value) {
    ::setsockopt(socket_, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleS);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalS);
  set(IPPROTO_TCP, TCP_KEEPCNT, kKeepCount);
}

Result<void> TcpEndpoint::wait_connected(Deadline deadline) {
  constexpr std::int64_t kSliceMs = 50;
  do {
    const auto left_ms = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
    std::uint32_t event = 0;
    std::array<std::byte, sizeof(fi_eq_cm_entry) + 256> entry;  // 256: the provider's data limit
    const std::int64_t returned =
        ::fi_eq_sread(events_.get(), &event, entry.data(), entry.size(),
                      static_cast<int>(std::min<std::int64_t>(left_ms, kSliceMs)), 0);
    if (returned == -FI_EAVAIL) {
      fi_eq_err_entry failure{};
      ::fi_eq_readerr(events_.get(), &failure, 0);
      return error_of(ErrorCode::Disconnected, peer_ + " did not accept", -failure.err);
    }
    if (returned == -FI_EAGAIN || returned == -FI_EINTR) continue;
    if (returned < 0) return error_of(ErrorCode::Disconnected, peer_, returned);
    if (event != FI_CONNECTED) {
      return Error{ErrorCode::Disconnected, peer_ + " closed while connecting"};
    }
    return {};
  } while (!deadline.passed());
  return Error{ErrorCode::TimedOut, peer_ + " did not answer in time"};
}

/// A message. False: it is not one that goes to the provider at once, and nothing was done.
inline bool TcpEndpoint::post_message(const WorkRequest& message) {
  if (message.opcode != Opcode::Send || !has_segments(message) || message.fenced ||
      !requests_.takes_at_once()) {
    return false;
  }
  const std::size_t length = gather(message, pieces_);
  if (length > limits_.transfer_bytes_max) return false;
  const bool copied = length <= inject_bytes_max_;
  message_.iov_count = message.segment_count;
  message_.context = request_tag(requests_.issue_index());
  const bool asked = requests_.must_confirm(Opcode::Send, message.signalled, copied);
  const auto returned = ::fi_sendmsg(endpoint_.get(), &message_, flags_of(copied, asked));
  requests_.push_issued(message, copied, asked);
  if (returned != 0) [[unlikely]]
    lose_by(returned);
  return true;
}

/// What access_ names beside pieces_.
inline void TcpEndpoint::name_access(const WorkRequest& request, std::size_t length,
                                     void* context) {
  target_ = {request.remote.base + request.remote_offset, length, request.remote.key};
  access_.iov_count = request.segment_count;
  access_.context = context;
}

/// Makes access_ and target_ say what a WRITE or READ asks for. False: it is not one that goes to
/// the provider at once.
inline bool TcpEndpoint::fill_in_access(const WorkRequest& request) {
  if (!has_segments(request) || request.fenced || !requests_.takes_at_once()) return false;
  const std::size_t length = gather(request, pieces_);
  if (!fits(request, length, limits_)) return false;
  name_access(request, length, request_tag(requests_.issue_index()));
  return true;
}

/// The same as post_message for a WRITE, or for a READ, which is always confirmed.
inline bool TcpEndpoint::post_access(const WorkRequest& request) {
  std::int64_t returned = 0;
  if (request.opcode == Opcode::Write) {
    if (!fill_in_access(request)) return false;
    const bool copied = target_.len <= inject_bytes_max_;
    const bool asked = requests_.must_confirm(Opcode::Write, request.signalled, copied);
    returned = ::fi_writemsg(endpoint_.get(), &access_, flags_of(copied, asked));
    requests_.push_issued(request, copied, asked);
  } else {
    if (request.opcode != Opcode::Read || !fill_in_access(request)) return false;
    returned = ::fi_readmsg(endpoint_.get(), &access_, FI_COMPLETION);
    requests_.push_issued(request, false, true);
  }
  if (returned != 0) [[unlikely]]
    lose_by(returned);
  return true;
}

/// WRITEs and READs go to the provider at once as well; the rest by post_any.
inline Result<std::size_t> TcpEndpoint::post_several(std::span<const WorkRequest> requests) {
  const bool several =
      requests.size() > 1 || (!requests.empty() && requests[0].opcode == Opcode::WriteImm);
  const Cork cork(several ? socket_ : -1);
  std::size_t taken = 0;
  for (; taken < requests.size() && post_access(requests[taken]); ++taken) {
    if (lost_) return taken + 1;
  }
  if (taken == requests.size()) return taken;
  const auto others = post_any(requests.subspan(taken));
  // What was taken is posted, whatever is wrong with the next one: it is refused when it is first.
  if (!others.ok()) return taken == 0 ? others : Result<std::size_t>(taken);
  return taken + *others;
}

/// A message alone goes to the provider at once, with few questions; anything else by post_several.
Result<std::size_t> TcpEndpoint::post(std::span<const WorkRequest> requests) {
  if (lost_) [[unlikely]]
    return Error{ErrorCode::Disconnected, "post: the connection is down"};
  const CutOnFailedSend cut(socket_);
  if (requests.size() == 1 && post_message(requests[0])) [[likely]]
    return std::size_t{1};
  return post_several(requests);
}

Result<std::size_t> TcpEndpoint::post_any(std::span<const WorkRequest> requests) {
  std::size_t taken = 0;
  for (const WorkRequest& request : requests) {
    if (requests_.full()) break;
    if (!is_plain(request, limits_)) {
      if (auto checked = check_request(request, limits_, {}, false); !checked.ok()) {
        if (taken > 0) break;
        return checked.error();
      }
    }
    const bool wait = requests_.anything_held() || (request.fenced && requests_.reads_in_flight());
    requests_.push(request);
    if (wait) requests_.hold(request);
    ++taken;
    if (!wait && !issue(request)) break;  // lost: poll reports what was taken
  }
  return taken;
}

bool TcpEndpoint::issue_held() {
  while (requests_.anything_held()) {
    const WorkRequest& request = requests_.held();
    if (request.fenced && requests_.reads_in_flight()) return true;
    if (!issue(request)) return false;
  }
  return true;
}

/// Gives the next request of the ring to the provider. False: the connection is lost.
bool TcpEndpoint::issue(const WorkRequest& request) {
  const bool copied = request.opcode != Opcode::Read && total_length(request) <= inject_bytes_max_;
  const bool asked = requests_.wants_confirmation(copied);
  const std::uint64_t inject = flags_of(copied, false);
  const std::uint64_t completion = flags_of(false, asked);
  void* tag = request_tag(requests_.issue_index());
  requests_.mark_issued(copied, asked);

  std::int64_t returned = 0;
  switch (request.opcode) {
    case Opcode::Send: returned = issue_message(request, tag, inject | completion); break;
    case Opcode::WriteImm:
      returned = issue_access(request, tag, inject);
      if (returned == 0) returned = issue_message(request, tag, completion | FI_REMOTE_CQ_DATA);
      break;
    case Opcode::Write: returned = issue_access(request, tag, inject | completion); break;
    default: returned = issue_access(request, tag, completion); break;
  }
  if (returned == 0) return true;
  // The provider queues without a limit of its own, so this is lack of memory or a closed socket.
  lose_by(returned);
  return false;
}

std::int64_t TcpEndpoint::issue_message(const WorkRequest& request, void* context,
                                        std::uint64_t flags) {
  const std::size_t length = gather(request, pieces_);
  const bool data_alone = (flags & FI_REMOTE_CQ_DATA) != 0;  // the bytes were written before
  message_.iov_count = data_alone ? 0 : request.segment_count;
  message_.context = context;
  message_.data = data_alone ? pack(request.immediate, length) : 0;
  return ::fi_sendmsg(endpoint_.get(), &message_, flags);
}

std::int64_t TcpEndpoint::issue_access(const WorkRequest& request, void* context,
                                       std::uint64_t flags) {
  name_access(request, gather(request, pieces_), context);
  if (request.opcode == Opcode::Read) return ::fi_readmsg(endpoint_.get(), &access_, flags);
  return ::fi_writemsg(endpoint_.get(), &access_, flags);
}

Result<void> TcpEndpoint::post_receive(const Segment& buffer, std::uint64_t context) {
  if (lost_) return Error{ErrorCode::Disconnected, "post_receive: the connection is down"};
  if (receives_posted_ - receives_taken_ == receives_.size()) {
    return Error{ErrorCode::QueueFull, "post_receive: receive_depth buffers are posted"};
  }
  const std::int64_t returned = ::fi_recv(endpoint_.get(), buffer.data, buffer.length, nullptr,
                                          FI_ADDR_UNSPEC, receive_tag());
  if (returned != 0) return error_of(ErrorCode::QueueFull, "post_receive", returned);
  receives_[receives_posted_++ % receives_.size()] = context;
  return {};
}

std::size_t TcpEndpoint::poll(std::span<Completion> completions) {
  std::size_t count = report(completions);
  if (count == completions.size() || lost_) return count;
  progress();
  return count + report(completions.subspan(count));
}

std::size_t TcpEndpoint::report(std::span<Completion> completions) {
  std::size_t count = 0;
  while (count < completions.size() && arrived_reported_ < arrived_count_) {
    completions[count++] = arrived_[arrived_reported_++ % arrived_.size()];
  }
  if (lost_) {
    while (count < completions.size() && requests_.report_lost(completions[count])) ++count;
  } else {
    while (count < completions.size() && requests_.report(completions[count])) ++count;
  }
  return count;
}

void TcpEndpoint::progress() {
  if (watch_events_) {
    watch_events_ = false;
    if (peer_left()) return lose("closed by the peer");
  }
  if (arrived_reported_ < arrived_count_) return;  // room for one batch more, not for two
  const CutOnFailedSend cut(socket_);
  std::array<fi_cq_data_entry, kBatch> batch;
  const std::int64_t returned = ::fi_cq_read(queue_.get(), batch.data(), batch.size());
  if (returned > 0) {
    for (std::int64_t i = 0; i < returned; ++i) {
      const fi_cq_data_entry& entry = batch[static_cast<std::size_t>(i)];
      take(reinterpret_cast<std::uintptr_t>(entry.op_context), entry.flags, entry.len, entry.data);
    }
    if (requests_.anything_held()) (void)issue_held();
  } else if (returned == -FI_EAGAIN) {
    if (++empty_polls_ % kEmptyPollsPerLook == 0) watch_events_ = true;
  } else {
    fi_cq_err_entry failure{};
    ::fi_cq_readerr(queue_.get(), &failure, 0);
    lose(libfabric().strerror(failure.err));
  }
}

/// One provider completion: a request confirmed, or a message received.
void TcpEndpoint::take(std::uint64_t tag, std::uint64_t flags, std::uint64_t length,
                       std::uint64_t data) {
  if ((flags & FI_RECV) == 0) {
    if (tag != 0) requests_.confirm(tag >> 2);
    return;
  }
  PERDURE_ASSERT(receives_taken_ < receives_posted_);
  Completion& completion = arrived_[arrived_count_++ % arrived_.size()];
  completion = Completion{};
  completion.opcode = Opcode::Receive;
  completion.context = receives_[receives_taken_++ % receives_.size()];
  completion.length = length;
  if ((flags & FI_REMOTE_CQ_DATA) != 0) {
    completion.has_immediate = true;
    completion.immediate = static_cast<std::uint32_t>(data);
    completion.length = data >> 32;
  }
}

bool TcpEndpoint::arm() {
  if (lost_ || arrived_reported_ < arrived_count_ || requests_.reportable()) return false;
  const CutOnFailedSend cut(socket_);  // it looks at the socket, and answers
  fid* waited = &queue_->fid;
  if (::fi_trywait(domain_->fabric, &waited, 1) != 0) return false;
  if (peer_left()) {
    lose("closed by the peer");
    return false;
  }
  watch_events_ = true;
  return true;
}

/// Whether the event queue says that the connection has ended. One system call.
bool TcpEndpoint::peer_left() {
  std::uint32_t event = 0;
  fi_eq_cm_entry entry{};
  const std::int64_t returned = ::fi_eq_read(events_.get(), &event, &entry, sizeof entry, 0);
  return returned >= 0 ? event == FI_SHUTDOWN : returned != -FI_EAGAIN;
}

void TcpEndpoint::disconnect() {
  if (!lost_) lose("");
}

/// Because the provider said so.
void TcpEndpoint::lose_by(std::int64_t returned) {
  lose(libfabric().strerror(static_cast<int>(-returned)));
}

/// The connection is down. What arrived before that is delivered first; then all that is in flight
/// fails. After fi_shutdown the provider touches none of the caller's memory.
void TcpEndpoint::lose(const std::string& reason) {
  PERDURE_ASSERT(!lost_);
  lost_ = true;
  lost_reason_ = reason;
  if (!reason.empty()) {
    log_message(Severity::Debug, fmt::format("connection with {} lost: {}", peer_, reason));
    drain();
  }
  ::fi_shutdown(endpoint_.get(), 0);
  drain();
  while (receives_taken_ < receives_posted_) {
    Completion& completion = arrived_[arrived_count_++ % arrived_.size()];
    completion = Completion{};
    completion.opcode = Opcode::Receive;
    completion.context = receives_[receives_taken_++ % receives_.size()];
    completion.error = ErrorCode::OutcomeUnknown;
  }
}

/// Takes what the provider has completed, and leaves its errors: there is one for each request.
void TcpEndpoint::drain() {
  const std::size_t entries_max = requests_.slot_count() * 2 + receives_.size() * 2 + kBatch;
  for (std::size_t i = 0; i < entries_max; ++i) {
    fi_cq_data_entry entry{};
    const std::int64_t returned = ::fi_cq_read(queue_.get(), &entry, 1);
    if (returned == -FI_EAGAIN) return;
    if (returned == 1) {
      take(reinterpret_cast<std::uintptr_t>(entry.op_context), entry.flags, entry.len, entry.data);
    } else {
      fi_cq_err_entry failure{};
      ::fi_cq_readerr(queue_.get(), &failure, 0);
    }
  }
}

}  // namespace perdure::fabric::ofi
#endif
