// Deep flushes: see deep_flush.h.
#include "persist/deep_flush.h"

#include "core/bytes.h"
#include "core/try.h"

namespace perdure::persist {
namespace {

class DeepFlushHandler final : public RequestHandler {
 public:
  /// It changes nothing, and makes the medium work: not for those who may only read.
  bool writes() const override { return true; }

  Result<std::size_t> handle(Request& request) override {
    const std::span<const std::byte> payload = request.payload();
    if (payload.size() != sizeof(DeepFlushPayload)) {
      return Error{ErrorCode::InvalidArgument, "a deep flush of another length"};
    }
    const auto at = load<std::uint64_t>(payload.data());
    const auto bytes = load<std::uint64_t>(payload.data() + 8);
    if (bytes == 0) return Error{ErrorCode::InvalidArgument, "a deep flush of no bytes"};
    if (!request.inside_pool(at, bytes)) {
      return Error{ErrorCode::OutOfRange, "a deep flush of bytes outside the pool"};
    }
    PERDURE_TRY_VOID(request.deep_flush_now(at, bytes));
    return std::size_t{0};
  }
};

}  // namespace

DeepFlushPayload encode_deep_flush(std::uint64_t at, std::uint64_t bytes) {
  DeepFlushPayload payload{};
  store(payload.data(), at);
  store(payload.data() + 8, bytes);
  return payload;
}

RequestHandler& deep_flush_handler() {
  static DeepFlushHandler handler;
  return handler;
}

}  // namespace perdure::persist
