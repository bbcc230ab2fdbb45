// CommandPeer: an rpmemd that ssh runs, as a TargetPeer: its control plane is the command's
// standard input and output.
#pragma once

#include "rpmem/channel.h"
#include "rpmem/remote_command.h"
#include "rpmem/target_peer.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace perdure::rpmem {

/// Threads: one caller at a time.
class CommandPeer final : public TargetPeer {
 public:
  struct Choice {
    bool rdma = true;                    // whether an RNIC is looked for
    std::optional<Transport> transport;  // this one and no other
  };

  /// Runs the command and waits for its hello. Errors: NotFound (no ssh), Disconnected (ssh or the
  /// command ended; the message has its words), TimedOut, ProtocolError, VersionMismatch.
  static Result<std::unique_ptr<CommandPeer>> start(const RemoteShell& shell, const Target& target,
                                                    const Choice& choice, const Deadline& deadline);

  /// Errors of the way there: those of Channel, with what ssh says.
  Result<std::string> ask(FrameKind kind, std::string body, const Deadline& deadline) override;
  bool in_step() const override { return in_step_; }
  Result<void> end(bool remove_created, const Deadline& deadline) override;

  std::string name() const override { return name_; }
  fabric::Device& device() override { return *device_; }
  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override;

 private:
  CommandPeer(std::string name, const Choice& choice, std::unique_ptr<RemoteCommand> command);
  Result<void> hear_hello(const Deadline& deadline);
  Result<client::Session> open_with(Transport transport, const control::SessionRequest& request,
                                    Deadline deadline, Nanoseconds connect_within);
  std::vector<Transport> candidates() const;
  Error with_complaint(const Error& error) const override;
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
