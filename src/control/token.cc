// The private data of a data plane connection: see token.h.
#include "control/token.h"

#include "core/bytes.h"

namespace perdure::control {
namespace {

constexpr std::uint32_t kTokenMagic = 0x31534450;  // "PDS1"

}  // namespace

std::array<std::byte, kTokenBytes> encode(const SessionToken& token) {
  std::array<std::byte, kTokenBytes> bytes;
  store(bytes.data(), kTokenMagic);
  store(bytes.data() + 4, kTokenVersion);
  store(bytes.data() + 8, token.session);
  store(bytes.data() + 16, token.secret);
  return bytes;
}

std::optional<SessionToken> decode_token(std::span<const std::byte> data) {
  if (data.size() < kTokenBytes) return std::nullopt;
  if (load<std::uint32_t>(data.data()) != kTokenMagic) return std::nullopt;
  if (load<std::uint32_t>(data.data() + 4) != kTokenVersion) return std::nullopt;
  return SessionToken{load<std::uint64_t>(data.data() + 8), load<std::uint64_t>(data.data() + 16)};
}

}  // namespace perdure::control
