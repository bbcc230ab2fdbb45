// One process's side of a bare connection: opening, posting, looking. What a round consists of is
// in bare.cc; what a provider makes of it in bare_ofi_link.cc and bare_verbs_link.cc.
#pragma once

#include "bench/bare.h"

#include "core/clock.h"

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace perdure::bench {

inline constexpr std::size_t kReplyBytes = 24;
inline constexpr std::size_t kReceivesPosted = 64;
inline constexpr Nanoseconds kBarePatience = std::chrono::seconds(10);

/// How a write is to end.
enum class BareEnding {
  Silent,     // no completion
  Completed,  // a completion here
  Delivered,  // a completion here, once the peer has the bytes
  Committed,  // the same, once they are durable
  Immediate,  // data for the peer's queue, no completion here
};

/// What came: a message, or nothing for an immediate.
using OnReceive = std::function<void(std::span<const std::byte>)>;

class BareLink {
 public:
  virtual ~BareLink() = default;

  virtual Result<void> send(const std::byte* data, std::size_t length) = 0;
  /// To the start of the peer's region plus `offset`.
  virtual Result<void> write(const std::byte* data, std::size_t length, std::size_t offset,
                             BareEnding ending) = 0;
  /// A write, and a read of 8 bytes behind it, together where the provider takes lists.
  virtual Result<void> write_and_read(const std::byte* data, std::size_t length,
                                      std::byte* read_to) = 0;

  /// Looks once. Counts what completed; receive buffers are posted again after `on_receive`.
  virtual Result<void> look(const OnReceive& on_receive) = 0;
  /// Removes what a killed peer left in /dev/shm.
  virtual void remove_leftover() const {}

  std::uint64_t requests_completed() const { return requests_completed_; }
  std::uint64_t received() const { return received_; }

 protected:
  std::uint64_t requests_completed_ = 0;
  std::uint64_t received_ = 0;
};

/// What both ends of a link know before it is there. `control` is a stream socket to the other
/// process, only used to set up. The peer may write and read `region`; this side sends from it and
/// reads into it.
struct BareSetup {
  bool requester = false;
  int control = -1;
  std::span<std::byte> region;
  std::size_t message_bytes_max = 0;
};

/// Errors: Unsupported, where this build or machine has no such provider.
Result<std::unique_ptr<BareLink>> open_ofi_link(BareProvider provider, const BareSetup& setup);
Result<std::unique_ptr<BareLink>> open_verbs_link(const BareSetup& setup);

/// Makes the provider's library initialise itself, for both processes, before the fork.
void warm_up_ofi();

/// A block of fixed size to the other process, and from it.
template <typename Block>
Result<void> tell_peer(int control, const Block& block) {
  if (::send(control, &block, sizeof block, MSG_NOSIGNAL) == ssize_t{sizeof block}) return {};
  return Error{ErrorCode::Disconnected, "bare program: the other process has gone"};
}
template <typename Block>
Result<void> hear_peer(int control, Block& block) {
  // The socket has a receive timeout: this does not wait for ever.
  if (::recv(control, &block, sizeof block, MSG_WAITALL) == ssize_t{sizeof block}) return {};
  return Error{ErrorCode::Disconnected, "bare program: the other process says nothing"};
}

}  // namespace perdure::bench
