// Arrivals: how a server whose receiver flushes takes requests: as soon as one is there it is made
// durable where it lies and the client is told, whatever is being executed meanwhile (durable RPC,
// section 4.1.2).
#pragma once

#include "core/try.h"
#include "rpc/models/end.h"

#include <array>
#include <optional>
#include <string_view>

namespace perdure::rpc::models {

/// Tag of a request that changes nothing, so that nobody waits for its being durable.
inline constexpr std::uint32_t kUnloggedTag = 1;
/// Of a request, by whether its call is to be durable.
constexpr std::uint32_t log_tag(bool durable) { return durable ? 0 : kUnloggedTag; }

inline constexpr std::string_view kDurableRpcSources[]{
    "*durable RPC*, sections 4.1 to 4.3, figures 3 to 6",
    "its artifact, `CGCL-codes/PRDMA`, for what its figures were measured with: see the "
    "confounders",
};

class Arrivals {
 public:
  explicit Arrivals(const EndOptions& options) : options_(options) {}

  /// Takes what has come, call after call; a window of calls is kept: those from `executing` on.
  /// Of a call, `find` looks for the request, `is_sending` says whether an earlier call's answer is
  /// still being sent from its place, and `tell` sends the word that it is durable.
  template <typename Find, typename IsSending, typename Tell>
  Result<void> take_all(std::uint64_t executing, Handler& handler, const Find& find,
                        const IsSending& is_sending, const Tell& tell) {
    while (next_ < executing + options_.window && !is_sending(next_)) {
      PERDURE_TRY(frame, find(next_));
      if (!frame) return {};
      PERDURE_TRY(taken, take(*frame, handler, [&] { return tell(next_); }));
      if (!taken) return {};
    }
    return {};
  }

  /// The request of a call that was taken.
  std::optional<Frame> find(std::uint64_t sequence) const {
    if (sequence >= next_) return std::nullopt;
    return frames_[sequence % frames_.size()];
  }

 private:
  /// Makes the next call durable and tells it; with the confounder the other way round. False: the
  /// processor has not got to it.
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

  const EndOptions options_;
  std::uint64_t next_ = 1;
  bool told_ = false;  // of the next one, before it is durable
  std::array<Frame, kWindowMax> frames_;
};

}  // namespace perdure::rpc::models
