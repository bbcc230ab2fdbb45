// LocalPeer: a PeerService in this process as a Peer. Sessions still run over a fabric: that of a
// device on the requester's side, whose peer is the service's device of the same transport.
#pragma once

#include <string>

#include "client/peer.h"
#include "server/service.h"

namespace perdure::test {

class LocalPeer final : public client::Peer {
 public:
  /// Requires  service and device outlive the peer. Without threads in the service, something that
  ///           runs while the device connects must call service.pump() (an actor of the emulated
  ///           world).
  LocalPeer(std::string name, server::PeerService& service, fabric::Device& device)
      : name_(std::move(name)), service_(service), device_(device) {}

  std::string name() const override { return name_; }
  fabric::Device& device() override { return device_; }

  Result<std::vector<control::PoolDescription>> list(Deadline) override { return service_.list(); }
  Result<control::PoolDescription> describe(const std::string& pool, Deadline) override {
    return service_.describe(pool);
  }
  Result<control::PoolDescription> create(const control::PoolRequest& request, Deadline) override {
    return service_.create(request);
  }
  Result<client::Session> open_session(const control::SessionRequest& request,
                                       Deadline deadline) override;
  Result<void> close_session(std::uint64_t id, control::Left left, Deadline) override {
    return service_.close_session(id, left);
  }
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline) override {
    return service_.fence(pool, epoch);
  }

 private:
  const std::string name_;
  server::PeerService& service_;
  fabric::Device& device_;
};

}  // namespace perdure::test
