// See verbs_endpoint.h: posting, polling, sleeping and losing a connection.
#ifdef PERDURE_WITH_VERBS
#include "fabric/verbs/verbs_endpoint.h"

#include <poll.h>
#include <unistd.h>

#include "core/log_message.h"
#include "core/try.h"
#include "fabric/verbs/extended.h"

#include <algorithm>
#include <cstddef>
#include <thread>

namespace perdure::fabric::verbs {
namespace {

constexpr int kBatch = 16;  // completions taken out of the queue at a time
// What is not in the completion queue (the end of the connection, events of the device) costs two
// system calls, well below 1 us, so it is looked at so often, and around sleeping. Not once in so
// many polls: who polls seldom would hear of it late. The clock is read once in a few polls.
constexpr Nanoseconds kLookEvery = std::chrono::microseconds(500);
constexpr std::uint32_t kPollsPerQuestion = 8;
constexpr int kQuestionsMax = 5;  // so many times kAskPeerEvery without an answer
constexpr Nanoseconds kDrainMax = std::chrono::milliseconds(200);

// Completions carry the number of the request, or one of these.
constexpr std::uint64_t kReceiveTag = std::uint64_t{1} << 63;
constexpr std::uint64_t kCreditTag = kReceiveTag | 1;
constexpr std::uint64_t kProbeTag = kReceiveTag | 2;
constexpr std::uint64_t kBindTag = kReceiveTag | 3;

/// What a failed completion means for its request. Everything behind it has an unknown outcome.
ErrorCode meaning(ibv_wc_status status) {
  switch (status) {
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR: return ErrorCode::OutOfRange;
    case IBV_WC_LOC_PROT_ERR: return ErrorCode::SystemError;  // not our memory
    default: return ErrorCode::OutcomeUnknown;
  }
}

}  // namespace

VerbsEndpoint::~VerbsEndpoint() {
  if (id_ && id_->qp != nullptr) {
    domain_->rnic->unwatch(id_->qp);
    if (!lost_) ::rdma_disconnect(id_.get());
    if (window_ != nullptr) (void)window_->deallocate();  // before the queue pair; it tries again
  }
  if (wait_fd_ >= 0) ::close(wait_fd_);
}

Result<void> VerbsEndpoint::check(const WorkRequest& request) const {
  const bool atomics = domain_->rnic->limits().atomic_cap != IBV_ATOMIC_NONE;
  PERDURE_TRY_VOID(check_request(request, limits_, capabilities_, atomics));
  const std::uint64_t length = total_length(request);
  if (request.opcode == Opcode::WriteImm && !queue_limits_.writes_immediates &&
      queue_limits_.inline_bytes_max < sizeof(Immediate)) {
    return Error{ErrorCode::Unsupported,
                 "WRITE_WITH_IMM: iWARP, and the RNIC sends nothing inline"};
  }
  if (takes_receive(request.opcode) && length > queue_limits_.message_bytes_max) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: longer than the RNIC's largest message, {} B",
                             to_string(request.opcode), queue_limits_.message_bytes_max)};
  }
  for (std::size_t i = 0; i < request.segment_count; ++i) {
    if (request.segments[i].memory == nullptr && length > queue_limits_.inline_bytes_max) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{}: a segment outside of memory registered with this device",
                               to_string(request.opcode))};
    }
  }
  return {};
}

inline std::uint64_t VerbsEndpoint::granted() const {
  return std::atomic_ref<std::uint64_t>(control_->granted).load(std::memory_order_acquire);
}

inline bool VerbsEndpoint::may_issue(const WorkRequest& request, std::size_t entries) {
  if (!may_speak()) return false;
  if (takes_receive(request.opcode) && !send_credits_.available(granted())) return false;
  return requests_.fits(entries);
}

/// What the caller copied into its messages was read before this looks at the switch: whoever turns
/// it before bytes become worthless is in time. Not of what goes inline from where it is, which is
/// read in the post.
inline void VerbsEndpoint::commit() {
  if (batch_.empty()) return;
  if (cut_.load()) [[unlikely]] {
    batch_.clear();
    lose_cut();
    return;
  }
  const int returned = batch_.post(id_->qp, extended_);
  if (returned != 0) [[unlikely]]
    lose_posting(returned);
}

void VerbsEndpoint::lose_posting(int returned) {
  if (lost_) return;
  lose(fmt::format("posting failed: {}", std::generic_category().message(returned)),
       ErrorCode::OutcomeUnknown);
}

/// Appends the oldest request that was not issued to the batch.
inline void VerbsEndpoint::issue(const WorkRequest& request, std::size_t entries) {
  if (!batch_.fits(entries)) commit();
  if (lost_) return;
  if (takes_receive(request.opcode)) send_credits_.use();
  const std::uint64_t number = requests_.issue_index();
  const bool signalled = requests_.issue(entries);
  batch_.add(request, number, signalled, send_credits_.sent());
}

/// Fills in number `at` of what is posted next, if nothing keeps the request from going to the RNIC
/// as it is, and its entry is ready for it: mostly that is so. All before it may be messages.
inline bool VerbsEndpoint::fill_plain(std::size_t at, const WorkRequest& request) {
  if (request.opcode != Opcode::Send) return batch_.fill_access(at, request);
  return send_credits_.known(at) && batch_.fill_message(at, request);
}

/// What was posted so is noted behind the post: nothing comes between. Apart: the post in front of
/// it needs few registers then.
void VerbsEndpoint::note_posted(std::span<const WorkRequest> requests) {
  for (const WorkRequest& request : requests) {
    if (request.opcode == Opcode::Send) send_credits_.use();
    requests_.push_issued(request);
  }
}

inline void VerbsEndpoint::post_plain(std::span<const WorkRequest> requests) {
  if (cut_.load()) [[unlikely]] {  // see commit
    note_posted(requests);
    return lose_cut();
  }
  const int returned = batch_.post_plain(id_->qp, requests.size());
  note_posted(requests);
  if (returned != 0) [[unlikely]]
    lose_posting(returned);
}

/// One request, or two, if all of them can go so. False: nothing was done.
template <std::size_t count>
inline bool VerbsEndpoint::post_straight(std::span<const WorkRequest, count> requests) {
  static_assert(count == 1 || count == 2);
  if (requests_.known_at_once() < count) return false;
  const std::uint64_t number = requests_.push_index();
  if (!fill_plain(0, requests[0])) return false;
  if constexpr (count == 2) {
    if (!fill_plain(1, requests[1])) return false;
    batch_.number(1, number + 1);
  }
  batch_.number(0, number);
  post_plain(requests);
  return true;
}

/// What check says of a FLUSH that it lets through.
inline bool VerbsEndpoint::can_flush(const WorkRequest& flush) const {
  return flush.opcode == Opcode::Flush && capabilities_.native_flush &&
         (flush.placement != FlushPlacement::Persistence || capabilities_.persistent_flush) &&
         is_inside(flush, flush.flush_length);
}

/// A WRITE and the FLUSH of it, which the RNIC takes by another interface. False: nothing was done.
inline bool VerbsEndpoint::post_flushed(std::span<const WorkRequest, 2> requests) {
  if (requests_.known_at_once() < 2 && !find_two()) return false;
  const std::uint64_t number = requests_.push_index();
  if (!can_flush(requests[1])) return false;
  if (!fill_plain(0, requests[0]) && !make_ready(requests[0])) return false;
  batch_.number(0, number);
  if (cut_.load()) [[unlikely]] {  // see commit
    note_posted(requests);
    lose_cut();
    return true;
  }
  int returned = batch_.post_plain(id_->qp, 1);
  if (returned == 0) returned = WorkBatch::post_flush(extended_, requests[1], number + 1);
  note_posted(requests);
  if (returned != 0) [[unlikely]]
    lose_posting(returned);
  return true;
}

/// Apart, since seldom called: what post_several does for those that it posts.
bool VerbsEndpoint::find_two() {
  return !lost_ && find_at_once() && requests_.known_at_once() >= 2;
}
bool VerbsEndpoint::make_ready(const WorkRequest& first) {
  return batch_.make_ready(0, first) && fill_plain(0, first);
}

/// What most updates are goes to the RNIC with few questions, and without a loop: a WRITE and what
/// follows it, or one message. Anything else by post_several.
Result<std::size_t> VerbsEndpoint::post(std::span<const WorkRequest> requests) {
  if (requests.size() == 2 && requests[1].opcode == Opcode::Flush) {
    if (post_flushed(requests.first<2>())) return std::size_t{2};
    return post_several(requests);
  }
  if (requests.size() == 2 && post_straight(requests.first<2>())) return std::size_t{2};
  if (requests.size() == 1 && post_straight(requests.first<1>())) return std::size_t{1};
  return post_several(requests);
}

/// As many of the first requests as can go to the RNIC as they are, together; what is left by
/// post_any.
Result<std::size_t> VerbsEndpoint::post_several(std::span<const WorkRequest> requests) {
  if (lost_) return lost_before();
  std::size_t taken = 0;
  if (requests.size() <= requests_.known_at_once() || find_at_once()) {
    (void)send_credits_.available(granted());  // a look at it
    const std::size_t most = std::min<std::size_t>(requests.size(), requests_.known_at_once());
    const std::uint64_t first = requests_.push_index();
    for (; taken < most; ++taken) {
      const WorkRequest& next = requests[taken];
      if (!fill_plain(taken, next) && !(batch_.make_ready(taken, next) && fill_plain(taken, next)))
        break;
      batch_.number(taken, first + taken);
    }
    if (taken != 0) post_plain(requests.first(taken));
  }
  if (taken == requests.size() || lost_) return taken;
  if (taken == 0) return post_any(requests);
  const auto more = post_any(requests.subspan(taken));
  return taken + (more.ok() ? *more : 0);
}

/// Apart: the common case stays short.
Error VerbsEndpoint::lost_before() const {
  return {ErrorCode::Disconnected, "connection with " + peer_ + " was lost"};
}

/// The same for those that wait, or need a closer look, and what comes behind them.
Result<std::size_t> VerbsEndpoint::post_any(std::span<const WorkRequest> requests) {
  std::size_t taken = 0;
  for (const WorkRequest& request : requests) {
    if (lost_ || requests_.full()) break;
    if (auto checked = check(request); !checked.ok()) {
      if (taken == 0) return checked.error();
      break;
    }
    const std::size_t entries = entry_count(request, queue_limits_);
    requests_.push(request);
    if (requests_.issue_index() + 1 == requests_.push_index() && may_issue(request, entries)) {
      issue(request, entries);
    } else {
      requests_.hold(request);
    }
    ++taken;
  }
  commit();
  return taken;
}

/// On iWARP the end that accepted sends nothing before something came from the other (RFC 5044
/// section 7.1.2): what comes together with the answer to its request breaks the connection there.
/// So the one that connected says hello, by a WRITE, and the other waits for it.
bool VerbsEndpoint::may_speak_now() {
  silent_ = !hello_received();
  return !silent_;
}

bool VerbsEndpoint::hello_received() const {
  return std::atomic_ref<std::uint64_t>(control_->hello_received).load(std::memory_order_acquire) !=
         0;
}

void VerbsEndpoint::send_hello() {
  control_->telling = 1;
  telling_ = true;
  post_word(IBV_WR_RDMA_WRITE, kCreditTag, control_->telling,
            offsetof(ControlBlock, hello_received));
}

/// An RNIC that refuses a window is taken for one that binds none of that size: the next session of
/// this pool registers it. A connection that ends meanwhile says nothing about that.
Result<void> VerbsEndpoint::bind_window(Deadline deadline) {
  const int returned = window_->post_bind(id_->qp, kBindTag);
  bool refused = returned != 0;
  while (returned == 0 && !window_bound_ && !lost_ && !deadline.passed()) {
    (void)poll({});
    ibv_wc done;
    if (!lost_ && take_out({&done, 1}) == 1) {
      Completion completion;
      if (done.status != IBV_WC_SUCCESS) {
        refused = done.wr_id == kBindTag && done.status != IBV_WC_WR_FLUSH_ERR;
        lose(done);
      } else if (take(done, completion)) {
        unreported_.push_back(completion);
      }
    }
  }
  refused = refused || (!window_bound_ && !lost_);  // it never answers
  if (window_bound_ && !lost_) {
    send_hello();
    return {};
  }
  disconnect();
  if (!refused) {
    return Error{ErrorCode::Disconnected, peer_ + " was lost before its memory window was bound"};
  }
  const std::uint64_t bytes = window_->over().bytes().size();
  domain_->rnic->note_window_refused(bytes);
  return Error{ErrorCode::SystemError,
               fmt::format("RNIC {} does not bind a memory window of {} B{}{}; sessions of pools "
                           "so large register them from now on: connect again",
                           domain_->rnic->name(), bytes, returned == 0 ? "" : ": ",
                           returned == 0 ? "" : std::generic_category().message(returned))};
}

void VerbsEndpoint::issue_held() {
  while (requests_.anything_held()) {
    const WorkRequest& request = requests_.held();
    const std::size_t entries = entry_count(request, queue_limits_);
    if (!may_issue(request, entries)) break;
    issue(request, entries);
  }
  commit();
}

Result<void> VerbsEndpoint::post_receive(const Segment& buffer, std::uint64_t context) {
  if (lost_) return lost_before();
  if (receive_credits_.full()) return Error{ErrorCode::QueueFull, "receive queue is full"};
  if (buffer.memory == nullptr) {
    return Error{ErrorCode::InvalidArgument, "receive buffer outside of registered memory"};
  }
  ibv_sge sink{reinterpret_cast<std::uintptr_t>(buffer.data),
               static_cast<std::uint32_t>(buffer.length),
               static_cast<const VerbsMemory*>(buffer.memory)->lkey()};
  ibv_recv_wr work{};
  work.wr_id = kReceiveTag;
  work.sg_list = &sink;
  work.num_sge = buffer.length > 0 ? 1 : 0;
  ibv_recv_wr* refused = nullptr;
  if (const int returned = ::ibv_post_recv(id_->qp, &work, &refused); returned != 0) {
    errno = returned;
    return errno_error(ErrorCode::SystemError, "ibv_post_recv");
  }
  receives_[receive_credits_.posted() % receives_.size()] = context;
  receive_credits_.post();
  return {};
}

std::size_t VerbsEndpoint::poll(std::span<Completion> completions) {
  std::size_t count = 0;
  if (armed_) {  // the event that woke us says no more than that
    ibv_cq* queue = nullptr;
    void* context = nullptr;
    unsigned events = 0;
    while (::ibv_get_cq_event(sleep_channel_.get(), &queue, &context) == 0) ++events;
    if (events > 0) ::ibv_ack_cq_events(queue_.get(), events);
    armed_ = false;
    if (!lost_) look_around();
  }
  while (!lost_ && count < completions.size()) {
    std::array<ibv_wc, kBatch> done;
    const std::size_t wanted = std::min<std::size_t>(kBatch, completions.size() - count);
    const std::size_t got = take_out(std::span(done).first(wanted));
    const ibv_wc* failed = nullptr;
    for (std::size_t i = 0; i < got; ++i) {
      if (done[i].status == IBV_WC_SUCCESS) {
        if (take(done[i], completions[count])) ++count;
      } else if (failed == nullptr) {
        failed = &done[i];  // what succeeded beside it still counts
      }
    }
    if (failed != nullptr) lose(*failed);
    while (!lost_ && count < completions.size() && requests_.report(completions[count])) ++count;
    if (got < wanted) break;
  }
  if (cut_.load(std::memory_order_relaxed)) lose_cut();
  if (!lost_) {
    if (requests_.anything_held()) issue_held();
    if (!lost_ && receive_credits_.due()) tell_credits();
    if (!lost_ && ++polls_ % kPollsPerQuestion == 0 && look_at_.passed()) look_around();
  }
  while (count < completions.size() && !unreported_.empty()) {
    completions[count++] = unreported_.front();
    unreported_.pop_front();
  }
  return count;
}

void VerbsEndpoint::lose_cut() {
  if (!lost_) lose("what it reaches can not be trusted any more", ErrorCode::OutcomeUnknown);
}

/// Completions of the RNIC; the first one may have come to arm() already.
std::size_t VerbsEndpoint::take_out(std::span<ibv_wc> done) {
  std::size_t got = 0;
  if (early_) done[got++] = *std::exchange(early_, std::nullopt);
  if (got == done.size()) return got;
  const int more = ::ibv_poll_cq(queue_.get(), static_cast<int>(done.size() - got), &done[got]);
  return got + static_cast<std::size_t>(std::max(more, 0));
}

/// One success of the RNIC: whether it is a receive. Requests are reported by the ring.
bool VerbsEndpoint::take(const ibv_wc& done, Completion& completion) {
  if ((done.wr_id & kReceiveTag) == 0) {
    requests_.complete(done.wr_id);
    return false;
  }
  if (done.wr_id == kReceiveTag) return take_receive(done, completion);
  if (done.wr_id == kCreditTag) {
    telling_ = false;
  } else if (done.wr_id == kBindTag) {
    window_bound_ = true;
  } else {
    questions_ = 0;
  }
  return false;
}

/// The connection is down, by what the RNIC says of one request.
void VerbsEndpoint::lose(const ibv_wc& failed) {
  requests_.fail_at(failed.wr_id);
  failed_request_ = failed.wr_id;
  lose(::ibv_wc_status_str(failed.status), meaning(failed.status));
}

bool VerbsEndpoint::take_receive(const ibv_wc& done, Completion& completion) {
  if (done.wr_id != kReceiveTag || receive_credits_.received() == receive_credits_.posted()) {
    return false;
  }
  completion = Completion{};
  completion.opcode = Opcode::Receive;
  completion.context = receives_[receive_credits_.received() % receives_.size()];
  completion.length = done.byte_len;
  if ((done.wc_flags & IBV_WC_WITH_IMM) != 0) {
    completion.has_immediate = true;
    completion.immediate = ::be32toh(done.imm_data);
  } else if (done.byte_len == 0 && !immediates_.empty()) {
    const Immediate& told = immediates_[receive_credits_.received() % immediates_.size()];
    if (told.message == receive_credits_.received() + 1) {
      completion.has_immediate = true;
      completion.immediate = told.value;
      completion.length = told.length;
    }
  }
  receive_credits_.receive();
  return true;
}

/// A request of our own beside the caller's, between a word of our control block and one of the
/// peer's. Room for two of them is kept in the send queue.
void VerbsEndpoint::post_word(ibv_wr_opcode opcode, std::uint64_t tag, std::uint64_t& word,
                              std::size_t at_peer) {
  ibv_sge segment{reinterpret_cast<std::uintptr_t>(&word), sizeof word, control_region_->lkey};
  ibv_send_wr work{};
  work.wr_id = tag;
  work.sg_list = &segment;
  work.num_sge = 1;
  work.opcode = opcode;
  work.send_flags = IBV_SEND_SIGNALED;
  // The RNIC then need not fetch it: a credit is what a peer may be waiting for.
  const bool small_enough = sizeof word <= queue_limits_.inline_bytes_max;
  if (opcode == IBV_WR_RDMA_WRITE && small_enough) work.send_flags |= IBV_SEND_INLINE;
  work.wr.rdma.remote_addr = peer_hello_.credit_address + at_peer;
  work.wr.rdma.rkey = peer_hello_.credit_key;
  ibv_send_wr* refused = nullptr;
  if (const int returned = ::ibv_post_send(id_->qp, &work, &refused); returned != 0) {
    lose(fmt::format("posting failed: {}", std::generic_category().message(returned)),
         ErrorCode::OutcomeUnknown);
  }
}

/// Tells the peer how many receives there are by now. One message at a time.
void VerbsEndpoint::tell_credits() {
  if (telling_ || !may_speak()) return;
  control_->telling = receive_credits_.posted();
  receive_credits_.told(control_->telling);
  telling_ = true;
  post_word(IBV_WR_RDMA_WRITE, kCreditTag, control_->telling, offsetof(ControlBlock, granted));
}

/// Reads a word of the peer's: its RNIC answers, or ours says that nobody does. iWARP has no
/// retries that give up: there a long silence is the end. It is longer than what may be in front
/// of the question on a slow way.
void VerbsEndpoint::ask_after_peer() {
  if (questions_ > 0) {
    if (++questions_ > kQuestionsMax) {
      lose("no answer for too long", ErrorCode::OutcomeUnknown);
    }
    return;
  }
  questions_ = 1;
  post_word(IBV_WR_RDMA_READ, kProbeTag, control_->scratch, offsetof(ControlBlock, granted));
}

/// What does not show in the completion queue.
void VerbsEndpoint::look_around() {
  look_at_ = Deadline::after(kLookEvery);
  domain_->rnic->dispatch_events();
  if (fate_->broken) {
    lose("the RNIC reports an error of the queue pair", ErrorCode::OutcomeUnknown);
    return;
  }
  rdma_cm_event* event = nullptr;
  if (::rdma_get_cm_event(events_.get(), &event) == 0) {
    const Owned<rdma_cm_event> owned(event);
    if (event->event == RDMA_CM_EVENT_DISCONNECTED ||
        event->event == RDMA_CM_EVENT_DEVICE_REMOVAL ||
        event->event == RDMA_CM_EVENT_TIMEWAIT_EXIT) {
      if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) domain_->rnic->note_removal();
      const std::string reason = ::rdma_event_str(event->event);
      lose(reason == "RDMA_CM_EVENT_DISCONNECTED" ? "closed by the peer" : reason,
           ErrorCode::OutcomeUnknown);
      return;
    }
  }
  if (!ask_at_.passed() || !may_speak()) return;
  ask_at_ = Deadline::after(kAskPeerEvery);
  ask_after_peer();
}

Sleeper VerbsEndpoint::sleeper() const {
  return {.peer_solicits = peer_hello_.solicits,
          .requests_in_flight = !requests_.empty(),
          .credit_in_flight = telling_,
          .credits_due = receive_credits_.due(),
          .question_in_flight = questions_ > 0,
          .errors_are_silent = domain_->rnic->errors_are_silent()};
}

bool VerbsEndpoint::arm() {
  if (lost_ || early_ || requests_.reportable() || requests_.anything_held()) return false;
  if (!may_speak()) return false;  // the hello raises no event
  if (receive_credits_.due()) tell_credits();
  if (!lost_) look_around();
  if (lost_) return false;
  armed_ = true;
  if (::ibv_req_notify_cq(queue_.get(), sleeps_for_messages_only(sleeper()) ? 1 : 0) != 0) {
    return false;
  }
  ibv_wc done;  // what came before the request for notification raises no event
  if (::ibv_poll_cq(queue_.get(), 1, &done) > 0) {
    early_ = done;
    return false;
  }
  return true;
}

void VerbsEndpoint::disconnect() {
  if (!lost_) lose("", ErrorCode::OutcomeUnknown);
}

Result<void> VerbsEndpoint::sever() {
  disconnect();
  return destroy_queue_pair();
}

void VerbsEndpoint::forget_queue_pair() {
  id_->qp = nullptr;
  extended_ = nullptr;
}

/// By ibv_destroy_qp(): rdma_destroy_qp() does the same here and drops the result. Until it is gone
/// the RNIC may execute what the peer sends.
Result<void> VerbsEndpoint::destroy_queue_pair() {
  if (severed_) return {};
  Rnic& rnic = *domain_->rnic;
  if (window_ != nullptr) {
    auto deallocated = window_->deallocate();
    // On a dead RNIC that fails until the reset, and must not keep the queue pair.
    if (!deallocated.ok() && !rnic.is_dead()) return deallocated;
  }
  const int returned = id_->qp == nullptr ? 0 : ::ibv_destroy_qp(id_->qp);
  if (returned == 0) forget_queue_pair();
  if (!rnic.has_let_go(returned)) {
    return not_revoked(rnic, returned, "destroy the queue pair of " + peer_);
  }
  forget_queue_pair();
  severed_ = true;
  return {};
}

/// The connection is down. What succeeded before that is delivered first; then all that is in
/// flight fails, the oldest request with `first`. When this returns the RNIC touches none of the
/// caller's memory.
void VerbsEndpoint::lose(const std::string& reason, ErrorCode first) {
  PERDURE_ASSERT(!lost_);
  lost_ = true;
  lost_reason_ = reason;
  if (!reason.empty()) {
    log_message(Severity::Debug, fmt::format("connection with {} lost: {}", peer_, reason));
  }
  drain();
  domain_->rnic->unwatch(id_->qp);
  ::rdma_disconnect(id_.get());
  drain();
  if (const auto destroyed = destroy_queue_pair(); !destroyed.ok()) {
    log_message(Severity::Error, destroyed.error().message);
  }
  Completion completion;
  while (requests_.report_lost(completion, failed_request_, first)) {
    unreported_.push_back(completion);
  }
  while (receive_credits_.received() < receive_credits_.posted()) {
    completion = Completion{};
    completion.opcode = Opcode::Receive;
    completion.context = receives_[receive_credits_.received() % receives_.size()];
    completion.error = ErrorCode::OutcomeUnknown;
    receive_credits_.receive();
    unreported_.push_back(completion);
  }
}

/// Takes what has succeeded out of the completion queue, until it is empty.
void VerbsEndpoint::drain() {
  const Deadline deadline = Deadline::after(kDrainMax);
  ibv_wc done;
  while (!deadline.passed() && take_out({&done, 1}) > 0) {
    Completion completion;
    if (done.status == IBV_WC_SUCCESS && take(done, completion)) {
      unreported_.push_back(completion);
    }
  }
}

}  // namespace perdure::fabric::verbs
#endif
