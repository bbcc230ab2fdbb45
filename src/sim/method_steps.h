// Methods of a step or two, for tests.
#pragma once

#include "core/method.h"

namespace perdure::sim {

inline RequesterStep post(Verb verb) {
  RequesterStep step;
  step.verb = verb;
  step.items = {0};
  return step;
}

inline RequesterStep wait_completion(std::size_t of) {
  RequesterStep step;
  step.kind = RequesterStep::Kind::WaitCompletion;
  step.of = of;
  return step;
}

inline RequesterStep wait_ack() {
  RequesterStep step;
  step.kind = RequesterStep::Kind::WaitAck;
  return step;
}

}  // namespace perdure::sim
