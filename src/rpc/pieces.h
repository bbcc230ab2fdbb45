// Pieces: a reply or an answer that is larger than a message, fetched piece by piece, several of
// them in flight (kPieceKind, rpc_requests.h).
#pragma once

#include <perdure/result.h>

#include "client/durable_session.h"
#include "rpc/rpc_requests.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::rpc {

inline constexpr std::size_t kPiecesInFlight = 8;

/// Threads: one caller at a time.
class Pieces {
 public:
  /// From byte `from` on, into `whole`, which stays until whole() or the connection has ended.
  void begin(const PieceQuestion& first, std::span<std::byte> whole) {
    question_ = first;
    whole_ = whole;
    got_ = question_.offset;
    begun_ = taken_ = 0;
  }
  /// Takes what has come, and asks for more. Errors: those that the server refuses a piece with;
  /// ProtocolError; those of DurableSession::request, but for QueueFull. Requires session.up().
  Result<void> pump(client::DurableSession& session);
  bool whole() const { return got_ == whole_.size(); }
  std::span<const std::byte> bytes() const { return whole_; }

 private:
  struct Asked {
    std::uint64_t number = 0;  // of the session
    std::size_t bytes = 0;
  };

  PieceQuestion question_;  // the next one
  std::span<std::byte> whole_;
  std::size_t got_ = 0;
  std::array<Asked, kPiecesInFlight> asked_{};
  std::uint64_t begun_ = 0;
  std::uint64_t taken_ = 0;
};

}  // namespace perdure::rpc
