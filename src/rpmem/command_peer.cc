// An rpmemd that ssh runs, as a Peer: see command_peer.h.
#include "rpmem/command_peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "control/json_codec.h"
#include "core/try.h"
#include "fabric/open_device.h"

namespace perdure::rpmem {
namespace {

constexpr Nanoseconds kTryWithin = std::chrono::seconds(5);  // a transport, where others follow

}  // namespace

CommandPeer::CommandPeer(std::string name, const Choice& choice,
                         std::unique_ptr<RemoteCommand> command)
    : name_(std::move(name)),
      choice_(choice),
      command_(std::move(command)),
      channel_(command_->descriptor(), command_->descriptor()) {}

Result<std::unique_ptr<CommandPeer>> CommandPeer::start(const RemoteShell& shell,
                                                        const Target& target, const Choice& choice,
                                                        const Deadline& deadline) {
  PERDURE_TRY(command, RemoteCommand::start(ssh_arguments(shell, target, shell.command)));
  std::unique_ptr<CommandPeer> peer(new CommandPeer(target.host, choice, std::move(command)));
  PERDURE_TRY_VOID(peer->hear_hello(deadline));
  return peer;
}

Result<void> CommandPeer::hear_hello(const Deadline& deadline) {
  const auto frame = channel_.receive(deadline);
  if (!frame) return with_complaint(frame.error());
  if (frame->kind == FrameKind::Refused) {
    return with_complaint(control::decode_error(frame->body));
  }
  if (frame->kind != FrameKind::Hello) {
    return with_complaint({ErrorCode::ProtocolError, "it did not begin with a hello"});
  }
  const auto hello = decode_hello(frame->body);
  if (!hello) return unreadable(hello.error());
  same_host_ = hello->host == control::host_identity();
  return {};
}

Error CommandPeer::with_complaint(const Error& error) const {
  const std::string complaint = command_->complaint();
  return {error.code, fmt::format("target {}: {}{}", name_, error.message,
                                  complaint.empty() ? "" : "; it says: " + complaint)};
}

Error CommandPeer::out_of_step() const {
  return with_complaint({ErrorCode::Disconnected, "it owes the answer to an earlier request"});
}

Result<std::string> CommandPeer::ask(FrameKind kind, std::string body, const Deadline& deadline) {
  if (!in_step_) return out_of_step();
  in_step_ = false;
  const auto sent = channel_.send({kind, std::move(body)}, deadline);
  if (!sent) return with_complaint(sent.error());
  auto answer = channel_.receive(deadline);
  if (!answer) return with_complaint(answer.error());
  if (answer->kind != FrameKind::Done && answer->kind != FrameKind::Refused) {
    return with_complaint({ErrorCode::ProtocolError, "it answered with a frame that is no answer"});
  }
  in_step_ = true;
  if (answer->kind == FrameKind::Done) return std::move(answer->body);
  const Error error = control::decode_error(answer->body);
  return Error{error.code, fmt::format("target {}: {}", name_, error.message)};
}

Result<void> CommandPeer::end(bool remove_created, const Deadline& deadline) {
  if (!in_step_) {
    // It may do it all the same, but what it answers is not told from an earlier answer.
    (void)channel_.send({FrameKind::Close, encode_close(remove_created)}, deadline);
    (void)command_->wait(deadline);
    return out_of_step();
  }
  PERDURE_TRY_VOID(ask(FrameKind::Close, encode_close(remove_created), deadline));
  PERDURE_TRY_VOID(command_->finish(deadline));
  return {};
}

/// Shared memory on the same host, else an RNIC that both have, else tcp.
std::vector<Transport> CommandPeer::candidates() const {
  if (choice_.transport) return {*choice_.transport};
  std::vector<Transport> all;
  if (same_host_) all.push_back(Transport::Shm);
  if (choice_.rdma) {
    for (const Transport each : {Transport::InfiniBand, Transport::Roce, Transport::Iwarp}) {
      if (fabric::open_device(each).ok()) all.push_back(each);
    }
  }
  all.push_back(Transport::Tcp);
  return all;
}

/// Once a transport has worked it stays: memory is registered with its device.
Result<client::Session> CommandPeer::open_session(const control::SessionRequest& request,
                                                  Deadline deadline) {
  if (device_ != nullptr) {
    return open_with(device_->transport(), request, deadline, deadline.left());
  }
  const auto candidates = this->candidates();
  for (const Transport transport : candidates) {
    const bool last = transport == candidates.back();
    const Nanoseconds within = last ? deadline.left() : kTryWithin;
    auto session = open_with(transport, request, deadline, within);
    if (session.ok() || last || !in_step_) return session;
    // What the pool says is the same over every transport.
    const ErrorCode code = session.code();
    const bool other_way = code == ErrorCode::Unsupported || code == ErrorCode::Disconnected ||
                           code == ErrorCode::TimedOut || code == ErrorCode::SystemError;
    if (!other_way) return session;
  }
  return Error{ErrorCode::Unsupported, "no transport"};
}

Result<client::Session> CommandPeer::open_with(Transport transport,
                                               const control::SessionRequest& request,
                                               Deadline deadline, Nanoseconds connect_within) {
  std::shared_ptr<fabric::Device> device = device_;
  if (device == nullptr) {
    PERDURE_TRY(opened, fabric::open_device(transport));
    device = std::move(opened);
  }
  auto session = open_over(*device, request, deadline, connect_within);
  if (session.ok()) device_ = std::move(device);
  return session;
}

}  // namespace perdure::rpmem
