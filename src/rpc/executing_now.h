// ExecutingNow: the calls that are in their handlers at this moment, by thread, and the query that
// is answered, for whoever wants to know what a server is at. Noting one takes a few stores; nobody
// waits for who looks.
#pragma once

#include "core/clock.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "rpc/rpc_format.h"

namespace perdure::rpc {

/// Queries are answered one at a time, beside the calls of all threads.
inline constexpr std::size_t kQueryRunning = kExecutingMax;
inline constexpr std::size_t kRunningMax = kExecutingMax + 1;

/// A call, or a query, that is in its handler.
struct RunningCall {
  std::uint64_t client = 0;
  std::uint64_t sequence = 0;  // of a query 0
  std::uint32_t operation = 0;
  Nanoseconds since{0};
};

/// Threads: each notes its own calls, whoever answers queries the one; any looks.
class ExecutingNow {
 public:
  void begin(std::size_t thread, const RunningCall& call) {
    Slot& slot = slots_[thread];
    slot.operation.store(call.operation, std::memory_order_relaxed);
    slot.since.store(call.since.count(), std::memory_order_relaxed);
    slot.sequence.store(call.sequence, std::memory_order_relaxed);
    slot.client.store(call.client, std::memory_order_release);
  }
  void end(std::size_t thread) { slots_[thread].client.store(0, std::memory_order_release); }

  /// Nothing: it is in no handler, or between two.
  std::optional<RunningCall> at(std::size_t thread) const {
    const Slot& slot = slots_[thread];
    RunningCall call;
    call.client = slot.client.load(std::memory_order_acquire);
    call.sequence = slot.sequence.load(std::memory_order_acquire);
    call.operation = slot.operation.load(std::memory_order_acquire);
    call.since = Nanoseconds(slot.since.load(std::memory_order_acquire));
    const bool same = slot.client.load(std::memory_order_acquire) == call.client &&
                      slot.sequence.load(std::memory_order_relaxed) == call.sequence;
    if (call.client == 0 || !same) return std::nullopt;
    return call;
  }

 private:
  struct Slot {
    std::atomic<std::uint64_t> client{0};  // 0: none
    std::atomic<std::uint64_t> sequence{0};
    std::atomic<std::uint32_t> operation{0};
    std::atomic<Nanoseconds::rep> since{0};
  };
  std::array<Slot, kRunningMax> slots_;
};

/// For the scope in which a thread is in a handler.
class Noted {
 public:
  Noted(ExecutingNow& executing, std::size_t thread, const RunningCall& call)
      : executing_(executing), thread_(thread) {
    executing.begin(thread, call);
  }
  ~Noted() { executing_.end(thread_); }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  ExecutingNow& executing_;
  const std::size_t thread_;
};

}  // namespace perdure::rpc
