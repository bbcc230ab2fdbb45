// MethodMachine: a requester, the network and a responder, on which the steps of a method run on a
// clock, one update after the other. The parts of the machine are the ones of the checker's model:
// wire, RNIC, visible, memory controller, medium.
#pragma once

#include <perdure/profile.h>

#include "core/hardware.h"
#include "core/method.h"

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

namespace perdure::sim {

struct PriceOptions {
  double item_bytes = 64;       // of items of the first epoch
  double later_item_bytes = 8;  // of items of later epochs
  /// The responder does not know its domain: it flushes where that would not be needed, too.
  bool flushes_always = false;
};

/// Something that happened, for people.
struct PricedEvent {
  double at_ns = 0;
  std::string what;
};

struct Price {
  double latency_ns = 0;            // from the first post to the last wait's end
  double responder_ns = 0;          // of the responder's CPU
  std::vector<PricedEvent> events;  // in the order of time
};

/// What the responder has beside the method. Times in ns.
struct ResponderOptions {
  std::uint64_t receive_buffers = 0;  // posted, at least an update's; 0: there is always one
  double recycle = 0;                 // of the CPU: a used receive buffer is posted again
  double rnr_timer = 0;  // after a "receiver not ready" the requester's RNIC waits so long
  double apply = 0;      // of another CPU: a record is applied
  std::uint64_t collect_records = 1;  // so many applied records are collected at once
  double collect = 0;                 // of the CPU that applies: their room is given back
  std::uint64_t log_records = 0;      // that have room; 0: there is always room
};

/// Sums over all updates.
struct MachineCounts {
  std::uint64_t rnr_naks = 0;    // messages that found no receive buffer
  std::uint64_t head_reads = 0;  // of where the log begins, by a requester without room
  double responder_ns = 0;       // of the CPU that handles messages
  double applier_ns = 0;         // of the one that applies and collects
};

class MethodMachine {
 public:
  /// Requires  validate(method) succeeded; all four outlive the machine.
  MethodMachine(const Method& method, const ServerProfile& profile, const Hardware& hardware,
                const PriceOptions& options, const ResponderOptions& responder = {});

  /// Runs one update as soon as the one before it is over. `keep_events`: with words for people.
  Price update(bool keep_events);
  /// The requester's CPU.
  double now_ns() const { return cpu_; }
  const MachineCounts& counts() const { return counts_; }

 private:
  void note(double at, std::string what);
  double bytes_of(Item item) const;
  double lines_of(Item item) const;
  double wire(double payload) const;
  double answered(double ready, double payload) const;

  void await_room();
  void take(std::size_t i);
  void post(std::size_t i, const RequesterStep& step);
  double receive_buffer_for(const RequesterStep& step, double start, double payload);
  void arrive_posted(std::size_t i, const RequesterStep& step, double start, double arrived);
  void arrive_non_posted(std::size_t i, const RequesterStep& step, double arrived);
  void receive(const RequesterStep& step);
  void act(const ResponderAction& action, double& now);
  void recycle(double& cpu, double from);
  void apply_record();
  double flush(Item item) const;

  const Method& method_;
  const ServerProfile& profile_;
  const NetworkHardware& n_;
  const ServerHardware& s_;
  const PriceOptions options_;
  const ResponderOptions responder_;
  Price price_;
  MachineCounts counts_;
  bool keep_events_ = false;
  double cpu_ = 0;        // the requester's
  double rnic_free_ = 0;  // the requester's RNIC takes the next message
  double pcie_free_ = 0;  // and fetches the next payload
  double placing_ = 0;    // all that was posted so far is in the responder's RNIC
  double visible_ = 0;    // the same, and visible
  double durable_ = 0;    // all that was posted with WritePersist
  double non_posted_answered_ = 0;
  double responder_free_ = 0;
  double fetched_ = 0;  // what the responder READ last is at its RNIC
  std::size_t receives_ = 0;
  std::vector<double> completed_;  // of each step that posts
  std::deque<double> acks_;        // to come
  // The responder's other work.
  std::deque<double> posted_buffers_;  // since when each receive buffer may be used, oldest first
  double applier_free_ = 0;
  std::uint64_t updates_ = 0;  // begun
  std::uint64_t applied_ = 0;
  std::deque<double> collected_;  // when each batch's room came back, of those not seen
  std::uint64_t room_seen_ = 0;   // records whose room the requester knows to be back
};

}  // namespace perdure::sim
