// The data plane's messages: whatever arrives is decoded or refused, never trusted.
#include <cstdint>

#include "persist/wire.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  (void)perdure::persist::decode_ack(bytes);
  const auto header = perdure::persist::decode_message(bytes);
  if (!header.ok()) return 0;
  // What decodes fits: every entry and the whole payload lie inside.
  std::uint64_t copied = 0;
  for (std::size_t index = 0; index < header->entries; ++index) {
    const auto entry = perdure::persist::entry_at(bytes, index);
    if ((entry.actions & perdure::persist::kCopy) != 0) copied += entry.length;
  }
  if (header->bytes() + copied > size) __builtin_trap();
  return 0;
}
