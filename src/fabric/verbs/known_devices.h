// Which of the devices that a process has met are still those: a reset or a removal leaves the old
// object behind, with connections and memory that name it, and a new context takes its name. Knows
// nothing of verbs, so that it can be tested without an RNIC.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace perdure::fabric::verbs {

/// `Device` says which `context()` it was made on, and whether it `is_dead()`; it hears of the one
/// that took its place by `note_successor(device)`.
/// Threads: one at a time. Never forgets a device: whoever holds one keeps a valid object.
template <typename Device>
class KnownDevices {
 public:
  /// The device of this name on this context: the known one, or a new one where the name has
  /// another context by now or the known one has died. `answers()`: whether the context works;
  /// asked only where the known device died on this very context. Null: it is dead still.
  template <typename Context, typename Answers, typename Make>
  Device* at(const std::string& name, Context* context, Answers answers, Make make) {
    std::unique_ptr<Device>& known = known_[name];
    if (known && known->context() == context) {
      if (!known->is_dead()) return known.get();
      if (!answers()) return nullptr;
    }
    std::unique_ptr<Device> made = make();
    if (known) {
      known->note_successor(*made);
      retired_.push_back(std::move(known));
    }
    known = std::move(made);
    return known.get();
  }

 private:
  std::map<std::string, std::unique_ptr<Device>> known_;
  std::vector<std::unique_ptr<Device>> retired_;  // one for each reset
};

}  // namespace perdure::fabric::verbs
