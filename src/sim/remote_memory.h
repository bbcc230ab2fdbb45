// RemoteMemory: where the persistent writes of connections end: what keeps their epochs apart at
// the server and says when each is persisted. FixedMemory takes the same time for each epoch;
// memsys has one of banks, rows and a BROI controller.
#pragma once

#include <perdure/result.h>

#include "sim/station.h"

#include <cstdint>
#include <queue>
#include <string>
#include <vector>

namespace perdure::sim {

/// An epoch of a connection; they are numbered from 0.
struct RemoteEpoch {
  std::uint32_t connection = 0;
  std::uint64_t number = 0;
  std::uint64_t bytes = 0;  // of its data
  bool operator==(const RemoteEpoch&) const = default;
};

class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;

  /// All of the epoch is at the memory controller's door. Those of a connection come in order.
  virtual void arrive(const RemoteEpoch& epoch, Time now) = 0;
  /// When something happens; kTimeNever: nothing, unless something comes. What goes on for ever
  /// without persisting anything, as refreshes do, is nothing.
  virtual Time next() const = 0;
  /// Appends what is persisted. Requires  now == next().
  virtual void step(Time now, std::vector<RemoteEpoch>& persisted) = 0;
  /// Errors  ProtocolError: the order of persistence was broken.
  virtual Result<void> verdict() const { return {}; }
  /// What its oldest epoch waits for, as words after "waits for"; empty: nobody knows.
  virtual std::string blocked(std::uint32_t /*connection*/) const { return {}; }
};

/// Each epoch takes `medium`, after those before it of its connection; connections are independent.
class FixedMemory final : public RemoteMemory {
 public:
  FixedMemory(std::uint32_t connections, Time medium) : medium_(medium), free_(connections) {}

  void arrive(const RemoteEpoch& epoch, Time now) override {
    Time& free = free_[epoch.connection];
    free = std::max(free, now) + medium_;
    due_.push({free, order_++, epoch});
  }
  Time next() const override { return due_.empty() ? kTimeNever : due_.top().at; }
  void step(Time now, std::vector<RemoteEpoch>& persisted) override {
    for (; !due_.empty() && due_.top().at <= now; due_.pop()) persisted.push_back(due_.top().epoch);
  }

 private:
  struct Due {
    Time at = 0;
    std::uint64_t order = 0;
    RemoteEpoch epoch;
    bool operator>(const Due& other) const {
      return at != other.at ? at > other.at : order > other.order;
    }
  };

  const Time medium_;
  std::vector<Time> free_;  // of each connection
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
  std::uint64_t order_ = 0;
};

}  // namespace perdure::sim
