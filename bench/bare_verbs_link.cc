// A bare reliable connection over libibverbs and librdmacm.
#include "bench/bare_link.h"

#ifdef PERDURE_WITH_VERBS
#include "core/bytes.h"
#include "core/try.h"
#include "fabric/verbs/handles.h"
#include "fabric/verbs/verbs.h"

#include <arpa/inet.h>
#include <rdma/rdma_verbs.h>

#include <algorithm>
#include <array>
#include <vector>

namespace perdure::bench {
namespace {

using fabric::verbs::errno_error;
using fabric::verbs::Owned;

// As Perdure's own connections have it: fabric/verbs/verbs_open.cc, verbs_request_ring.h.
constexpr std::uint32_t kSendDepth = fabric::EndpointOptions{}.send_depth;
constexpr std::size_t kReceiveDepth = fabric::EndpointOptions{}.receive_depth;
constexpr std::array kInlineWanted{256U, 128U, 64U, 0U};  // the first that the RNIC gives
constexpr int kResolveMs = 5'000;
// So many requests in a row may ask for no completion.
constexpr std::uint64_t kSilentMax = kSendDepth / 4;
// Of longer messages fewer buffers are posted: they come with bandwidth, and stay empty there.
constexpr std::size_t kShortBytes = 64 * 1024;
constexpr std::uint64_t kReclaim = ~std::uint64_t{0};  // completes one of these, of no interest

Error failed(const char* what) { return errno_error(ErrorCode::Unsupported, what); }

struct VerbsKeys {
  std::uint64_t base = 0;
  std::uint32_t rkey = 0;
};

class VerbsLink final : public BareLink {
 public:
  static Result<std::unique_ptr<BareLink>> open(const BareSetup& setup);

  Result<void> send(const std::byte* data, std::size_t length) override {
    return post(request(IBV_WR_SEND, data, length), false);
  }
  Result<void> write(const std::byte* data, std::size_t length, std::size_t offset,
                     BareEnding ending) override;
  Result<void> write_and_read(const std::byte* data, std::size_t length,
                              std::byte* read_to) override;
  Result<void> look(const OnReceive& on_receive) override;

 private:
  VerbsLink() = default;
  Result<void> listen(const std::string& address, int control);
  Result<void> connect(const std::string& address, int control);
  Result<void> make_queues();
  Result<void> post_receive(std::size_t slot);
  ibv_send_wr request(ibv_wr_opcode opcode, const std::byte* data, std::size_t length);
  Result<void> post(ibv_send_wr request, bool completed);
  rdma_conn_param parameters() const;

  Owned<rdma_cm_id> listener_;
  Owned<ibv_pd> protection_;
  Owned<ibv_cq> queue_;
  Owned<ibv_mr> memory_;
  Owned<ibv_mr> inbox_memory_;
  Owned<rdma_cm_id> id_;  // with the queue pair; goes first
  VerbsKeys peer_;
  std::span<std::byte> region_;
  std::vector<std::byte> inbox_;
  std::size_t inbox_slot_ = 0;
  std::size_t receives_ = kReceiveDepth;  // posted at a time
  std::uint32_t inline_bytes_ = 0;
  std::uint64_t silent_ = 0;
  ibv_sge piece_{};
};

/// The address of an interface as librdmacm takes it, with a port.
Result<sockaddr_in> socket_address(const std::string& address, std::uint16_t port) {
  sockaddr_in out{};
  out.sin_family = AF_INET;
  out.sin_port = htons(port);
  if (::inet_pton(AF_INET, address.c_str(), &out.sin_addr) == 1) return out;
  return Error{ErrorCode::Unsupported, "bare verbs: the RNIC has no IPv4 address"};
}

Result<std::unique_ptr<BareLink>> VerbsLink::open(const BareSetup& setup) {
  PERDURE_TRY(rnics, fabric::verbs::list_rnics());
  const std::string& address = rnics.front().address;
  std::unique_ptr<VerbsLink> link(new VerbsLink);
  link->region_ = setup.region;
  link->inbox_slot_ = std::max<std::size_t>(setup.message_bytes_max, kReplyBytes);
  if (link->inbox_slot_ > kShortBytes) link->receives_ = kReceivesPosted;
  link->inbox_.resize(link->inbox_slot_ * link->receives_);
  PERDURE_TRY_VOID(setup.requester ? link->connect(address, setup.control)
                                   : link->listen(address, setup.control));
  const VerbsKeys own{reinterpret_cast<std::uintptr_t>(setup.region.data()), link->memory_->rkey};
  PERDURE_TRY_VOID(tell_peer(setup.control, own));
  PERDURE_TRY_VOID(hear_peer(setup.control, link->peer_));
  return std::unique_ptr<BareLink>(std::move(link));
}

Result<void> VerbsLink::listen(const std::string& address, int control) {
  PERDURE_TRY(here, socket_address(address, 0));
  rdma_cm_id* listening = nullptr;
  if (::rdma_create_id(nullptr, &listening, nullptr, RDMA_PS_TCP) != 0) return failed("rdma_cm");
  listener_.reset(listening);
  if (::rdma_bind_addr(listening, reinterpret_cast<sockaddr*>(&here)) != 0 ||
      ::rdma_listen(listening, 1) != 0) {
    return failed("rdma_listen");
  }
  PERDURE_TRY_VOID(tell_peer(control, ::rdma_get_src_port(listening)));
  rdma_cm_id* incoming = nullptr;
  if (::rdma_get_request(listening, &incoming) != 0) return failed("rdma_get_request");
  id_.reset(incoming);
  PERDURE_TRY_VOID(make_queues());
  rdma_conn_param parameter = parameters();
  return ::rdma_accept(incoming, &parameter) == 0 ? Result<void>{} : failed("rdma_accept");
}

Result<void> VerbsLink::connect(const std::string& address, int control) {
  PERDURE_TRY(there, socket_address(address, 0));
  PERDURE_TRY_VOID(hear_peer(control, there.sin_port));
  rdma_cm_id* id = nullptr;
  if (::rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP) != 0) return failed("rdma_cm");
  id_.reset(id);
  if (::rdma_resolve_addr(id, nullptr, reinterpret_cast<sockaddr*>(&there), kResolveMs) != 0 ||
      ::rdma_resolve_route(id, kResolveMs) != 0) {
    return failed("rdma_resolve_addr");
  }
  PERDURE_TRY_VOID(make_queues());
  rdma_conn_param parameter = parameters();
  return ::rdma_connect(id, &parameter) == 0 ? Result<void>{} : failed("rdma_connect");
}

rdma_conn_param VerbsLink::parameters() const {
  rdma_conn_param parameter{};
  parameter.responder_resources = 4;
  parameter.initiator_depth = 4;
  parameter.retry_count = 7;
  parameter.rnr_retry_count = 7;
  return parameter;
}

Result<void> VerbsLink::make_queues() {
  protection_.reset(::ibv_alloc_pd(id_->verbs));
  const auto receives = static_cast<std::uint32_t>(receives_);
  queue_.reset(
      ::ibv_create_cq(id_->verbs, static_cast<int>(kSendDepth + receives), nullptr, nullptr, 0));
  if (!protection_ || !queue_) return failed("ibv_create_cq");
  bool made = false;
  for (const std::uint32_t inline_bytes : kInlineWanted) {
    ibv_qp_init_attr wanted{};
    wanted.qp_type = IBV_QPT_RC;
    wanted.send_cq = wanted.recv_cq = queue_.get();
    wanted.cap = {kSendDepth, receives, 1, 1, inline_bytes};
    made = ::rdma_create_qp(id_.get(), protection_.get(), &wanted) == 0;
    inline_bytes_ = inline_bytes;
    if (made) break;
  }
  if (!made) return failed("rdma_create_qp");
  constexpr int kOurs = IBV_ACCESS_LOCAL_WRITE;
  constexpr int kPeers = kOurs | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  memory_.reset(::ibv_reg_mr(protection_.get(), region_.data(), region_.size(), kPeers));
  inbox_memory_.reset(::ibv_reg_mr(protection_.get(), inbox_.data(), inbox_.size(), kOurs));
  if (!memory_ || !inbox_memory_) return failed("ibv_reg_mr");
  for (std::size_t slot = 0; slot < receives_; ++slot) PERDURE_TRY_VOID(post_receive(slot));
  return {};
}

Result<void> VerbsLink::post_receive(std::size_t slot) {
  ibv_sge sink{reinterpret_cast<std::uintptr_t>(inbox_.data() + slot * inbox_slot_),
               static_cast<std::uint32_t>(inbox_slot_), inbox_memory_->lkey};
  ibv_recv_wr work{};
  work.wr_id = slot;
  work.sg_list = &sink;
  work.num_sge = 1;
  ibv_recv_wr* refused = nullptr;
  return ::ibv_post_recv(id_->qp, &work, &refused) == 0 ? Result<void>{} : failed("ibv_post_recv");
}

ibv_send_wr VerbsLink::request(ibv_wr_opcode opcode, const std::byte* data, std::size_t length) {
  // What is sent inline may lie anywhere.
  piece_ = {reinterpret_cast<std::uintptr_t>(data), static_cast<std::uint32_t>(length),
            memory_->lkey};
  ibv_send_wr work{};
  work.sg_list = &piece_;
  work.num_sge = 1;
  work.opcode = opcode;
  work.send_flags = length <= inline_bytes_ ? static_cast<unsigned>(IBV_SEND_INLINE) : 0;
  return work;
}

Result<void> VerbsLink::post(ibv_send_wr request, bool completed) {
  if (completed || ++silent_ == kSilentMax) {
    request.send_flags |= IBV_SEND_SIGNALED;
    silent_ = 0;
  }
  request.wr_id = completed ? 0 : kReclaim;
  ibv_send_wr* refused = nullptr;
  return ::ibv_post_send(id_->qp, &request, &refused) == 0 ? Result<void>{}
                                                           : failed("ibv_post_send");
}

Result<void> VerbsLink::write(const std::byte* data, std::size_t length, std::size_t offset,
                              BareEnding ending) {
  const bool with_immediate = ending == BareEnding::Immediate;
  ibv_send_wr work =
      request(with_immediate ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE, data, length);
  work.wr.rdma.remote_addr = peer_.base + offset;
  work.wr.rdma.rkey = peer_.rkey;
  return post(work, !with_immediate && ending != BareEnding::Silent);
}

Result<void> VerbsLink::write_and_read(const std::byte* data, std::size_t length,
                                       std::byte* read_to) {
  ibv_send_wr first = request(IBV_WR_RDMA_WRITE, data, length);
  first.wr.rdma.remote_addr = peer_.base;
  first.wr.rdma.rkey = peer_.rkey;
  ibv_sge sink{reinterpret_cast<std::uintptr_t>(read_to), 8, memory_->lkey};
  ibv_send_wr second{};
  second.sg_list = &sink;
  second.num_sge = 1;
  second.opcode = IBV_WR_RDMA_READ;
  second.send_flags = IBV_SEND_SIGNALED;
  second.wr.rdma = first.wr.rdma;
  first.next = &second;
  ibv_send_wr* refused = nullptr;
  return ::ibv_post_send(id_->qp, &first, &refused) == 0 ? Result<void>{} : failed("ibv_post_send");
}

Result<void> VerbsLink::look(const OnReceive& on_receive) {
  std::array<ibv_wc, 16> batch;
  const int count = ::ibv_poll_cq(queue_.get(), static_cast<int>(batch.size()), batch.data());
  for (int i = 0; i < count; ++i) {
    const ibv_wc& done = batch[static_cast<std::size_t>(i)];
    if (done.status != IBV_WC_SUCCESS) {
      return Error{ErrorCode::Disconnected,
                   fmt::format("bare verbs: {}", ::ibv_wc_status_str(done.status))};
    }
    if ((done.opcode & IBV_WC_RECV) == 0) {
      requests_completed_ += done.wr_id == kReclaim ? 0 : 1;
      continue;
    }
    ++received_;
    const bool with_immediate = (done.wc_flags & IBV_WC_WITH_IMM) != 0;
    on_receive(std::span<const std::byte>(inbox_).subspan(done.wr_id * inbox_slot_,
                                                          with_immediate ? 0 : done.byte_len));
    PERDURE_TRY_VOID(post_receive(done.wr_id));
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<BareLink>> open_verbs_link(const BareSetup& setup) {
  return VerbsLink::open(setup);
}

}  // namespace perdure::bench

#else

namespace perdure::bench {

Result<std::unique_ptr<BareLink>> open_verbs_link(const BareSetup&) {
  return Error{ErrorCode::Unsupported, "this build has no libibverbs"};
}

}  // namespace perdure::bench
#endif
