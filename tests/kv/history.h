// What a client was told about one key, and what may stand there after a crash, by the contract and
// by nothing else.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace perdure::kv_test {

using Found = std::optional<std::string>;  // nothing: the key is not there

/// The changes of one key by one connection, which are executed in the order in which they were
/// sent.
class History {
 public:
  explicit History(Found before = {}) : states_{std::move(before)} {}

  /// A SET or, with nothing, a DEL was sent.
  void sent(Found value) { states_.push_back(std::move(value)); }
  /// The oldest that was not acknowledged is.
  void acknowledged() { ++acknowledged_; }

  std::size_t unacknowledged() const { return states_.size() - 1 - acknowledged_; }
  /// Whether the key may have this value: that of the last acknowledged change, or of one behind
  /// it, which may have been executed all the same.
  bool explains(const Found& found) const {
    for (std::size_t at = acknowledged_; at < states_.size(); ++at) {
      if (states_[at] == found) return true;
    }
    return false;
  }
  /// The crash is over: this was found, and what was never acknowledged does not come any more.
  void settle(Found found) {
    states_.assign(1, std::move(found));
    acknowledged_ = 0;
  }

 private:
  std::vector<Found> states_;     // before, and after each change
  std::size_t acknowledged_ = 0;  // changes
};

}  // namespace perdure::kv_test
