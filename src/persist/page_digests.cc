// Page digests: see page_digests.h.
#include "persist/page_digests.h"

#include <algorithm>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"

namespace perdure::persist {
namespace {

/// Trusts nothing of `payload`.
Result<DigestRequest> decode_digest_request(std::span<const std::byte> payload) {
  const Error wrong{ErrorCode::InvalidArgument, "a request for digests that makes no sense"};
  if (payload.size() != kDigestRequestBytes) return wrong;
  if (load<std::uint32_t>(payload.data() + 12) != 0) return wrong;
  DigestRequest request;
  request.at = load<std::uint64_t>(payload.data());
  request.bytes = load<std::uint32_t>(payload.data() + 8);
  request.key = {load<std::uint64_t>(payload.data() + 16),
                 load<std::uint64_t>(payload.data() + 24)};
  if (request.bytes == 0 || request.bytes > kDigestPagesMax * kDigestPageBytes) return wrong;
  return request;
}

class PageDigestHandler final : public RequestHandler {
 public:
  /// It changes nothing, and makes the medium work: not for those who may only read.
  bool writes() const override { return true; }

  Result<std::size_t> handle(Request& request) override {
    PERDURE_TRY(wanted, decode_digest_request(request.payload()));
    if (!request.inside_pool(wanted.at, wanted.bytes)) {
      return Error{ErrorCode::OutOfRange, "digests of bytes outside the pool"};
    }
    const std::size_t pages = (wanted.bytes + kDigestPageBytes - 1) / kDigestPageBytes;
    if (request.reply().size() < pages * kDigestBytes) {
      return Error{ErrorCode::InvalidArgument, "no room for the digests"};
    }
    request.make_durable(wanted.at, wanted.bytes);
    return put_digests(request.pool().subspan(wanted.at, wanted.bytes), wanted.key,
                       request.reply());
  }
};

}  // namespace

DigestPayload encode_digest_request(const DigestRequest& request) {
  DigestPayload payload{};
  store(payload.data(), request.at);
  store(payload.data() + 8, request.bytes);
  store(payload.data() + 16, request.key.low);
  store(payload.data() + 24, request.key.high);
  return payload;
}

std::size_t put_digests(std::span<const std::byte> bytes, const SipKey& key,
                        std::span<std::byte> to) {
  std::size_t put = 0;
  while (!bytes.empty()) {
    const auto page = bytes.first(std::min<std::size_t>(bytes.size(), kDigestPageBytes));
    PERDURE_ASSERT(put + kDigestBytes <= to.size());
    store(to.data() + put, siphash(key, page));
    put += kDigestBytes;
    bytes = bytes.subspan(page.size());
  }
  return put;
}

RequestHandler& page_digest_handler() {
  static PageDigestHandler handler;
  return handler;
}

}  // namespace perdure::persist
