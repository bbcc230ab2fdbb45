// Piece by piece: see pieces.h.
#include "rpc/pieces.h"

#include <algorithm>

#include "core/try.h"

namespace perdure::rpc {

Result<void> Pieces::pump(client::DurableSession& session) {
  while (taken_ < begun_ && session.has_resolved(asked_[taken_ % kPiecesInFlight].number)) {
    const Asked& asked = asked_[taken_ % kPiecesInFlight];
    PERDURE_TRY(bytes, session.reply_bytes(asked.number));
    if (bytes != asked.bytes) return Error{ErrorCode::ProtocolError, "a piece of another size"};
    got_ += bytes;
    ++taken_;
  }
  while (question_.offset < whole_.size() && begun_ - taken_ < kPiecesInFlight) {
    const std::size_t bytes =
        std::min<std::size_t>(whole_.size() - question_.offset, kRequestReplyBytesMax);
    const auto into = whole_.subspan(question_.offset, bytes);
    const auto number = session.request(kPieceKind, encode_piece_question(question_), into, false);
    if (!number.ok() && number.code() == ErrorCode::QueueFull) return {};
    if (!number.ok()) return number.error();
    asked_[begun_++ % kPiecesInFlight] = {*number, bytes};
    question_.offset += bytes;
  }
  return {};
}

}  // namespace perdure::rpc
