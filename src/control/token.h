// What a requester shows on the data plane to prove that the control plane granted it a session.
//
// The private data of a connection, little-endian:
//
//   offset  size  field
//   0       4     magic    "PDS1"
//   4       4     version  kTokenVersion
//   8       8     session  id of the session
//   16      8     token    the secret of its grant
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace perdure::control {

inline constexpr std::uint32_t kTokenVersion = 1;
inline constexpr std::size_t kTokenBytes = 24;

struct SessionToken {
  std::uint64_t session = 0;
  std::uint64_t secret = 0;
};

std::array<std::byte, kTokenBytes> encode(const SessionToken& token);

/// Nothing if `data` is not a token of this version. Providers may pad private data: what follows
/// the token is ignored.
std::optional<SessionToken> decode_token(std::span<const std::byte> data);

}  // namespace perdure::control
