// What is asked of an rpmemd, however its frames travel: see target_peer.h.
#include "rpmem/target_peer.h"

#include "client/connect_session.h"
#include "client/dial.h"
#include "control/json_codec.h"
#include "core/try.h"

namespace perdure::rpmem {
namespace {

Error no_such_request() {
  return {ErrorCode::Unsupported, "an rpmemd has one pool, and is not asked for others"};
}

}  // namespace

Error TargetPeer::unreadable(const Error& error) const {
  const bool other = error.code == ErrorCode::VersionMismatch;
  return with_complaint({other ? error.code : ErrorCode::ProtocolError, error.message});
}

Result<client::Session> TargetPeer::open_over(fabric::Device& device,
                                              const control::SessionRequest& request,
                                              Deadline deadline, Nanoseconds connect_within) {
  control::SessionAsk wanted;
  wanted.request = request;
  wanted.transport = device.transport();
  PERDURE_TRY(body, ask(FrameKind::Session, control::encode(wanted), deadline));
  const auto grant = control::decode_grant(body);
  if (!grant) return unreadable(grant.error());
  auto session = client::connect_session(
      *grant, grant->address, device, client::default_endpoints(), deadline.within(connect_within));
  if (!session.ok()) (void)close_session(grant->session, control::Left::NotKnown, deadline);
  return session;
}

/// The pool goes with the session: there is no next writer to whom it matters what was left.
Result<void> TargetPeer::close_session(std::uint64_t id, control::Left, Deadline deadline) {
  PERDURE_TRY(body, ask(FrameKind::EndSession, encode_session_end(id), deadline));
  return control::decode_accepted(body);
}

Result<std::vector<control::PoolDescription>> TargetPeer::list(Deadline) {
  return no_such_request();
}
Result<control::PoolDescription> TargetPeer::describe(const std::string&, Deadline) {
  return no_such_request();
}
Result<control::PoolDescription> TargetPeer::create(const control::PoolRequest&, Deadline) {
  return no_such_request();
}
Result<void> TargetPeer::fence(const std::string&, Epoch, Deadline) { return no_such_request(); }

}  // namespace perdure::rpmem
