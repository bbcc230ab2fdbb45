// RemotePool: how its connection is made, comes back after it was lost, and ends.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>

#include "client/writer_name.h"
#include "control/json_codec.h"
#include "control/version.h"
#include "core/bytes.h"
#include "core/forks.h"
#include "core/log_message.h"
#include "core/try.h"
#include "rpmem/pool_host.h"
#include "rpmem/remote_pool.h"

namespace perdure::rpmem {
namespace {

constexpr Nanoseconds kCloseWithin = std::chrono::seconds(30);
constexpr Nanoseconds kAnswerSlice = std::chrono::milliseconds(1);
constexpr int kSetAttributesTriesMax = 3;
constexpr Nanoseconds kReconnectWithin = std::chrono::seconds(1);  // also the last one
constexpr Nanoseconds kRetryEveryMin = std::chrono::milliseconds(20);
constexpr Nanoseconds kRetryEveryMax = std::chrono::milliseconds(500);

/// Whether another try may end otherwise. What a target says of its files it will say again.
bool may_pass(ErrorCode code) {
  return code == ErrorCode::Disconnected || code == ErrorCode::TimedOut ||
         code == ErrorCode::Busy || code == ErrorCode::QueueFull ||
         code == ErrorCode::OutcomeUnknown || code == ErrorCode::ProtocolError ||
         code == ErrorCode::Unsupported;
}

}  // namespace

Result<std::unique_ptr<RemotePool>> RemotePool::create(const RemotePoolOptions& options,
                                                       std::span<std::byte> memory,
                                                       const PoolAttributes& attributes) {
  std::unique_ptr<RemotePool> pool(new RemotePool(options, memory));
  PERDURE_TRY_VOID(pool->start(FrameKind::Create, attributes));
  return pool;
}

Result<std::unique_ptr<RemotePool>> RemotePool::open(const RemotePoolOptions& options,
                                                     std::span<std::byte> memory) {
  std::unique_ptr<RemotePool> pool(new RemotePool(options, memory));
  PERDURE_TRY_VOID(pool->start(FrameKind::Open, {}));
  return pool;
}

Result<void> RemotePool::start(FrameKind kind, const PoolAttributes& attributes) {
  const LeaderLock turn(mutex_);
  PERDURE_TRY(answer, connect(kind, attributes, deadline_after(options_.connect_within)));
  attributes_ = answer.attributes;
  has_headers_ = !attributes_.empty();
  return {};
}

Result<std::unique_ptr<TargetPeer>> RemotePool::start_target(const Deadline& deadline) const {
  if (options_.start) return options_.start(deadline);
  PERDURE_TRY(peer, CommandPeer::start(options_.shell, options_.target, options_.choice, deadline));
  return std::unique_ptr<TargetPeer>(std::move(peer));
}

Result<PoolAnswer> RemotePool::connect(FrameKind kind, const PoolAttributes& attributes,
                                       const Deadline& deadline) {
  PERDURE_TRY(peer, start_target(deadline));
  Link link;
  link.peer = peer.get();
  const PoolAsk ask{options_.set, memory_.size(), attributes, writer_, links_ != 0};
  PERDURE_TRY(body, link.peer->ask(kind, encode(ask), deadline));
  const auto undo = [&](const Error& error) {
    // What was made a moment ago goes with the failure.
    if (kind == FrameKind::Create) (void)link.peer->end(true, deadline_after(kCloseWithin));
    return error;
  };
  const auto answer = decode_pool_answer(body);
  if (!answer) return undo(link.peer->unreadable(answer.error()));
  client::DurableSessionOptions session;
  session.requests_in_flight = client::kUpdatesMax;
  session.ranges_again = true;
  session.request_bytes_max = persist::kOrderedBytesMax;
  session.timeout = options_.timeout;
  session.open_within = options_.connect_within;
  session.measure_costs = options_.measure_costs;
  session.clock = options_.clock;
  link.session = std::make_unique<client::DurableSession>(std::move(peer), session);
  link_ = std::move(link);
  const auto opened = open_session(deadline);
  if (!opened.ok()) {
    const Error error = undo(opened.error());
    drop_link();
    return error;
  }
  return *answer;
}

/// A session with the peer that there is, for all of the memory.
Result<void> RemotePool::open_session(const Deadline& deadline) {
  ++links_;
  mutex_.note_reached(0);
  Link& link = *link_;
  link.session->set_deadline(deadline);
  link.session->close();
  link.memory.reset();
  link.landing.reset();
  link.staging.reset();
  control::SessionRequest request;
  request.pool = kPoolName;
  request.write = true;
  request.epoch = Epoch{1};
  request.writer = writer_;
  request.writer_name = client::this_writer();
  PERDURE_TRY_VOID(link.session->open(request));
  PERDURE_TRY_VOID(register_program_memory());
  PERDURE_TRY(landing, link.session->register_memory({landing_.get(), kLandingBytes}));
  link.landing = std::move(landing);
  PERDURE_TRY_VOID(link.session->prepare(false));
  link.session->set_deadline(std::nullopt);
  PERDURE_TRY_VOID(require_ordered(deadline));
  const std::uint64_t whole = link.session->whole_words_bytes_max();
  if (whole < std::max<std::uint64_t>(whole_bytes_max_, kCacheLineBytes)) {
    return Error{
        ErrorCode::Unsupported,
        fmt::format("target {}: its messages take {} bytes of a range; it needs at least {}",
                    options_.target.host, whole,
                    std::max<std::uint64_t>(whole_bytes_max_, kCacheLineBytes))};
  }
  if (whole_bytes_max_ == 0) {
    whole_bytes_max_ = whole;
    staging_.resize(client::kUpdatesMax * whole);
  }
  PERDURE_TRY(staging, link.session->register_memory(staging_));
  link.staging = std::move(staging);
  return {};
}

/// Pages of a DAX file system, for example, can not be pinned for long by an RNIC that does not
/// page on demand: then ranges are copied into messages.
Result<void> RemotePool::register_program_memory() {
  if (!registers_) return {};
  auto memory = link_->session->register_memory(memory_);
  if (memory.ok()) {
    link_->memory = std::move(*memory);
    return {};
  }
  const bool first = whole_bytes_max_ == 0;
  if (!first) return memory.error();
  registers_ = false;
  log_message(Severity::Warning,
              fmt::format("target {}: what is persisted is copied into messages, since the RNIC "
                          "can not use the pool's memory where it is: {}",
                          options_.target.host, memory.error().message));
  return {};
}

/// That the target takes ranges together (persist/ordered.h). A request of no ranges changes
/// nothing: who takes them says that it makes no sense.
Result<void> RemotePool::require_ordered(const Deadline& deadline) {
  client::DurableSession& session = *link_->session;
  PERDURE_TRY(number, session.request(persist::MessageKind::Ordered, {}, {}, false));
  while (!session.has_resolved(number)) {
    session.poll();
    if (!session.up()) return *session.down_reason();
    if (deadline.passed()) {
      return Error{ErrorCode::TimedOut,
                   fmt::format("target {}: it stopped answering", options_.target.host)};
    }
    fabric::Endpoint* endpoint = session.endpoint();
    fabric::wait_any(std::span(&endpoint, 1), kAnswerSlice);
  }
  const auto answered = session.reply_bytes(number);
  if (answered.ok() || answered.code() != ErrorCode::Unsupported) return {};
  return Error{
      ErrorCode::VersionMismatch,
      fmt::format("target {}: its rpmemd takes no ordered updates, for it is of an earlier "
                  "version: install Perdure {} or a later one there",
                  options_.target.host, control::version())};
}

/// The session before the memory that it names.
void RemotePool::drop_link() {
  if (!link_) return;
  link_->session->close();
  link_.reset();
  ++links_;
  mutex_.note_reached(0);
}

void RemotePool::pause(Nanoseconds time) const {
  if (options_.pause) return options_.pause(time);
  (void)::poll(nullptr, 0, static_cast<int>(time / std::chrono::milliseconds(1)));
}

/// On success there is a session; on an error the pool is lost.
Result<void> RemotePool::come_back() {
  if (lost_) return *lost_;
  const Deadline deadline = deadline_after(options_.reconnect);
  Error why{ErrorCode::Disconnected, "the connection was lost"};
  if (link_ && link_->session->down_reason()) why = *link_->session->down_reason();
  for (Nanoseconds wait = kRetryEveryMin; options_.reconnect > Nanoseconds{0};
       wait = std::min(2 * wait, kRetryEveryMax)) {
    const auto back = try_to_come_back(deadline);
    if (back.ok()) {
      log_message(Severity::Warning,
                  fmt::format("set '{}' on {}: the connection is back; it was lost: {}",
                              options_.set, options_.target.host, why.message));
      return {};
    }
    why = back.error();
    if (!may_pass(why.code) || deadline.passed()) break;
    pause(wait);
  }
  drop_link();
  if (may_pass(why.code)) why.code = ErrorCode::Disconnected;
  const char* const remedy = why.code == ErrorCode::InvalidArgument
                                 ? "see which side has what counts"
                                 : "bring the replica back with pmempool sync";
  lost_ = Error{why.code, fmt::format("set '{}' on {} was lost: {}; close the pool, and {}",
                                      options_.set, options_.target.host, why.message, remedy)};
  return *lost_;
}

/// First by the rpmemd that there is, which knows what its medium said; then by another one, for
/// that one may be on a machine that is gone.
Result<void> RemotePool::try_to_come_back(const Deadline& deadline) {
  const auto most = [&] { return std::max(deadline.left(), kReconnectWithin); };
  if (link_) {
    auto again = open_session(deadline_after(std::min(options_.timeout, most())));
    if (again.ok() || !may_pass(again.code())) return again;
    drop_link();
  }
  PERDURE_TRY(answer, connect(FrameKind::Open, {}, deadline_after(most())));
  if (answer.attributes == attributes_) return {};
  return Error{ErrorCode::InvalidArgument,
               "its headers have changed meanwhile: another pool is there now"};
}

Result<void> RemotePool::set_attributes(const PoolAttributes& attributes) {
  PERDURE_TRY_VOID(require_own_process());
  const LeaderLock turn(mutex_);
  for (int tries = 1;; ++tries) {
    if (lost_) return *lost_;
    if (!link_) PERDURE_TRY_VOID(come_back());
    const auto answer = link_->peer->ask(FrameKind::SetAttributes, encode(attributes),
                                         deadline_after(options_.connect_within));
    if (answer.ok()) {
      attributes_ = attributes;
      return control::decode_accepted(*answer);
    }
    if (link_->peer->in_step()) return answer.error();
    // It may have been done. Then the headers have changed, and it is not asked for again.
    drop_link();
    const PoolAttributes before = attributes_;
    attributes_ = attributes;
    if (come_back().ok()) return {};
    if (!lost_ || lost_->code != ErrorCode::InvalidArgument) return *lost_;
    lost_.reset();
    attributes_ = before;
    PERDURE_TRY_VOID(come_back());  // or it was lost, and not by what was asked for
    if (tries == kSetAttributesTriesMax) return Error{ErrorCode::TimedOut, answer.error().message};
  }
}

Result<void> RemotePool::close() {
  PERDURE_TRY_VOID(require_own_process());
  const LeaderLock turn(mutex_);
  if (lost_) return *lost_;
  if (!link_) return {};
  // What was flushed and never drained goes all the same.
  Result<void> drained;
  for (Lane& lane : lanes_) {
    if (drained.ok()) drained = drain_lane(lane);
  }
  if (!link_) return drained;
  const Deadline deadline = deadline_after(kCloseWithin);
  link_->session->give_back(deadline);
  auto ended = link_->peer->end(false, deadline);
  drop_link();
  return drained.ok() ? ended : drained;
}

}  // namespace perdure::rpmem
