// HttpPeer: a perdured somewhere, through its control plane.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "client/peer.h"
#include "control/host_port.h"
#include "control/http_client.h"
#include "control/service_types.h"
#include "core/mutex.h"

namespace perdure::client {

/// Errors of all calls, besides those of peer.h: what makes, opens, closes or deletes a pool and
/// was sent but not answered is OutcomeUnknown. TimedOut and Disconnected of the calls for sessions
/// and fences leave open whether the peer executed them. Every request may be repeated.
class HttpPeer final : public Peer {
 public:
  /// The device for a peer that has said what it offers. `refused`: the transports of devices that
  /// it chose before and over which the peer could not be reached.
  using ChooseDevice = std::function<Result<std::shared_ptr<fabric::Device>>(
      const control::ServiceDescription&, const std::vector<Transport>& refused)>;

  /// `address` is that of the control plane, "host:port". Sessions run over `device`, whose
  /// transport the peer must offer. Nothing is sent yet. Errors: InvalidArgument (the address).
  static Result<std::unique_ptr<HttpPeer>> open(const std::string& address,
                                                std::shared_ptr<fabric::Device> device);
  /// The same over a device that is chosen when the first session is opened, for then the peer
  /// answers. open_session has the errors of `choose`. When shared memory is chosen and the peer
  /// can not be reached over it (it runs in another container of this host), `choose` is asked
  /// again: see fallback().
  static Result<std::unique_ptr<HttpPeer>> open_choosing(const std::string& address,
                                                         ChooseDevice choose);

  /// What a perdured says of itself: which transports it offers, and whether it runs on this host
  /// (see host_identity). Errors: those of all calls.
  static Result<control::ServiceDescription> probe(const std::string& address, Deadline deadline);

  /// Of the connections of sessions that are opened afterwards. Before the peer is shared between
  /// threads.
  void use_endpoints(const fabric::EndpointOptions& endpoints) { endpoints_ = endpoints; }

  std::string name() const override { return address_; }
  fabric::Device& device() override;

  Result<std::vector<control::PoolDescription>> list(Deadline deadline) override;
  Result<control::PoolDescription> describe(const std::string& pool, Deadline deadline) override;
  Result<control::PoolDescription> create(const control::PoolRequest& request,
                                          Deadline deadline) override;
  Result<Session> open_session(const control::SessionRequest& request, Deadline deadline) override;
  Result<void> close_session(std::uint64_t id, control::Left left, Deadline deadline) override;
  Result<void> fence(const std::string& pool, Epoch epoch, Deadline deadline) override;

  /// Why sessions do not run over the transport that was chosen first; empty: they do.
  std::string fallback() const;

  /// Beyond Peer: see PeerService.
  Result<control::PoolDescription> open_pool(const std::string& pool, Deadline deadline);
  Result<void> close_pool(const std::string& pool, Deadline deadline);
  Result<void> delete_pool(const std::string& pool, const std::string& uuid, Deadline deadline);
  /// Whether delete_pool would be refused now; changes nothing. Errors: those of delete_pool;
  /// InvalidArgument: a daemon of an older version, which can not tell.
  Result<void> check_deletion(const std::string& pool, const std::string& uuid, Deadline deadline);
  Result<control::SessionDescription> describe_session(std::uint64_t id, Deadline deadline);

 private:
  HttpPeer(std::string address, control::HostPort at, std::shared_ptr<fabric::Device> device,
           ChooseDevice choose)
      : address_(std::move(address)),
        at_(std::move(at)),
        choose_(std::move(choose)),
        device_(std::move(device)) {}

  Result<std::shared_ptr<fabric::Device>> session_device(Deadline deadline);
  Result<Session> open_over(fabric::Device& device, const control::SessionRequest& request,
                            Deadline deadline, bool& not_reached);
  bool give_up(const fabric::Device& device, const Error& error);
  Result<control::SessionGrant> ask_for_session(const control::SessionRequest& request,
                                                Transport transport, Deadline deadline);
  std::string data_address(const std::string& granted) const;

  const std::string address_;
  const control::HostPort at_;
  const ChooseDevice choose_;  // empty: device_ was given
  fabric::EndpointOptions endpoints_;
  mutable Mutex mutex_;
  /// Once a session has been opened over it, it stays: callers register memory with it.
  std::shared_ptr<fabric::Device> device_ PERDURE_GUARDED_BY(mutex_);
  bool proved_ PERDURE_GUARDED_BY(mutex_) = false;  // a session has been opened over it
  std::vector<Transport> refused_ PERDURE_GUARDED_BY(mutex_);
  std::string fallback_ PERDURE_GUARDED_BY(mutex_);
};

}  // namespace perdure::client
