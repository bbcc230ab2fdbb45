#include "rpc/models/two_sided.h"

namespace perdure::rpc::models {

Result<std::optional<Frame>> message_in(std::span<const std::byte> buffer, std::uint64_t sequence) {
  std::optional<Frame> frame = find_frame(buffer, sequence);
  if (!frame) return Error{ErrorCode::ProtocolError, "a message came that is not the awaited one"};
  return frame;
}

}  // namespace perdure::rpc::models
