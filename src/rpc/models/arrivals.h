// Arrivals: how a server whose receiver flushes takes requests: as soon as one is there it is made
// durable where it lies and the client is told, whatever is being executed meanwhile (durable RPC,
// section 4.1.2).
#pragma once

#include "rpc/models/end.h"

#include <array>

namespace perdure::rpc::models {

/// Tag of a request that changes nothing, so that nobody waits for its being durable.
inline constexpr std::uint32_t kUnloggedTag = 1;

class Arrivals {
 public:
  explicit Arrivals(const EndOptions& options) : options_(options) {}

  /// The call that comes next. A window of calls is kept: those from `executing` on.
  std::uint64_t next() const { return next_; }
  bool has_room(std::uint64_t executing) const { return next_ < executing + options_.window; }

  /// Its request is there. Makes it durable, and calls `tell`, which sends the word; with the
  /// confounder the other way round. False: the processor has not got to it.
  template <typename Tell>
  Result<bool> take(const Frame& frame, Handler& handler, const Tell& tell) {
    const bool logged = frame.tag != kUnloggedTag;
    const bool answers_first = options_.confounders.answers_before_flush;
    if (logged && answers_first && !told_) PERDURE_TRY_VOID(tell());
    told_ = true;
    const std::byte* header = frame.payload.data() - kFrameHeaderBytes;
    if (logged && !handler.persist(next_, {header, kFrameHeaderBytes + frame.payload.size()})) {
      return false;
    }
    if (logged && !answers_first) PERDURE_TRY_VOID(tell());
    frames_[next_ % frames_.size()] = frame;
    told_ = false;
    ++next_;
    return true;
  }

  /// The request of a call that was taken.
  std::optional<Frame> find(std::uint64_t sequence) const {
    if (sequence >= next_) return std::nullopt;
    return frames_[sequence % frames_.size()];
  }

 private:
  const EndOptions options_;
  std::uint64_t next_ = 1;
  bool told_ = false;  // of the next one, before it is durable
  std::array<Frame, kWindowMax> frames_;
};

}  // namespace perdure::rpc::models
