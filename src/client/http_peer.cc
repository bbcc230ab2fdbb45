// A perdured through its control plane: see http_peer.h.
#include "client/http_peer.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/connect_session.h"
#include "control/json_codec.h"
#include "control/json_fields.h"
#include "core/assert.h"
#include "core/log_message.h"
#include "core/stoppable_clock.h"
#include "core/try.h"

namespace perdure::client {
namespace {

// To take back a grant that could not be used; it would expire by itself.
constexpr Nanoseconds kTakeBackWithin = std::chrono::seconds{1};
constexpr Nanoseconds kTakeBackAtLeast = std::chrono::milliseconds{50};
// One try to connect gets half of the time that is left, but not less than this.
constexpr Nanoseconds kConnectWithinMin = std::chrono::milliseconds{200};

/// The body of a successful answer; a refusal becomes its error.
Result<std::string> body_of(const control::HostPort& at, control::HttpAnswer answer) {
  if (answer.status >= 200 && answer.status < 300) return std::move(answer.body);
  Error error = control::decode_error(answer.body);
  error.message = fmt::format("peer {}: {}", to_string(at), error.message);
  return error;
}

Result<std::string> call(const control::HostPort& at, const control::HttpRequest& request,
                         Deadline deadline) {
  PERDURE_TRY(answer, control::http_call(at, request, control::kJsonAnswerBytesMax, deadline));
  return body_of(at, std::move(answer));
}

/// The same of what changes a pool. Errors: OutcomeUnknown: it was sent, and not answered.
Result<std::string> change(const control::HostPort& at, const control::HttpRequest& request,
                           Deadline deadline) {
  bool sent = false;
  auto answer = control::http_call(at, request, control::kJsonAnswerBytesMax, deadline, &sent);
  if (answer.ok()) return body_of(at, std::move(*answer));
  if (!sent) return answer.error();
  return Error{ErrorCode::OutcomeUnknown,
               fmt::format("{}; the request may have been executed: look, or repeat it",
                           answer.error().message)};
}

/// Whether the pool is what was asked for: a peer may be of any version.
Result<void> check_made(const control::HostPort& at, const control::PoolRequest& request,
                        const control::PoolDescription& made) {
  const bool buffers_differ =
      request.receive_buffers && made.profile.receive_buffers != *request.receive_buffers;
  if (made.profile.domain >= request.required_domain && !buffers_differ) return {};
  const std::string asked =
      buffers_differ ? fmt::format("receive buffers {} were", to_string(*request.receive_buffers))
                     : fmt::format("domain {} at least was", to_string(request.required_domain));
  return Error{ErrorCode::OutcomeUnknown,
               fmt::format("peer {}: {} asked for, and it made pool '{}' ({}) as {}: is it of "
                           "another version? Delete the pool, or use it as it is",
                           to_string(at), asked, made.name, made.uuid, describe(made.profile))};
}

std::string pool_path(const std::string& pool, std::string_view rest) {
  return fmt::format("/v1/pools/{}{}", pool, rest);
}

}  // namespace

Result<std::unique_ptr<HttpPeer>> HttpPeer::open(const std::string& address,
                                                 std::shared_ptr<fabric::Device> device) {
  PERDURE_TRY(at, control::parse_host_port(address));
  return std::unique_ptr<HttpPeer>(new HttpPeer(address, std::move(at), std::move(device), {}));
}

Result<std::unique_ptr<HttpPeer>> HttpPeer::open_choosing(const std::string& address,
                                                          ChooseDevice choose) {
  PERDURE_TRY(at, control::parse_host_port(address));
  return std::unique_ptr<HttpPeer>(
      new HttpPeer(address, std::move(at), nullptr, std::move(choose)));
}

fabric::Device& HttpPeer::device() {
  const MutexLock lock(mutex_);
  PERDURE_ASSERT(device_ != nullptr);
  return *device_;
}

/// The device of all sessions; the first one asks the peer, unless it was given.
Result<std::shared_ptr<fabric::Device>> HttpPeer::session_device(Deadline deadline) {
  {
    const MutexLock lock(mutex_);
    if (device_ != nullptr) return device_;
  }
  PERDURE_ASSERT(choose_ != nullptr);
  PERDURE_TRY(service, probe(address_, deadline));
  std::vector<Transport> refused;
  {
    const MutexLock lock(mutex_);
    refused = refused_;
  }
  PERDURE_TRY(chosen, choose_(service, refused));
  const MutexLock lock(mutex_);
  if (device_ == nullptr) device_ = std::move(chosen);
  return device_;
}

Result<control::ServiceDescription> HttpPeer::probe(const std::string& address, Deadline deadline) {
  PERDURE_TRY(at, control::parse_host_port(address));
  PERDURE_TRY(body, call(at, {"GET", "/v1/profile", ""}, deadline));
  return control::decode_service(body);
}

Result<std::vector<control::PoolDescription>> HttpPeer::list(Deadline deadline) {
  PERDURE_TRY(body, call(at_, {"GET", "/v1/pools", ""}, deadline));
  return control::decode_pools(body);
}

Result<control::PoolDescription> HttpPeer::describe(const std::string& pool, Deadline deadline) {
  PERDURE_TRY_VOID(control::validate_pool_name(pool));
  PERDURE_TRY(body, call(at_, {"GET", pool_path(pool, ""), ""}, deadline));
  return control::decode_pool(body);
}

Result<control::PoolDescription> HttpPeer::create(const control::PoolRequest& request,
                                                  Deadline deadline) {
  PERDURE_TRY_VOID(validate(request));
  PERDURE_TRY(body, change(at_, {"POST", "/v1/pools", encode(request)}, deadline));
  PERDURE_TRY(made, control::decode_pool(body));
  PERDURE_TRY_VOID(check_made(at_, request, made));
  return made;
}

Result<control::PoolDescription> HttpPeer::open_pool(const std::string& pool, Deadline deadline) {
  PERDURE_TRY_VOID(control::validate_pool_name(pool));
  PERDURE_TRY(body, change(at_, {"POST", pool_path(pool, "/open"), ""}, deadline));
  return control::decode_pool(body);
}

Result<void> HttpPeer::close_pool(const std::string& pool, Deadline deadline) {
  PERDURE_TRY_VOID(control::validate_pool_name(pool));
  PERDURE_TRY(body, change(at_, {"POST", pool_path(pool, "/close"), ""}, deadline));
  return control::decode_accepted(body);
}

Result<void> HttpPeer::delete_pool(const std::string& pool, const std::string& uuid,
                                   Deadline deadline) {
  PERDURE_TRY_VOID(control::validate_pool_name(pool));
  const std::string asked = encode(control::Deletion{uuid});
  PERDURE_TRY(body, change(at_, {"POST", pool_path(pool, "/delete"), asked}, deadline));
  return control::decode_accepted(body);
}

Result<void> HttpPeer::check_deletion(const std::string& pool, const std::string& uuid,
                                      Deadline deadline) {
  PERDURE_TRY_VOID(control::validate_pool_name(pool));
  const std::string asked = encode(control::Deletion{uuid, true});
  PERDURE_TRY(body, call(at_, {"POST", pool_path(pool, "/delete"), asked}, deadline));
  return control::decode_accepted(body);
}

Result<void> HttpPeer::fence(const std::string& pool, Epoch epoch, Deadline deadline) {
  PERDURE_TRY_VOID(control::validate_pool_name(pool));
  PERDURE_TRY(
      body, call(at_, {"POST", pool_path(pool, "/fence"), control::encode_fence(epoch)}, deadline));
  return control::decode_accepted(body);
}

Result<Session> HttpPeer::open_session(const control::SessionRequest& request, Deadline deadline) {
  PERDURE_TRY_VOID(validate(request));
  for (;;) {
    PERDURE_TRY(device, session_device(deadline));
    bool not_reached = false;
    auto session = open_over(*device, request, deadline, not_reached);
    if (session.ok()) {
      const MutexLock lock(mutex_);
      if (device_ == device) proved_ = true;
      return session;
    }
    if (!not_reached) return session;
    if (give_up(*device, session.error())) continue;
    if (choose_ == nullptr || device->transport() != Transport::Shm) return session;
    // What the caller has registered is this device's: it can not be exchanged below him.
    return Error{session.code(),
                 fmt::format("{}; it was reached over shared memory before: if it runs in another "
                             "container now, open this again to use another transport",
                             session.error().message)};
  }
}

/// Whether another device is to be chosen instead of one over which the peer was not reached.
bool HttpPeer::give_up(const fabric::Device& device, const Error& error) {
  const MutexLock lock(mutex_);
  // Only shared memory is concluded from circumstances (the same boot of a host), which containers
  // share; and only what nobody has used yet can be changed.
  const bool changeable = choose_ != nullptr && !proved_ && device_.get() == &device;
  if (!changeable || device.transport() != Transport::Shm) return false;
  refused_.push_back(device.transport());
  device_ = nullptr;
  fallback_ = fmt::format(
      "{} runs on this host, but shared memory does not reach it ({}); is it in "
      "another container? Another transport is taken",
      address_, error.message);
  log_message(Severity::Warning, fallback_);
  return true;
}

std::string HttpPeer::fallback() const {
  const MutexLock lock(mutex_);
  return fallback_;
}

/// `not_reached`: the session was granted, and connecting to it failed.
Result<Session> HttpPeer::open_over(fabric::Device& device, const control::SessionRequest& request,
                                    Deadline deadline, bool& not_reached) {
  for (;;) {
    PERDURE_TRY(grant, ask_for_session(request, device.transport(), deadline));
    // An RNIC's connection manager repeats a message that was lost after 4 s (librdmacm's response
    // time-out, 4.096 us * 2^20). Another session takes less time.
    const Nanoseconds left = deadline.left();
    const StoppableClock clock(Clock::monotonic(), deadline);
    const Deadline soon = clock.after(std::min(left, std::max(left / 2, kConnectWithinMin)));
    auto session = connect_session(grant, data_address(grant.address), device, endpoints_, soon);
    if (session) return session;
    const Deadline back = deadline.left() < kTakeBackAtLeast ? Deadline::after(kTakeBackAtLeast)
                                                             : deadline.within(kTakeBackWithin);
    (void)close_session(grant.session, control::Left::NotKnown, back);
    not_reached = session.code() != ErrorCode::TimedOut;
    if (not_reached || deadline.passed()) return session;
  }
}

Result<control::SessionGrant> HttpPeer::ask_for_session(const control::SessionRequest& request,
                                                        Transport transport, Deadline deadline) {
  control::SessionAsk ask;
  ask.request = request;
  ask.transport = transport;
  PERDURE_TRY(body,
              call(at_, {"POST", pool_path(request.pool, "/sessions"), encode(ask)}, deadline));
  return control::decode_grant(body);
}

Result<control::SessionDescription> HttpPeer::describe_session(std::uint64_t id,
                                                               Deadline deadline) {
  PERDURE_TRY(body, call(at_, {"GET", "/v1/sessions/" + control::hexadecimal(id), ""}, deadline));
  return control::decode_session(body);
}

Result<void> HttpPeer::close_session(std::uint64_t id, control::Left left, Deadline deadline) {
  const std::string path = "/v1/sessions/" + control::hexadecimal(id);
  const bool all_durable = left == control::Left::AllDurable;
  PERDURE_TRY(body, call(at_,
                         all_durable ? control::HttpRequest{"POST", path + "/close", ""}
                                     : control::HttpRequest{"DELETE", path, ""},
                         deadline));
  return control::decode_accepted(body);
}

/// A data plane that listens everywhere is reached where the control plane was.
std::string HttpPeer::data_address(const std::string& granted) const {
  const auto at = control::parse_host_port(granted);
  if (!at.ok() || !control::is_wildcard(at->host)) return granted;
  return to_string(control::HostPort{at_.host, at->port});
}

}  // namespace perdure::client
