#include "rpc/models/frame.h"

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"

#include <atomic>

namespace perdure::rpc::models {
namespace {

constexpr std::size_t kLengthAt = 8;
constexpr std::size_t kTagAt = 12;
constexpr std::size_t kChecksumAt = 16;

std::uint32_t checksum(const std::byte* at, std::size_t length) {
  return crc32c({at + kFrameHeaderBytes, length}, crc32c({at, kChecksumAt}));
}

}  // namespace

std::size_t encode_frame(std::byte* at, std::uint64_t sequence, std::uint32_t tag,
                         std::size_t length) {
  store(at, sequence);
  store(at + kLengthAt, static_cast<std::uint32_t>(length));
  store(at + kTagAt, tag);
  store(at + kChecksumAt, std::uint64_t{checksum(at, length)});
  return kFrameHeaderBytes + length;
}

std::optional<Frame> find_frame(std::span<const std::byte> slot, std::uint64_t sequence) {
  PERDURE_ASSERT(slot.size() >= kFrameHeaderBytes);
  auto* word = const_cast<std::uint64_t*>(reinterpret_cast<const std::uint64_t*>(slot.data()));
  if (std::atomic_ref(*word).load(std::memory_order_acquire) != sequence) return std::nullopt;
  const auto length = load<std::uint32_t>(slot.data() + kLengthAt);
  if (length > slot.size() - kFrameHeaderBytes) return std::nullopt;
  if (load<std::uint32_t>(slot.data() + kChecksumAt) != checksum(slot.data(), length)) {
    return std::nullopt;
  }
  return Frame{sequence, load<std::uint32_t>(slot.data() + kTagAt),
               slot.subspan(kFrameHeaderBytes, length)};
}

void clear_frame(std::span<std::byte> slot) { store(slot.data(), std::uint64_t{0}); }

}  // namespace perdure::rpc::models
