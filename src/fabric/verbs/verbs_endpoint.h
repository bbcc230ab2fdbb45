// One reliable connection of the verbs provider: a queue pair, a completion queue with a channel to
// sleep on, and librdmacm's id with an event channel of its own. Connections share nothing but
// their protection domain. Setting up: verbs_device.cc.
#pragma once

#include "fabric/verbs/connection_events.h"
#include "fabric/verbs/credits.h"
#include "fabric/verbs/domain.h"
#include "fabric/verbs/verbs_request_ring.h"
#include "fabric/verbs/wake_up.h"
#include "fabric/verbs/work_batch.h"

#include <atomic>
#include <cstdlib>
#include <deque>
#include <string>

namespace perdure::fabric::verbs {

/// A peer that says nothing is asked whether it is there.
inline constexpr Nanoseconds kAskPeerEvery = std::chrono::seconds(5);

class VerbsEndpoint final : public Endpoint {
 public:
  /// With a queue pair, ready to connect or to accept. Takes over the id, whose address is resolved
  /// or which came with a request; its events come through `channel` from here on.
  static Result<std::unique_ptr<VerbsEndpoint>> open(std::shared_ptr<Domain> domain,
                                                     Owned<rdma_event_channel> channel,
                                                     Owned<rdma_cm_id> id,
                                                     const EndpointOptions& options,
                                                     std::string peer);
  ~VerbsEndpoint() override;

  Result<void> connect(std::span<const std::byte> private_data, Deadline deadline);
  /// With a window, of the domain of this endpoint: it is bound when this succeeds. The peer posts
  /// nothing before it has heard of that, by a hello: its first request would be refused.
  Result<void> accept(const Hello& peer, const rdma_conn_param& asked,
                      std::shared_ptr<BoundWindow> window, Deadline deadline);

  Result<std::size_t> post(std::span<const WorkRequest> requests) override;
  Result<void> post_receive(const Segment& buffer, std::uint64_t context) override;
  std::size_t poll(std::span<Completion> completions) override;
  bool arm() override;
  int wait_fd() const override { return wait_fd_; }
  bool connected() const override { return !lost_; }
  std::string lost_reason() const override { return lost_reason_; }
  void disconnect() override;
  Result<void> sever() override;
  /// The RNIC goes on until the next post or poll: what it does reaches the memory that was pinned,
  /// not what stands in its place; but that, where memory is paged on demand (on_demand.h).
  CutSwitch cut_switch() override { return {-1, &cut_}; }
  const Limits& limits() const override { return limits_; }
  Transport transport() const override { return domain_->rnic->transport(); }
  Capabilities capabilities() const override { return capabilities_; }

 private:
  /// Registered for the peer (the first word, and the ring behind the block) and for the RNIC's own
  /// answers.
  struct alignas(64) ControlBlock {
    std::uint64_t granted = 0;         // written by the peer: receives that it has posted
    std::uint64_t hello_received = 0;  // written by the peer that connected: see may_speak
    std::uint64_t scratch = 0;         // old values and probes that nobody wants
    std::uint64_t telling = 0;         // source of the next credit message
  };
  struct FreeControl {
    void operator()(ControlBlock* block) const { std::free(block); }
  };

  VerbsEndpoint(std::shared_ptr<Domain> domain, Owned<rdma_event_channel> channel,
                const EndpointOptions& options, std::string peer);

  Result<void> make_queues();
  Result<void> make_queue_pair();
  Result<void> make_control_block();
  Result<void> make_wait_fd();
  void agree(const Hello& peer);
  rdma_conn_param connection_parameters(const PrivateData& data) const;
  Hello hello() const;
  Result<void> bind_window(Deadline deadline);

  bool fill_plain(std::size_t at, const WorkRequest& request);
  [[gnu::noinline]] void note_posted(std::span<const WorkRequest> requests);
  void post_plain(std::span<const WorkRequest> requests);
  template <std::size_t count>
  bool post_straight(std::span<const WorkRequest, count> requests);
  bool can_flush(const WorkRequest& flush) const;
  bool post_flushed(std::span<const WorkRequest, 2> requests);
  [[gnu::noinline]] bool find_two();
  [[gnu::noinline]] bool make_ready(const WorkRequest& first);
  [[gnu::noinline]] Result<std::size_t> post_several(std::span<const WorkRequest> requests);
  bool find_at_once() { return !silent_ && requests_.find_at_once(WorkBatch::kEntriesMax); }
  Result<std::size_t> post_any(std::span<const WorkRequest> requests);
  [[gnu::noinline]] Error lost_before() const;
  Result<void> check(const WorkRequest& request) const;
  bool may_issue(const WorkRequest& request, std::size_t entries);
  void issue(const WorkRequest& request, std::size_t entries);
  void issue_held();
  void commit();
  void lose_posting(int returned);
  Result<void> destroy_queue_pair();
  void forget_queue_pair();

  std::size_t take_out(std::span<ibv_wc> done);
  bool take(const ibv_wc& done, Completion& completion);
  bool take_receive(const ibv_wc& done, Completion& completion);
  void tell_credits();
  Sleeper sleeper() const;
  void look_around();
  void ask_after_peer();
  void post_word(ibv_wr_opcode opcode, std::uint64_t tag, std::uint64_t& word, std::size_t at_peer);
  void lose_cut();
  void lose(const ibv_wc& failed);
  void lose(const std::string& reason, ErrorCode first);
  void drain();
  std::uint64_t granted() const;
  bool may_speak() { return !silent_ || may_speak_now(); }
  bool may_speak_now();
  void send_hello();
  bool hello_received() const;
  Result<void> await_established(Deadline deadline);

  std::shared_ptr<Domain> domain_;
  std::shared_ptr<Fate> fate_ = std::make_shared<Fate>();
  std::string peer_;  // for messages
  Limits limits_;
  Capabilities capabilities_;
  Hello peer_hello_;

  Owned<rdma_event_channel> events_;
  Owned<ibv_comp_channel> sleep_channel_;
  Owned<ibv_cq> queue_;
  std::unique_ptr<ControlBlock, FreeControl> control_;
  std::span<Immediate> immediates_;  // behind it; empty where WRITE_WITH_IMM is a verb
  Owned<ibv_mr> control_region_;
  std::shared_ptr<BoundWindow> window_;  // what the peer reaches; empty: what is registered
  bool window_bound_ = false;
  Owned<rdma_cm_id> id_;  // with the queue pair
  ibv_qp_ex* extended_ = nullptr;
  int wait_fd_ = -1;

  VerbsRequestRing requests_;
  WorkBatch batch_;
  QueueLimits queue_limits_;
  SendCredits send_credits_;
  ReceiveCredits receive_credits_;
  std::vector<std::uint64_t> receives_;  // contexts of posted receives, a ring in posting order

  std::atomic<bool> cut_{false};
  bool lost_ = false;
  std::string lost_reason_;
  bool severed_ = false;                              // the queue pair is known to be gone
  std::uint64_t failed_request_ = ~std::uint64_t{0};  // whose failure was the end, if one's was
  bool armed_ = false;
  bool silent_ = false;          // until the peer has spoken
  bool telling_ = false;         // a credit message is in flight
  int questions_ = 0;            // a probe of the peer is in flight since so many times kAskEvery
  std::optional<ibv_wc> early_;  // polled by arm()
  std::deque<Completion> unreported_;  // after the loss: what is still to be reported
  std::uint32_t polls_ = 0;
  Deadline look_at_;
  Deadline ask_at_;
};

}  // namespace perdure::fabric::verbs
