// Short words for writing a Method down, so that a table of methods reads like the papers' tables.
#pragma once

#include "core/method.h"

#include <utility>
#include <vector>

namespace perdure::plan {

inline RequesterStep post(Verb verb, std::vector<Item> items) {
  RequesterStep step;
  step.verb = verb;
  step.items = std::move(items);
  return step;
}

inline RequesterStep write(std::vector<Item> items) { return post(Verb::Write, std::move(items)); }
inline RequesterStep write_imm(std::vector<Item> items) {
  return post(Verb::WriteImm, std::move(items));
}
inline RequesterStep read(std::vector<Item> items) { return post(Verb::Read, std::move(items)); }
inline RequesterStep flush(std::vector<Item> items) { return post(Verb::Flush, std::move(items)); }
inline RequesterStep write_atomic(Item item) { return post(Verb::WriteAtomic, {item}); }
inline RequesterStep pwrite(std::vector<Item> items) {
  return post(Verb::WritePersist, std::move(items));
}
inline RequesterStep sflush(std::vector<Item> items) {
  return post(Verb::SendFlush, std::move(items));
}

/// A message that carries `items` and the addresses of what is to be flushed.
inline RequesterStep send(std::vector<Item> items, std::vector<Item> addresses = {}) {
  RequesterStep step = post(Verb::Send, std::move(items));
  step.flush = std::move(addresses);
  return step;
}

/// A message that says where the requester has `items`, for the responder to READ them there.
inline RequesterStep send_readable(std::vector<Item> items) {
  RequesterStep step = post(Verb::Send, {});
  step.readable = std::move(items);
  return step;
}

/// A message written to a place that the responder polls, which checks it before it acts.
inline RequesterStep write_polled(std::vector<Item> items, std::vector<Item> addresses = {}) {
  RequesterStep step = post(Verb::WritePolled, std::move(items));
  step.flush = std::move(addresses);
  step.checked = true;
  return step;
}

/// A message that recovery applies from its receive buffer in PM.
inline RequesterStep send_replayable(std::vector<Item> items) {
  RequesterStep step = send(std::move(items));
  step.replay = true;
  return step;
}

inline RequesterStep wait_ack() {
  RequesterStep step;
  step.kind = RequesterStep::Kind::WaitAck;
  return step;
}

/// Waits for the completion of requester[of].
inline RequesterStep wait_completion(std::size_t of) {
  RequesterStep step;
  step.kind = RequesterStep::Kind::WaitCompletion;
  step.of = of;
  return step;
}

inline ResponderAction copy_item(Item item) { return {ResponderAction::Kind::Copy, item}; }
inline ResponderAction flush_item(Item item) { return {ResponderAction::Kind::Flush, item}; }
inline ResponderAction read_item(Item item) { return {ResponderAction::Kind::Read, item}; }
inline ResponderAction await_item(Item item) { return {ResponderAction::Kind::Await, item}; }
inline ResponderAction ack() { return {ResponderAction::Kind::Ack, 0}; }
inline ResponderAction written_ack() { return {ResponderAction::Kind::Ack, 0, true}; }

}  // namespace perdure::plan
