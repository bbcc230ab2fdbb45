// Digests of pages of the pool, taken by the responder's processor: two copies are compared without
// sending either. The pages are also made durable, so that a page whose digest is right needs no
// write: what an earlier connection left visible there is durable then.
//
// Payload of the request (wire.h), 32 bytes, little-endian:
//
//   0       8     offset   of the first page, from the start of the exported part
//   8       4     bytes    1..kDigestPagesMax * kDigestPageBytes; the last page may be shorter
//   12      4     zero
//   16      16    key      of SipHash-2-4, drawn by the requester
//
// Payload of the reply: 8 bytes for each page, its hash.
#pragma once

#include <perdure/result.h>

#include "core/siphash.h"
#include "persist/request_handler.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace perdure::persist {

inline constexpr std::uint64_t kDigestPageBytes = 4096;
inline constexpr std::size_t kDigestBytes = 8;
/// As many as every responder has room for in a reply.
inline constexpr std::size_t kDigestPagesMax = 8;
inline constexpr std::size_t kDigestRequestBytes = 32;

struct DigestRequest {
  std::uint64_t at = 0;
  std::uint32_t bytes = 0;
  SipKey key;
};

using DigestPayload = std::array<std::byte, kDigestRequestBytes>;
DigestPayload encode_digest_request(const DigestRequest& request);

/// Writes the digests of the pages of `bytes`, one behind another; returns how many bytes of `to`
/// they take. Requires room for them.
std::size_t put_digests(std::span<const std::byte> bytes, const SipKey& key,
                        std::span<std::byte> to);

RequestHandler& page_digest_handler();

}  // namespace perdure::persist
