// Running a method's steps on a clock: see method_price.h. The parts of the machine are the ones of
// the checker's model: wire, RNIC, visible, memory controller, medium.
#include "sim/method_price.h"

#include "core/assert.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>

namespace perdure::sim {
namespace {

class Run {
 public:
  Run(const Method& method, const ServerProfile& profile, const Hardware& hardware,
      const PriceOptions& options)
      : method_(method),
        profile_(profile),
        n_(hardware.network),
        s_(hardware.server),
        options_(options),
        completed_(method.requester.size()) {}

  Price run() {
    for (std::size_t i = 0; i < method_.requester.size(); ++i) take(i);
    price_.latency_ns = cpu_;
    std::stable_sort(price_.events.begin(), price_.events.end(),
                     [](const PricedEvent& a, const PricedEvent& b) { return a.at_ns < b.at_ns; });
    return std::move(price_);
  }

 private:
  void note(double at, std::string what) { price_.events.push_back({at, std::move(what)}); }

  double bytes_of(Item item) const {
    return method_.shape.epoch_of(item) > 0 ? options_.later_item_bytes : options_.item_bytes;
  }

  double lines_of(Item item) const { return std::ceil(bytes_of(item) / s_.line_bytes); }

  double wire(double payload) const {
    const double packets = std::max(1.0, std::ceil(payload / n_.packet_bytes));
    return n_.wire + (payload + packets * n_.header_bytes) * n_.wire_per_byte;
  }

  void take(std::size_t i) {
    const RequesterStep& step = method_.requester[i];
    switch (step.kind) {
      case RequesterStep::Kind::Post: return post(i, step);
      case RequesterStep::Kind::WaitCompletion:
        cpu_ = std::max(cpu_, completed_[step.of]);
        return note(cpu_, "requester: " + describe(step));
      case RequesterStep::Kind::WaitAck:
        PERDURE_ASSERT(!acks_.empty());
        cpu_ = std::max(cpu_, acks_.front());
        acks_.pop_front();
        return note(cpu_, "requester: " + describe(step));
    }
  }

  void post(std::size_t i, const RequesterStep& step) {
    cpu_ += n_.post;
    note(cpu_, "requester: " + describe(step) + " posted");
    double payload = 0;
    for (const Item item : step.items) payload += brings_items(step.verb) ? bytes_of(item) : 0;
    double start = std::max(cpu_, rnic_free_);
    if (step.fenced) start = std::max(start, non_posted_answered_);
    if (payload > n_.inline_bytes) {
      start += n_.fetch + std::min(payload, n_.fetch_bytes) * n_.fetch_per_byte;
    }
    rnic_free_ = start + std::max(n_.message_gap, payload * n_.wire_per_byte);
    const double arrived = start + n_.rnic + wire(payload) + n_.rnic;
    if (is_posted(step.verb)) {
      arrive_posted(i, step, start, arrived);
    } else {
      arrive_non_posted(i, step, arrived);
    }
  }

  /// Way back of an answer that is ready in the responder's RNIC.
  double answered(double ready, double payload) const {
    return ready + n_.rnic + wire(payload) + n_.rnic;
  }

  void arrive_posted(std::size_t i, const RequesterStep& step, double start, double arrived) {
    placing_ = std::max(placing_, arrived);
    visible_ = std::max(visible_, arrived + n_.dma_write);
    note(visible_, "responder: " + describe(step) + " visible");
    // The transport's ACK leaves when the RNIC has all of it; early ones say nothing of that. It
    // crosses both RNICs as any answer does: seed paper 000, section 4.3, has a READ behind the
    // WRITE take a third more, which leaves nothing for a shorter way.
    completed_[i] = completes_early(profile_.transport) ? start + n_.completion
                                                        : answered(arrived, 0) + n_.completion;
    if (step.verb == Verb::WritePersist) {
      const double drained = visible_ + (profile_.ddio == Ddio::On ? n_.cache_drain : 0);
      durable_ = std::max(durable_, drained + n_.medium_write);
      note(durable_, "responder: " + describe(step) + " durable");
      completed_[i] = answered(durable_ + n_.persist_ack, 0) + n_.completion;
    }
    if (is_message(step)) receive();
  }

  void arrive_non_posted(std::size_t i, const RequesterStep& step, double arrived) {
    // Behind all writes before it, on PCIe too: what pcie-bench measures of a read right after a
    // write is little more than the read. With DDIO on it is the cache that answers.
    // Where there is no native FLUSH, a READ stands in for it.
    const bool looks_up = step.verb == Verb::SendFlush;
    const bool flushes =
        looks_up || (step.verb == Verb::Flush && profile_.capabilities.native_flush);
    const bool from_cache = profile_.ddio == Ddio::On && !flushes;
    const double reads = from_cache ? n_.dma_read_cache : n_.dma_read_memory;
    double ready = looks_up ? std::max(arrived, visible_) + n_.send_flush_lookup
                            : std::max(arrived, placing_) + reads;
    if (flushes && profile_.domain < PersistenceDomain::Mhp) {
      ready += n_.cache_drain + n_.medium_write;
    }
    if (step.verb == Verb::WriteAtomic) visible_ = std::max(visible_, ready);
    note(ready, "responder: " + describe(step) + " takes effect");
    non_posted_answered_ = answered(ready, 8);
    completed_[i] = non_posted_answered_ + n_.completion;
  }

  /// The responder's CPU gets the next message.
  void receive() {
    if (receives_ >= method_.responder.size()) return;
    const auto& actions = method_.responder[receives_++];
    const double begin = std::max(visible_ + n_.poll, responder_free_);
    double now = begin + s_.handle;
    for (const ResponderAction& action : actions) {
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
      note(now, "responder: " + describe(action));
    }
    price_.responder_ns += now - begin;
    responder_free_ = now;
  }

  double flush(Item item) const {
    if (profile_.domain == PersistenceDomain::Page) return s_.flush_page;
    if (profile_.domain >= PersistenceDomain::Mhp) return 0;  // stores are there already
    return lines_of(item) * s_.flush_line + n_.medium_write;
  }

  const Method& method_;
  const ServerProfile& profile_;
  const NetworkHardware& n_;
  const ServerHardware& s_;
  const PriceOptions& options_;
  Price price_;
  double cpu_ = 0;        // the requester's
  double rnic_free_ = 0;  // the requester's RNIC takes the next message
  double placing_ = 0;    // all that was posted so far is in the responder's RNIC
  double visible_ = 0;    // the same, and visible
  double durable_ = 0;    // all that was posted with WritePersist
  double non_posted_answered_ = 0;
  double responder_free_ = 0;
  double fetched_ = 0;  // what the responder READ last is at its RNIC
  std::size_t receives_ = 0;
  std::vector<double> completed_;  // of each step that posts
  std::deque<double> acks_;        // to come
};

}  // namespace

Price price(const Method& method, const ServerProfile& profile, const Hardware& hardware,
            const PriceOptions& options) {
  return Run(method, profile, hardware, options).run();
}

}  // namespace perdure::sim
