// Short words for writing methods down in the tests of this directory.
#pragma once

#include "check/check.h"

#include <string>
#include <utility>
#include <vector>

namespace perdure::check::test {

inline constexpr Item a = 0;
inline constexpr Item b = 1;

inline RequesterStep post(Verb verb, std::vector<Item> items, bool fenced = false) {
  RequesterStep step;
  step.verb = verb;
  step.items = std::move(items);
  step.fenced = fenced;
  return step;
}

/// SEND, its message kept for recovery.
inline RequesterStep send_replayable(std::vector<Item> items) {
  RequesterStep step = post(Verb::Send, std::move(items));
  step.replay = true;
  return step;
}

inline RequesterStep completion(std::size_t of) {
  RequesterStep step;
  step.kind = RequesterStep::Kind::WaitCompletion;
  step.of = of;
  return step;
}

inline RequesterStep acknowledgement() {
  RequesterStep step;
  step.kind = RequesterStep::Kind::WaitAck;
  return step;
}

inline Method make(const UpdateShape& shape, std::vector<RequesterStep> steps,
                   std::vector<std::vector<ResponderAction>> reactions = {}) {
  Method method;
  method.name = "under-test";
  method.shape = shape;
  method.requester = std::move(steps);
  method.responder = std::move(reactions);
  return method;
}

inline ServerProfile server(PersistenceDomain domain, Ddio ddio = Ddio::Off,
                            Transport transport = Transport::InfiniBand) {
  return {domain, ddio, ReceiveBuffers::Dram, transport, {}, WriteOrder::Ordered};
}

/// "holds", or the name of the property that is broken.
inline std::string verdict(const Method& method, const ServerProfile& profile,
                           const CheckOptions& options = {}) {
  const Report report = check(method, profile, options);
  return std::string(report.property ? to_string(*report.property) : to_string(report.verdict));
}

inline ResponderAction copy(Item item) { return {ResponderAction::Kind::Copy, item}; }
inline ResponderAction flush(Item item) { return {ResponderAction::Kind::Flush, item}; }
inline ResponderAction ack() { return {ResponderAction::Kind::Ack, 0}; }

/// One message with the items of an update, stored and flushed in their order, and answered.
inline Method one_message(const UpdateShape& shape) {
  std::vector<Item> all;
  std::vector<ResponderAction> reaction;
  for (Item item = 0; item < shape.items(); ++item) {
    all.push_back(item);
    reaction.push_back(copy(item));
    reaction.push_back(flush(item));
  }
  reaction.push_back(ack());
  return make(shape, {post(Verb::Send, all), acknowledgement()}, {reaction});
}

}  // namespace perdure::check::test
