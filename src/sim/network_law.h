// NetworkLaw: what every run on the network must keep, checked by one who only watches: epochs of a
// connection are persisted in order, and what a client takes for durable is.
#pragma once

#include "sim/remote_memory.h"

#include <string>
#include <vector>

namespace perdure::sim {

class NetworkLaw {
 public:
  explicit NetworkLaw(std::uint32_t connections) : persisted_(connections) {}

  void on_persisted(const RemoteEpoch& epoch, Time at);
  /// An ACK leaves that says: this epoch and all before it are durable.
  void on_acknowledged(const RemoteEpoch& epoch, Time at);

  /// Empty: it holds.
  const std::string& broken() const { return broken_; }
  std::uint64_t checked() const { return checked_; }

 private:
  std::vector<std::uint64_t> persisted_;  // of each connection, how many
  std::string broken_;
  std::uint64_t checked_ = 0;
};

}  // namespace perdure::sim
