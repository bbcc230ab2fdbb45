// TargetPeer: the rpmemd of one client, as a Peer and for what is asked of it besides. How its
// frames travel is CommandPeer's business (command_peer.h), or that of a world in a test.
#pragma once

#include <perdure/result.h>

#include "client/peer.h"
#include "rpmem/control.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace perdure::rpmem {

/// Threads: one caller at a time.
class TargetPeer : public client::Peer {
 public:
  /// One request. Errors: the daemon's; those of the way there. After one of the latter it may or
  /// may not have been done, and every later request is Disconnected: an answer that comes late
  /// would be taken for the answer to that.
  virtual Result<std::string> ask(FrameKind kind, std::string body, const Deadline& deadline) = 0;
  /// Every request has been answered.
  virtual bool in_step() const = 0;
  /// Closes the pool at the target and ends the daemon. Errors: those of ask.
  virtual Result<void> end(bool remove_created, const Deadline& deadline) = 0;

  /// Why an answer of the daemon's could not be read, as an error of the protocol.
  Error unreadable(const Error& error) const;

  Result<void> close_session(std::uint64_t id, control::Left left, Deadline deadline) override;

  // What a target has no use for.
  Result<std::vector<control::PoolDescription>> list(Deadline deadline) override;
  Result<control::PoolDescription> describe(const std::string& pool, Deadline deadline) override;
  Result<control::PoolDescription> create(const control::PoolRequest& request,
                                          Deadline deadline) override;
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) override;

 protected:
  /// The same error, with what the way there has to say to it.
  virtual Error with_complaint(const Error& error) const = 0;
  /// A session over this device. `connect_within`: of the time to the deadline, how much the data
  /// plane may take.
  Result<client::Session> open_over(fabric::Device& device, const control::SessionRequest& request,
                                    Deadline deadline, Nanoseconds connect_within);
};

/// Begins an rpmemd for this client. Errors: those of CommandPeer::start.
using StartTarget = std::function<Result<std::unique_ptr<TargetPeer>>(const Deadline&)>;

}  // namespace perdure::rpmem
