// Credits: so that a message never meets an empty receive queue. No verbs in here.
//
// Each end counts, from the start of the connection, the receives that it has posted and lets the
// other end know by writing the count into a word of the other's. The sender counts its messages
// and sends while it has sent fewer than the other end has posted.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perdure::fabric::verbs {

/// The sender's side.
class SendCredits {
 public:
  /// Whether one more message is known to be allowed behind so many others that go with it.
  bool known(std::uint64_t before) const { return left_ > before; }
  /// Whether one more may go, given the peer's count as it stands in our word.
  bool available(std::uint64_t granted) {
    left_ = granted > sent_ ? granted - sent_ : 0;  // whatever a peer wrote there
    return left_ > 0;
  }
  /// Requires one or the other.
  void use() {
    ++sent_;
    --left_;
  }
  std::uint64_t sent() const { return sent_; }

 private:
  std::uint64_t sent_ = 0;
  std::uint64_t left_ = 0;  // more are allowed, by the peer's count when it was looked at last
};

/// The receiver's side: when to tell, so that telling is rare and no peer waits for it.
class ReceiveCredits {
 public:
  explicit ReceiveCredits(std::size_t depth) : depth_(depth) {}

  bool full() const { return posted_ - received_ >= depth_; }
  void post() { ++posted_; }
  void receive() { ++received_; }
  std::uint64_t posted() const { return posted_; }
  std::uint64_t received() const { return received_; }

  /// Whether there is news, and what the peer knows may soon be used up: of the receives that it
  /// knows of, less than half of the depth are left.
  bool due() const { return posted_ > told_ && (told_ - received_) * 2 <= depth_; }
  void told(std::uint64_t count) { told_ = count; }

 private:
  std::size_t depth_;
  std::uint64_t posted_ = 0;
  std::uint64_t received_ = 0;
  std::uint64_t told_ = 0;
};

}  // namespace perdure::fabric::verbs
