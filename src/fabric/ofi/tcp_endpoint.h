// One connection of the tcp provider: an FI_EP_MSG endpoint with an event queue and a completion
// queue of its own, so that connections share nothing but their domain. Setting up: tcp_device.cc.
#pragma once

#include <rdma/fi_cm.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include "core/forks.h"
#include "fabric/fabric.h"
#include "fabric/ofi/domain.h"
#include "fabric/ofi/tcp_request_ring.h"

#include <array>
#include <string>

namespace perdure::fabric::ofi {

class TcpEndpoint final : public Endpoint {
 public:
  /// An endpoint ready to connect or, where `info` came with a request, to accept it.
  static Result<std::unique_ptr<TcpEndpoint>> open(std::shared_ptr<Domain> domain, fi_info* info,
                                                   const EndpointOptions& options,
                                                   std::string peer);
  ~TcpEndpoint() override;

  Result<void> connect(const void* address, std::span<const std::byte> private_data,
                       Deadline deadline);
  Result<void> accept(Deadline deadline);

  Result<std::size_t> post(std::span<const WorkRequest> requests) override;
  Result<void> post_receive(const Segment& buffer, std::uint64_t context) override;
  std::size_t poll(std::span<Completion> completions) override;
  bool arm() override;
  int wait_fd() const override { return wait_fd_; }
  bool connected() const override { return !lost_; }
  std::string lost_reason() const override { return lost_reason_; }
  void disconnect() override;
  CutSwitch cut_switch() override { return {socket_, nullptr}; }
  const Limits& limits() const override { return limits_; }
  Transport transport() const override { return Transport::Tcp; }
  Capabilities capabilities() const override { return {}; }

 private:
  TcpEndpoint(std::shared_ptr<Domain> domain, const EndpointOptions& options, std::string peer);

  Result<void> wait_connected(Deadline deadline);
  void warn_of_libfabric() const;
  bool post_message(const WorkRequest& message);
  bool post_access(const WorkRequest& request);
  bool fill_in_access(const WorkRequest& request);
  void name_access(const WorkRequest& request, std::size_t length, void* context);
  Result<std::size_t> post_several(std::span<const WorkRequest> requests);
  Result<std::size_t> post_any(std::span<const WorkRequest> requests);
  bool issue(const WorkRequest& request);
  bool issue_held();
  std::int64_t issue_message(const WorkRequest& request, void* context, std::uint64_t flags);
  std::int64_t issue_access(const WorkRequest& request, void* context, std::uint64_t flags);
  void progress();
  void take(std::uint64_t tag, std::uint64_t flags, std::uint64_t length, std::uint64_t data);
  std::size_t report(std::span<Completion> completions);
  bool peer_left();
  void lose(const std::string& reason);
  void lose_by(std::int64_t returned);
  void find_socket();
  void drain();

  std::shared_ptr<Domain> domain_;
  Fid<fid_eq> events_;
  Fid<fid_cq> queue_;
  Fid<fid_ep> endpoint_;
  int wait_fd_ = -1;
  int socket_ = -1;  // the provider's, for options and the cut switch; -1: not found
  Limits limits_;
  // Up to this size the provider copies the bytes into its own entry (FI_INJECT).
  std::size_t inject_bytes_max_;
  std::string peer_;  // for messages
  bool lost_ = false;
  const std::uint32_t made_in_ = forks_so_far();
  std::string lost_reason_;
  bool watch_events_ = false;  // look for the end of the connection at the next poll
  std::uint32_t empty_polls_ = 0;

  TcpRequestRing requests_;
  // What the provider is handed with each request, but for what changes.
  std::array<iovec, kSegmentsMax> pieces_{};
  fi_rma_iov target_{};
  fi_msg message_{};
  fi_msg_rma access_{};

  std::vector<std::uint64_t> receives_;  // contexts of posted receives, a ring in posting order
  std::uint64_t receives_taken_ = 0;
  std::uint64_t receives_posted_ = 0;
  std::vector<Completion> arrived_;  // receives completed and not reported yet, a ring
  std::uint64_t arrived_reported_ = 0;
  std::uint64_t arrived_count_ = 0;
};

}  // namespace perdure::fabric::ofi
