// Fuzz target: the file of a memory device. What is read must be a device that can be simulated,
// and every refusal names the file.
#include <cstdint>
#include <string_view>

#include "core/assert.h"
#include "memsys/address_map.h"
#include "memsys/device.h"

namespace perdure::memsys {
namespace {

void check(std::string_view text) {
  const auto device = parse_device(text, "x.toml");
  if (!device.ok()) {
    PERDURE_ASSERT(device.code() == ErrorCode::InvalidArgument);
    PERDURE_ASSERT(device.error().message.compare(0, 7, "x.toml:") == 0);
    return;
  }
  const AddressMap map(*device);
  for (const std::uint64_t line : {std::uint64_t{0}, map.lines() / 2, map.lines() - 1}) {
    PERDURE_ASSERT(map.line_at(map.place(line)) == line);
  }
}

}  // namespace
}  // namespace perdure::memsys

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perdure::memsys::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
