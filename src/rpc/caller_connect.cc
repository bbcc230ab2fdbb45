// A client connects, and comes back: its place at the server, its session, and what the server has
// of its calls. What is neither durable nor applied is sent again.
#include <fmt/format.h>

#include <algorithm>

#include "client/writer_name.h"
#include "control/documents.h"
#include "core/assert.h"
#include "core/bytes.h"
#include "core/epoch.h"
#include "core/log_message.h"
#include "core/random.h"
#include "core/try.h"
#include "rpc/caller.h"

namespace perdure::rpc {
namespace {

constexpr std::uint64_t kPoolBytesAsked = 4096;  // the server gives what its clients have

client::DurableSessionOptions session_options(const RpcClientOptions& options, const Clock& clock) {
  client::DurableSessionOptions session;
  session.primary = options.primary;
  session.measure_costs = options.measure_costs;
  session.requests_in_flight = client::kUpdatesMax;
  session.probe_line = kRingProbeLineAt;
  session.ranges_again = true;
  session.request_bytes_max = kRequestBytesMax;
  session.reply_bytes_max = kRequestReplyBytesMax;
  session.timeout = options.server_timeout;
  session.reconnect = options.reconnect;
  session.clock = &clock;
  return session;
}

}  // namespace

Caller::Caller(std::unique_ptr<client::Peer> peer, const RpcClientOptions& options,
               const Clock& clock)
    : options_(options),
      clock_(clock),
      replies_(kRequestReplyBytesMax),
      answer_(kRequestReplyBytesMax),
      session_(std::move(peer), session_options(options, clock)),
      writer_(random_secret()) {}

Caller::~Caller() {
  session_.close();
  ring_memory_.reset();
}

Result<std::unique_ptr<Caller>> Caller::open(std::unique_ptr<client::Peer> peer,
                                             const RpcClientOptions& options, const Clock& clock) {
  PERDURE_TRY_VOID(control::validate_pool_name(options.name));
  std::unique_ptr<Caller> caller(new Caller(std::move(peer), options, clock));
  const Deadline deadline(clock, options.server_timeout);
  PERDURE_TRY_VOID(caller->find_place(deadline));
  PERDURE_TRY_VOID(caller->connect(deadline));
  return caller;
}

/// The client's pool; a new one if it has none. This process is the newest of the name.
Result<void> Caller::find_place(Deadline deadline) {
  client::Peer& peer = session_.peer();
  auto pool = peer.describe(options_.name, deadline);
  if (!pool.ok() && pool.code() == ErrorCode::NotFound) {
    pool = peer.create({options_.name, kPoolBytesAsked}, deadline);
    // Somebody else has just made it.
    if (!pool.ok() && pool.code() == ErrorCode::AlreadyExists) {
      pool = peer.describe(options_.name, deadline);
    }
  }
  // It may be there by now, which changes nothing for who opens the name again.
  if (!pool.ok() && pool.code() == ErrorCode::OutcomeUnknown) {
    return Error{ErrorCode::TimedOut, pool.error().message};
  }
  if (!pool.ok()) return pool.error();
  PERDURE_TRY_VOID(require_open(*pool));
  if (pool->epoch >= kEpochMax) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("client '{}' was opened too often", options_.name)};
  }
  uuid_ = pool->uuid;
  epoch_ = {pool->epoch.value + 1};
  return {};
}

/// Errors: those that it can not come back from are in over_ as well.
Result<void> Caller::connect(Deadline deadline) {
  session_.set_deadline(deadline);
  auto reached = reach(deadline);
  session_.set_deadline(std::nullopt);
  if (reached.ok()) {
    ++connections_;
    session_.got_on();
    return reached;
  }
  const ErrorCode code = reached.code();
  if (code == ErrorCode::Fenced || code == ErrorCode::Corrupt) over_ = reached.error();
  session_.mark_down(reached.error());
  return reached;
}

Result<void> Caller::reach(Deadline deadline) {
  auto pool = session_.peer().describe(options_.name, deadline);
  if (!pool.ok()) return pool.code() == ErrorCode::NotFound ? expired() : pool.error();
  PERDURE_TRY_VOID(require_open(*pool));
  if (pool->uuid != uuid_) return expired();
  // Before a client is first welcomed its epoch is durable there.
  if (client_ != 0 && pool->epoch < epoch_) {
    return older_copy(fmt::format("it is at epoch {}, and this client opened it in epoch {}",
                                  pool->epoch.value, epoch_.value));
  }
  control::SessionRequest request;
  request.pool = options_.name;
  request.write = true;
  request.epoch = epoch_;
  request.writer = writer_;
  request.writer_name = client::this_writer();
  request.take_over = true;
  PERDURE_TRY_VOID(session_.open(request));
  PERDURE_TRY_VOID(session_.prepare(true));
  auto welcome = ask_welcome();
  if (!welcome.ok()) return welcome.code() == ErrorCode::NotFound ? expired() : welcome.error();
  return take_welcome(*welcome);
}

/// A place that is being made, or whose pool is closed: that passes.
Result<void> Caller::require_open(const control::PoolDescription& pool) const {
  if (pool.state == control::PoolStatus::Open && !pool.uuid.empty()) return {};
  return Error{ErrorCode::Busy,
               fmt::format("the place of client '{}' is not open{}{}: try again", options_.name,
                           pool.reason.empty() ? "" : ": ", pool.reason)};
}

Error Caller::expired() {
  if (client_ == 0) {  // it is only being opened
    return {
        ErrorCode::Busy,
        fmt::format("the place of client '{}' has just been given up: try again", options_.name)};
  }
  over_ = Error{ErrorCode::NotFound,
                fmt::format("client '{}' has expired, or another one has its name", options_.name)};
  return *over_;
}

/// No crash leaves that: so nothing is told of its calls, and none is added to those that it lost.
Error Caller::older_copy(std::string_view why) const {
  return {ErrorCode::Corrupt,
          fmt::format("the server's pool is older than what it told client '{}': {}", options_.name,
                      why)};
}

Result<WelcomeReply> Caller::ask_welcome() {
  PERDURE_TRY(number, session_.request(kWelcomeKind, bytes_of(client_), answer_, false));
  PERDURE_TRY_VOID(await(number, session_.deadline()));
  PERDURE_TRY(bytes, session_.reply_bytes(number));
  return decode_welcome(std::span(answer_).first(bytes));
}

/// Until update `number` of the session has resolved.
Result<void> Caller::await(std::uint64_t number, Deadline deadline) {
  const Nanoseconds since = clock_.now();
  while (!session_.has_resolved(number)) {  // or it is lost, or silent for too long
    if (session_.is_forgotten(number)) {
      note_lost();
      return Error{ErrorCode::Disconnected, "the connection was lost"};
    }
    session_.poll();
    take_durable();
    if (session_.has_resolved(number)) break;
    if (deadline.passed()) return Error{ErrorCode::TimedOut, "the server does not answer"};
    rest(since, deadline.left());
  }
  return {};
}

Result<void> Caller::take_welcome(const WelcomeReply& reply) {
  if (client_ == 0) PERDURE_TRY_VOID(begin_life(reply));
  const Welcome& at = reply.welcome;
  if (at.client != client_ || reply.ring_bytes != ring_bytes_ || at.durable > begun_ ||
      at.end > end_) {
    return Error{ErrorCode::ProtocolError, "the server has calls that nobody made"};
  }
  if (at.durable < durable_) {
    return older_copy(
        fmt::format("it has calls up to {}, and {} was durable", at.durable, durable_));
  }
  // What they had of the ring may have been used again.
  if (at.applied < applied_) {
    return older_copy(fmt::format("calls are applied up to {}, and {} was", at.applied, applied_));
  }
  PERDURE_TRY(memory, session_.register_memory({ring_.get(), ring_bytes_}));
  ring_memory_ = std::move(memory);
  slow_from_percent_ = reply.slow_from_percent == 0 ? 100 : reply.slow_from_percent;
  resent_ += posted_ - std::min(posted_, at.durable);
  posted_ = at.durable;
  durable_ = at.durable;
  applied_ = std::max(applied_, at.applied);
  freed_ = std::max(freed_, at.position);
  ask_at_ = {};
  ask_pause_ = {};
  return {};
}

/// What earlier processes of the name have left.
Result<void> Caller::begin_life(const WelcomeReply& reply) {
  const Welcome& at = reply.welcome;
  if (kRingAt + reply.ring_bytes > session_.connection().remote.length) {
    return Error{ErrorCode::ProtocolError, "the server says that a ring is longer than its pool"};
  }
  client_ = at.client;
  ring_bytes_ = reply.ring_bytes;
  replies_kept_ = reply.replies;
  reply_bytes_max_ = reply.reply_bytes_max;
  ring_ = std::make_unique<std::byte[]>(ring_bytes_);
  begun_ = sent_ = earlier_ = at.durable;
  end_ = at.end;
  received_ = at.applied - std::min(at.applied, replies_kept_);
  flights_.restart(received_ + 1);
  for (std::uint64_t each = received_; each < begun_; ++each) flights_.add();
  return {};
}

/// The connection has ended: what was in flight on it is settled by the next one.
void Caller::note_lost() {
  take_durable();
  updates_taken_ = updates_begun_;
  asking_ = 0;
  asked_with_ = 0;
  rest_head_ = {};
}

/// May take longer than whoever waits has time: less would never be enough.
void Caller::come_back() {
  note_lost();
  if (!session_.retry_due(clock_.now(), true)) return;
  (void)connect(Deadline(clock_, options_.server_timeout));  // or says why, and tries again later
}

}  // namespace perdure::rpc
