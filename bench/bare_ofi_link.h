// One process's side of a bare libfabric connection: opening, posting, waiting.
#pragma once

#include "bare_ofi.h"

#ifdef PERDURE_WITH_LIBFABRIC
#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_rma.h>

#include "core/clock.h"

#include <array>
#include <memory>
#include <span>
#include <string>

namespace perdure::bench {

struct CloseBareFid {
  template <typename Object>
  void operator()(Object* object) const {
    ::fi_close(&object->fid);
  }
};
template <typename Object>
using BareFid = std::unique_ptr<Object, CloseBareFid>;

inline constexpr std::size_t kReplyBytes = 24;
inline constexpr std::size_t kReceivesPosted = 64;
inline constexpr Nanoseconds kBarePatience = std::chrono::seconds(10);

class BareLink {
 public:
  /// Makes libfabric initialise itself.
  static void warm_up();

  /// `control` is a stream socket to the other process; only used to set up. `region` may be
  /// written and read by the peer.
  static Result<std::unique_ptr<BareLink>> open(BareProvider provider, bool requester, int control,
                                                std::span<std::byte> region,
                                                std::size_t message_bytes_max);
  ~BareLink();

  Result<void> send(const std::byte* data, std::size_t length);
  /// To the start of the peer's region plus `offset`. `flags`: of fi_writemsg.
  Result<void> write(const std::byte* data, std::size_t length, std::size_t offset,
                     std::uint64_t flags);
  Result<void> read(std::byte* to, std::size_t length, std::size_t offset);

  /// Looks once. Counts what completed; receive buffers are posted again after `on_receive`.
  template <typename OnReceive>
  Result<void> look(OnReceive&& on_receive);
  /// Removes the file that a killed peer left in /dev/shm.
  void remove_leftover() const;
  std::uint64_t requests_completed() const { return requests_completed_; }
  std::uint64_t received() const { return received_; }

 private:
  BareLink() = default;
  Result<void> open_common(BareProvider provider, int control);
  Result<void> open_endpoint(fi_info* info);
  Result<void> connect(int control);
  Result<void> listen_and_accept(int control);
  Result<void> wait_connected();
  Result<void> meet_by_name(int control);
  Result<void> exchange_keys(int control);
  Result<void> post_receive(std::size_t slot);
  template <typename Post>
  Result<void> insist(const char* what, Post&& post);

  fi_info* info_ = nullptr;
  BareFid<fid_fabric> fabric_;
  BareFid<fid_eq> events_;
  BareFid<fid_domain> domain_;
  BareFid<fid_av> addresses_;
  BareFid<fid_cq> queue_;
  BareFid<fid_mr> memory_;
  BareFid<fid_ep> endpoint_;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  std::uint64_t peer_key_ = 0;
  std::uint64_t peer_base_ = 0;
  std::span<std::byte> region_;
  std::vector<std::byte> inbox_;
  std::size_t inbox_slot_ = 0;
  std::string name_;  // shm: of this side's shared memory, and of the peer's
  std::string peer_name_;
  std::uint64_t requests_completed_ = 0;
  std::uint64_t received_ = 0;
};

template <typename OnReceive>
Result<void> BareLink::look(OnReceive&& on_receive) {
  std::array<fi_cq_data_entry, 16> batch;
  const ssize_t count = ::fi_cq_read(queue_.get(), batch.data(), batch.size());
  if (count == -FI_EAGAIN) return {};
  if (count < 0) return Error{ErrorCode::Disconnected, "bare libfabric: the connection failed"};
  for (ssize_t i = 0; i < count; ++i) {
    const fi_cq_data_entry& entry = batch[static_cast<std::size_t>(i)];
    if ((entry.flags & FI_RECV) != 0) {
      const auto slot = reinterpret_cast<std::uintptr_t>(entry.op_context) - 1;
      ++received_;
      on_receive(std::span<const std::byte>(inbox_).subspan(slot * inbox_slot_, entry.len));
      if (auto posted = post_receive(slot); !posted.ok()) return posted;
    } else if ((entry.flags & FI_REMOTE_CQ_DATA) != 0) {
      ++received_;
      on_receive(std::span<const std::byte>());
    } else {
      ++requests_completed_;
    }
  }
  return {};
}

}  // namespace perdure::bench
#endif
