// Fuzz target: the header and the state slots of a pool, from bytes that nobody can be trusted
// to have written. What decodes must be sound and must survive being encoded again.
//
//   offset  size  meaning of the input
//   0       1     bit 0: 0 the rest is the front of a pool as it is
//                        1 the rest is cut in three, put at the places of header, slot 0 and
//                          slot 1, and sealed with good checksums: so that the fuzzer gets past
//                          them and meets the checks of the fields
//   1       ...   bytes
#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <vector>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "pmem/pool_format.h"

namespace perdure::pmem {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kUuidAt = 16;
constexpr std::size_t kChecksumAt = kPoolPageBytes - 4;

std::vector<std::byte> sealed_front(Bytes input) {
  std::vector<std::byte> front(kPoolFrontBytes);
  const std::size_t part = std::min(input.size() / (1 + kStateSlots), kChecksumAt);
  for (std::size_t page = 0; page <= kStateSlots; ++page) {
    std::byte* at = front.data() + page * kPoolPageBytes;
    std::memcpy(at, input.data() + page * part, part);
    store(at + kChecksumAt, crc32c({at, kChecksumAt}));
  }
  return front;
}

void check_header(Bytes bytes) {
  auto header = decode_header(bytes);
  if (!header.ok()) return;
  PERDURE_ASSERT(validate(*header).ok());
  PERDURE_ASSERT(header->data_bytes <= header->region_bytes - kPoolDataOffset);
  auto again = decode_header(encode_header(*header));
  PERDURE_ASSERT(again.ok());
  PERDURE_ASSERT(*again == *header);
}

void check_states(Bytes bytes) {
  Uuid uuid;
  if (bytes.size() >= kUuidAt + uuid.bytes.size())
    uuid.bytes = load<decltype(uuid.bytes)>(bytes.data() + kUuidAt);
  auto slots = decode_states(bytes, uuid);
  if (!slots.ok()) return;
  PERDURE_ASSERT(validate(slots->newest.state).ok());
  auto again = decode_state(encode_state(slots->newest, uuid), uuid);
  PERDURE_ASSERT(again.ok());
  PERDURE_ASSERT(*again == slots->newest);
}

void check(Bytes input) {
  if (input.empty()) return;
  const bool seal = (input[0] & std::byte{1}) != std::byte{0};
  const Bytes rest = input.subspan(1);
  const std::vector<std::byte> front =
      seal ? sealed_front(rest) : std::vector<std::byte>(rest.begin(), rest.end());
  check_header(front);
  check_states(front);
}

}  // namespace
}  // namespace perdure::pmem

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perdure::pmem::check({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
