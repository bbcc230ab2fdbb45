// One end of a connection over shared memory: a requester, a responder, and the socket.
#pragma once

#include "core/forks.h"
#include "fabric/fabric.h"
#include "fabric/shm/handshake.h"
#include "fabric/shm/initiator.h"
#include "fabric/shm/target.h"

#include <string>

namespace perdure::fabric::shm {

class ShmEndpoint final : public Endpoint {
 public:
  /// `side`: 0 for the one that connected, 1 for the one that accepted.
  ShmEndpoint(std::size_t side, Descriptor socket, Mapping memory, std::shared_ptr<KeyTable> keys,
              const EndpointOptions& options);
  ~ShmEndpoint() override;

  Result<std::size_t> post(std::span<const WorkRequest> requests) override;
  Result<void> post_receive(const Segment& buffer, std::uint64_t context) override;
  std::size_t poll(std::span<Completion> completions) override;
  bool arm() override;
  int wait_fd() const override { return socket_.number(); }
  bool connected() const override { return !lost_; }
  std::string lost_reason() const override { return lost_reason_; }
  void disconnect() override;
  CutSwitch cut_switch() override { return {socket_.number(), &cut_}; }
  const Limits& limits() const override { return limits_; }
  Transport transport() const override { return Transport::Shm; }
  Capabilities capabilities() const override { return Capabilities{.atomic_write = true}; }

 private:
  std::size_t report(std::span<Completion> completions);
  bool advance();
  void look_when_due();
  void look_at_socket();
  void wake_peer();
  void lose(const std::string& reason);

  Descriptor socket_;
  std::atomic<bool> cut_{false};
  Mapping memory_;
  Limits limits_;
  std::atomic<std::uint32_t>& own_sleeping_;
  std::atomic<std::uint32_t>& peer_sleeping_;
  Initiator initiator_;
  Target target_;
  bool armed_ = false;
  bool lost_ = false;
  const std::uint32_t made_in_ = forks_so_far();
  std::string lost_reason_;
  std::uint32_t empty_polls_ = 0;
  Nanoseconds looked_{0};
};

}  // namespace perdure::fabric::shm
