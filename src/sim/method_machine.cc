// Running a method's steps on a clock: see method_machine.h.
#include "sim/method_machine.h"

#include "core/assert.h"

#include <algorithm>
#include <cmath>

namespace perdure::sim {

MethodMachine::MethodMachine(const Method& method, const ServerProfile& profile,
                             const Hardware& hardware, const PriceOptions& options,
                             const ResponderOptions& responder)
    : method_(method),
      profile_(profile),
      n_(hardware.network),
      s_(hardware.server),
      options_(options),
      responder_(responder),
      posted_buffers_(responder.receive_buffers, 0.0) {
  PERDURE_ASSERT(responder.collect_records > 0);
  PERDURE_ASSERT(responder.log_records == 0 || responder.log_records >= responder.collect_records);
}

Price MethodMachine::update(bool keep_events) {
  keep_events_ = keep_events;
  price_ = {};
  completed_.assign(method_.requester.size(), 0);
  receives_ = 0;
  const double began = cpu_;
  await_room();
  ++updates_;
  for (std::size_t i = 0; i < method_.requester.size(); ++i) take(i);
  apply_record();
  price_.latency_ns = cpu_ - began;
  counts_.responder_ns += price_.responder_ns;
  std::stable_sort(price_.events.begin(), price_.events.end(),
                   [](const PricedEvent& a, const PricedEvent& b) { return a.at_ns < b.at_ns; });
  return std::move(price_);
}

void MethodMachine::note(double at, std::string what) {
  if (keep_events_) price_.events.push_back({at, std::move(what)});
}

double MethodMachine::bytes_of(Item item) const {
  return method_.shape.epoch_of(item) > 0 ? options_.later_item_bytes : options_.item_bytes;
}

double MethodMachine::lines_of(Item item) const {
  return std::ceil(bytes_of(item) / s_.line_bytes);
}

double MethodMachine::wire(double payload) const {
  const double packets = std::max(1.0, std::ceil(payload / n_.packet_bytes));
  return n_.wire + (payload + packets * n_.header_bytes) * n_.wire_per_byte;
}

/// Way back of an answer that is ready in the responder's RNIC.
double MethodMachine::answered(double ready, double payload) const {
  return ready + n_.rnic + wire(payload) + n_.rnic;
}

// --- the requester -----------------------------------------------------------------------------

/// A requester that knows of no room READs where the log begins until some has come back.
void MethodMachine::await_room() {
  while (responder_.log_records > 0 && updates_ - room_seen_ >= responder_.log_records) {
    PERDURE_ASSERT(!collected_.empty());
    cpu_ += n_.post;
    const double arrived = cpu_ + n_.rnic + wire(0) + n_.rnic;
    ++counts_.head_reads;
    for (; !collected_.empty() && collected_.front() <= arrived; collected_.pop_front()) {
      room_seen_ += responder_.collect_records;
    }
    cpu_ = answered(arrived + n_.dma_read_cache, 8) + n_.completion;
  }
}

void MethodMachine::take(std::size_t i) {
  const RequesterStep& step = method_.requester[i];
  switch (step.kind) {
    case RequesterStep::Kind::Post: return post(i, step);
    case RequesterStep::Kind::WaitCompletion: cpu_ = std::max(cpu_, completed_[step.of]); break;
    case RequesterStep::Kind::WaitAck:
      PERDURE_ASSERT(!acks_.empty());
      cpu_ = std::max(cpu_, acks_.front());
      acks_.pop_front();
      break;
  }
  if (keep_events_) note(cpu_, "requester: " + describe(step));
}

void MethodMachine::post(std::size_t i, const RequesterStep& step) {
  cpu_ += n_.post;
  if (keep_events_) note(cpu_, "requester: " + describe(step) + " posted");
  double payload = 0;
  for (const Item item : step.items) payload += brings_items(step.verb) ? bytes_of(item) : 0;
  double begins = cpu_;
  if (step.fenced) begins = std::max(begins, non_posted_answered_);
  double start = std::max(begins, rnic_free_);
  if (payload > n_.inline_bytes) {
    // While a message is sent the next one's payload is fetched already; PCIe brings one after the
    // other.
    const double busy = std::min(payload, n_.fetch_bytes) * n_.fetch_per_byte;
    pcie_free_ = std::max(begins, pcie_free_) + busy;
    start = std::max(start, pcie_free_ + n_.fetch);
  }
  start = receive_buffer_for(step, start, payload);
  rnic_free_ = start + std::max(n_.message_gap, payload * n_.wire_per_byte);
  const double arrived = start + n_.rnic + wire(payload) + n_.rnic;
  if (is_posted(step.verb)) {
    arrive_posted(i, step, start, arrived);
  } else {
    arrive_non_posted(i, step, arrived);
  }
}

/// When the message leaves that finds a receive buffer: a responder without one answers RNR NAK,
/// and the RNIC sends again after its timer, and all that follows behind it
/// (InfiniBand, 9.7.5.2.8).
double MethodMachine::receive_buffer_for(const RequesterStep& step, double start, double payload) {
  if (responder_.receive_buffers == 0 || !takes_receive_buffer(step)) return start;
  PERDURE_ASSERT(!posted_buffers_.empty());
  const double way = n_.rnic + wire(payload) + n_.rnic;
  const double again = way + answered(0, 0) + responder_.rnr_timer;
  const double missing = posted_buffers_.front() - (start + way);
  posted_buffers_.pop_front();
  if (missing <= 0) return start;
  const double times = std::ceil(missing / again);
  counts_.rnr_naks += static_cast<std::uint64_t>(times);
  return start + times * again;
}

// --- arrivals ----------------------------------------------------------------------------------

void MethodMachine::arrive_posted(std::size_t i, const RequesterStep& step, double start,
                                  double arrived) {
  placing_ = std::max(placing_, arrived);
  visible_ = std::max(visible_, arrived + n_.dma_write);
  if (keep_events_) note(visible_, "responder: " + describe(step) + " visible");
  // The transport's ACK leaves when the RNIC has all of it; early ones say nothing of that. It
  // crosses both RNICs as any answer does: the taxonomy paper, section 4.3, has a READ behind the
  // WRITE take a third more, which leaves nothing for a shorter way.
  completed_[i] = completes_early(profile_.transport) ? start + n_.completion
                                                      : answered(arrived, 0) + n_.completion;
  if (step.verb == Verb::WritePersist) {
    const double drained = visible_ + (profile_.ddio == Ddio::On ? n_.cache_drain : 0);
    durable_ = std::max(durable_, drained + n_.medium_write);
    if (keep_events_) note(durable_, "responder: " + describe(step) + " durable");
    completed_[i] = answered(durable_ + n_.persist_ack, 0) + n_.completion;
  }
  if (is_message(step)) receive(step);
}

void MethodMachine::arrive_non_posted(std::size_t i, const RequesterStep& step, double arrived) {
  // Behind all writes before it, on PCIe too: what pcie-bench measures of a read right after a
  // write is little more than the read. With DDIO on it is the cache that answers.
  // Where there is no native FLUSH, a READ stands in for it.
  const bool looks_up = step.verb == Verb::SendFlush;
  const bool flushes = looks_up || (step.verb == Verb::Flush && profile_.capabilities.native_flush);
  const bool from_cache = profile_.ddio == Ddio::On && !flushes;
  const double reads = from_cache ? n_.dma_read_cache : n_.dma_read_memory;
  double ready = looks_up ? std::max(arrived, visible_) + n_.send_flush_lookup
                          : std::max(arrived, placing_) + reads;
  if (flushes && profile_.domain < PersistenceDomain::Mhp) {
    ready += n_.cache_drain + n_.medium_write;
  }
  if (step.verb == Verb::WriteAtomic) visible_ = std::max(visible_, ready);
  if (keep_events_) note(ready, "responder: " + describe(step) + " takes effect");
  non_posted_answered_ = answered(ready, 8);
  completed_[i] = non_posted_answered_ + n_.completion;
}

// --- the responder's CPUs ----------------------------------------------------------------------

/// The responder's CPU gets the next message.
void MethodMachine::receive(const RequesterStep& step) {
  const bool buffered = takes_receive_buffer(step);
  if (receives_ >= method_.responder.size()) {
    // Nobody reacts. Its buffer comes back when its record is applied, if that is in it.
    if (buffered && !step.replay) recycle(applier_free_, visible_);
    return;
  }
  const auto& actions = method_.responder[receives_++];
  const double begin = std::max(visible_ + n_.poll, responder_free_);
  double now = begin + s_.handle;
  for (const ResponderAction& action : actions) act(action, now);
  price_.responder_ns += now - begin;
  responder_free_ = now;
  if (buffered) recycle(responder_free_, now);
}

void MethodMachine::act(const ResponderAction& action, double& now) {
  switch (action.kind) {
    case ResponderAction::Kind::Copy: now += bytes_of(action.item) * s_.copy_per_byte; break;
    case ResponderAction::Kind::Read:
      fetched_ = answered(answered(now, 8) + n_.dma_read_memory, bytes_of(action.item));
      break;
    case ResponderAction::Kind::Await:
      now = std::max(now, fetched_ + n_.dma_write + n_.poll);
      break;
    case ResponderAction::Kind::Flush: now += flush(action.item); break;
    case ResponderAction::Kind::Ack:
      now += n_.post;
      acks_.push_back(answered(now, 8) + n_.dma_write + n_.poll);
      break;
  }
  if (keep_events_) note(now, "responder: " + describe(action));
}

/// A used receive buffer is posted again, by the CPU whose time `cpu` is.
void MethodMachine::recycle(double& cpu, double from) {
  if (responder_.receive_buffers == 0) return;
  cpu = std::max(cpu, from) + responder_.recycle;
  posted_buffers_.push_back(cpu);
}

/// Another CPU applies the records in their order and gives their room back. A record that is
/// replayed from its receive buffer keeps that until it is applied.
void MethodMachine::apply_record() {
  const double before = std::max(applier_free_, visible_);
  applier_free_ = before + responder_.apply;
  for (const RequesterStep& step : method_.requester) {
    const bool kept = step.replay && takes_receive_buffer(step) && method_.responder.empty();
    if (kept) recycle(applier_free_, applier_free_);
  }
  if (++applied_ % responder_.collect_records == 0) {
    applier_free_ += responder_.collect;
    if (responder_.log_records > 0) collected_.push_back(applier_free_);
  }
  counts_.applier_ns += applier_free_ - before;
}

double MethodMachine::flush(Item item) const {
  if (profile_.domain == PersistenceDomain::Page) return s_.flush_page;
  const bool there = profile_.domain >= PersistenceDomain::Mhp;  // stores are there already
  if (there && !options_.flushes_always) return 0;
  return lines_of(item) * s_.flush_line + n_.medium_write;
}

}  // namespace perdure::sim
