// The pool of one client in the hands of rpmemd: see pool_host.h.
#include "rpmem/pool_host.h"

#include <fmt/format.h>
#include <poll.h>

#include <cstring>
#include <utility>

#include "control/host_port.h"
#include "core/log_message.h"
#include "core/random.h"
#include "core/try.h"
#include "fabric/open_device.h"
#include "pmem/lent_region.h"
#include "pmem/pool.h"

namespace perdure::rpmem {
namespace {

// One writer, and the session that it had before.
constexpr std::size_t kSessionsMax = 4;
// Its client says how long an opening may take: RemotePoolOptions::connect_within.
constexpr Nanoseconds kGrantedFor = std::chrono::minutes(2);

Uuid16 draw_uuid() {
  Uuid16 uuid;
  const std::uint64_t halves[] = {random_secret(), random_secret()};
  std::memcpy(uuid.data(), halves, sizeof halves);
  uuid[6] = (uuid[6] & std::byte{0x0f}) | std::byte{0x40};  // RFC 4122, version 4
  uuid[8] = (uuid[8] & std::byte{0x3f}) | std::byte{0x80};
  return uuid;
}

/// The rpmemd of a client that crashed a moment ago may not have ended yet.
Result<PartSet> open_parts(const SetFile& set, std::uint64_t bytes_min, Nanoseconds busy_within) {
  constexpr int kAskEveryMs = 10;
  const Deadline deadline = Deadline::after(busy_within);
  for (;;) {
    auto opened = PartSet::open(set, bytes_min);
    if (opened.ok() || opened.code() != ErrorCode::Busy || deadline.passed()) return opened;
    (void)::poll(nullptr, 0, kAskEveryMs);
  }
}

}  // namespace

Frame PoolHost::handle(const Frame& request) {
  auto answered = answer(request);
  if (answered.ok()) return {FrameKind::Done, std::move(answered).value()};
  const bool opens = request.kind == FrameKind::Create || request.kind == FrameKind::Open;
  if (opens) log_message(Severity::Error, "a client gets no pool: " + answered.error().message);
  return {FrameKind::Refused, control::encode(answered.error())};
}

Result<std::string> PoolHost::answer(const Frame& request) {
  switch (request.kind) {
    case FrameKind::Create: {
      PERDURE_TRY(ask, decode_pool_ask(request.body));
      PERDURE_TRY(made, create(ask));
      return encode(made);
    }
    case FrameKind::Open: {
      PERDURE_TRY(ask, decode_pool_ask(request.body));
      PERDURE_TRY(opened, open(ask));
      return encode(opened);
    }
    case FrameKind::Session: {
      PERDURE_TRY(ask, control::decode_session_ask(request.body, kPoolName));
      PERDURE_TRY(grant, open_session(ask));
      return control::encode(grant);
    }
    case FrameKind::EndSession: {
      PERDURE_TRY(session, decode_session_end(request.body));
      PERDURE_TRY_VOID(end_session(session));
      return control::encode_accepted();
    }
    case FrameKind::SetAttributes: {
      PERDURE_TRY(attributes, decode_attributes(request.body));
      PERDURE_TRY_VOID(set_attributes(attributes));
      return control::encode_accepted();
    }
    case FrameKind::Close: {
      PERDURE_TRY(remove_created, decode_close(request.body));
      PERDURE_TRY_VOID(close(remove_created));
      return control::encode_accepted();
    }
    case FrameKind::Hello:
    case FrameKind::Done:
    case FrameKind::Refused: break;
  }
  return Error{ErrorCode::ProtocolError, "a frame that no client sends"};
}

Result<PoolAnswer> PoolHost::create(const PoolAsk& ask) {
  if (parts_ != nullptr) return Error{ErrorCode::Busy, "this rpmemd has its pool already"};
  PERDURE_TRY(set, read_set(options_.directories, ask.set));
  PERDURE_TRY(parts, PartSet::create(set, ask.attributes, ask.bytes, draw_uuid));
  created_ = true;
  auto served = serve(std::move(parts), ask);
  if (served.ok()) return served;
  if (parts_ != nullptr) (void)parts_->remove_files();  // nothing of it was ever used
  parts_.reset();
  created_ = false;
  return served;
}

Result<PoolAnswer> PoolHost::open(const PoolAsk& ask) {
  if (parts_ != nullptr) return Error{ErrorCode::Busy, "this rpmemd has its pool already"};
  PERDURE_TRY(set, read_set(options_.directories, ask.set));
  PERDURE_TRY(parts, open_parts(set, ask.bytes, options_.busy_within));
  auto served = serve(std::move(parts), ask);
  if (!served.ok()) parts_.reset();
  return served;
}

Result<PoolAnswer> PoolHost::serve(PartSet parts, const PoolAsk& ask) {
  parts_ = std::make_unique<PartSet>(std::move(parts));
  PERDURE_TRY_VOID(parts_->note_client(ask.client, ask.again));
  if (options_.map) {
    PERDURE_TRY(region, options_.map(*parts_));
    region_ = std::move(region);
  } else {
    PERDURE_TRY(region, PartRegion::map(*parts_, options_.region));
    region_ = std::move(region);
  }
  return PoolAnswer{parts_->set().pool_bytes(), parts_->attributes()};
}

Result<void> PoolHost::require_pool() const {
  if (region_ != nullptr && !closed_) return {};
  return Error{ErrorCode::InvalidArgument, "there is no pool: create or open one first"};
}

Result<std::shared_ptr<fabric::Device>> PoolHost::open_device(Transport transport) const {
  if (options_.open_device) return options_.open_device(transport);
  PERDURE_TRY(device, fabric::open_device(transport, options_.rnic));
  return std::shared_ptr<fabric::Device>(std::move(device));
}

/// Over one transport at a time; it changes when the client can not be reached over the first.
Result<void> PoolHost::offer(Transport transport) {
  if (device_ != nullptr && device_->transport() == transport) return {};
  service_.reset();
  device_.reset();
  PERDURE_TRY(device, open_device(transport));
  server::ServiceOptions options = options_.service;
  options.sessions_max = kSessionsMax;
  options.connect_within = kGrantedFor;
  server::DataPlane plane;
  plane.device = device.get();
  if (transport == Transport::Tcp && !options_.listen_host.empty()) {
    plane.listen = control::to_string(control::HostPort{options_.listen_host, 0});
  }
  PERDURE_TRY(service, server::PeerService::open(std::move(options), {plane}));
  pmem::PoolOptions shape;
  shape.name = kPoolName;
  shape.kind = "rpmem";
  PERDURE_TRY(pool, pmem::Pool::format(std::make_unique<pmem::LentRegion>(*region_), shape));
  PERDURE_TRY_VOID(service->add_pool(kPoolName, std::move(pool)));
  device_ = std::move(device);
  service_ = std::move(service);
  return {};
}

Result<control::SessionGrant> PoolHost::open_session(const control::SessionAsk& ask) {
  PERDURE_TRY_VOID(require_pool());
  PERDURE_TRY_VOID(region_->check());
  PERDURE_TRY_VOID(offer(ask.transport.value_or(Transport::Tcp)));
  auto granted = service_->open_session(ask.request, ask.transport);
  granted_ = granted_ || granted.ok();
  return granted;
}

Result<void> PoolHost::end_session(std::uint64_t session) {
  PERDURE_TRY_VOID(require_pool());
  if (service_ == nullptr) return {};
  return service_->close_session(session);
}

void PoolHost::remove_unused() {
  if (created_ && !granted_ && !closed_) (void)close(true);
}

void PoolHost::abandon() {
  if (service_ != nullptr) service_->abandon();
}

Result<void> PoolHost::set_attributes(const PoolAttributes& attributes) {
  PERDURE_TRY_VOID(require_pool());
  return parts_->set_attributes(attributes);
}

Result<void> PoolHost::close(bool remove_created) {
  PERDURE_TRY_VOID(require_pool());
  service_.reset();
  device_.reset();
  region_.reset();
  closed_ = true;
  if (remove_created && created_) return parts_->remove_files();
  return {};
}

}  // namespace perdure::rpmem
