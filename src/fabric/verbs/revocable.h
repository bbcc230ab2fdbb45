// Something on an RNIC that lets a peer in, and whose end somebody relies on. Knows nothing of
// verbs, so that it can be tested without an RNIC.
#pragma once

#include <cerrno>
#include <memory>
#include <utility>

namespace perdure::fabric::verbs {

/// `Owner` is a unique_ptr that releases by itself what nobody took away.
template <typename Owner>
class Revocable {
 public:
  explicit Revocable(Owner object) : object_(std::move(object)) {}

  auto get() const { return object_.get(); }

  /// Destroys it by `destroy`, which returns 0 or an errno. Returns 0 once it is known to be gone,
  /// else why it is not: ask again then. A dead RNIC is not asked, for its answer proves nothing
  /// (Rnic::has_let_go).
  template <typename Device, typename Destroy>
  int revoke(Device& rnic, Destroy destroy) {
    if (gone_) return 0;
    int returned = object_ == nullptr ? 0 : EIO;
    if (object_ != nullptr && !rnic.is_dead()) {
      returned = destroy(object_.get());
      if (returned == 0) (void)object_.release();
    }
    if (!rnic.has_let_go(returned)) return returned == 0 ? EIO : returned;
    (void)object_.release();
    gone_ = true;
    return 0;
  }

 private:
  Owner object_;
  bool gone_ = false;
};

}  // namespace perdure::fabric::verbs
