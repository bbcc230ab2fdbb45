// CommandPeer: an rpmemd that ssh runs, as a Peer: its control plane is the command's standard
// input and output.
#pragma once

#include "client/peer.h"
#include "rpmem/channel.h"
#include "rpmem/control.h"
#include "rpmem/remote_command.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::rpmem {

/// Threads: one caller at a time.
class CommandPeer final : public client::Peer {
 public:
  struct Choice {
    bool rdma = true;                    // whether an RNIC is looked for
    std::optional<Transport> transport;  // this one and no other
  };

  /// Runs the command and waits for its hello. Errors: NotFound (no ssh), Disconnected (ssh or the
  /// command ended; the message has its words), TimedOut, ProtocolError, VersionMismatch.
  static Result<std::unique_ptr<CommandPeer>> start(const RemoteShell& shell, const Target& target,
                                                    const Choice& choice, const Deadline& deadline);

  /// One request. Errors: the daemon's; those of Channel, with what ssh says. After one of the
  /// latter it may or may not have been done, and every later request is Disconnected: an answer
  /// that comes late would be taken for the answer to that.
  Result<std::string> ask(FrameKind kind, std::string body, const Deadline& deadline);
  /// Every request has been answered.
  bool in_step() const { return in_step_; }
  /// Why an answer of the daemon's could not be read, as an error of the protocol.
  Error unreadable(const Error& error) const;
  /// Closes the pool at the target and ends the command. Errors: those of ask.
  Result<void> end(bool remove_created, const Deadline& deadline);

  std::string name() const override { return name_; }
  fabric::Device& device() override { return *device_; }
  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override;
  Result<void> close_session(std::uint64_t id, control::Left left, Deadline deadline) override;

  // What a target has no use for.
  Result<std::vector<control::PoolDescription>> list(Deadline deadline) override;
  Result<control::PoolDescription> describe(const std::string& pool, Deadline deadline) override;
  Result<control::PoolDescription> create(const control::PoolRequest& request,
                                          Deadline deadline) override;
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) override;

 private:
  CommandPeer(std::string name, const Choice& choice, std::unique_ptr<RemoteCommand> command);
  Result<void> hear_hello(const Deadline& deadline);
  /// `connect_within`: of the time to the deadline, how much the data plane may take.
  Result<client::Session> open_over(Transport transport, const control::SessionRequest& request,
                                    Deadline deadline, Nanoseconds connect_within);
  std::vector<Transport> candidates() const;
  Error with_complaint(const Error& error) const;
  Error out_of_step() const;

  const std::string name_;
  const Choice choice_;
  std::unique_ptr<RemoteCommand> command_;
  Channel channel_;
  bool in_step_ = true;
  bool same_host_ = false;
  std::shared_ptr<fabric::Device> device_;
};

}  // namespace perdure::rpmem
