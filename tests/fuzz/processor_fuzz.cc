// Fuzz target: the files of the simulator that name a unit and a source with each quantity:
// processors, networks and client applications. What is read must be usable, and every refusal
// names the file.
#include <cstdint>
#include <string_view>

#include "core/assert.h"
#include "core/hardware.h"
#include "memsys/server/caches.h"
#include "sim/client_applications.h"
#include "sim/network_form.h"

namespace perdure::memsys {
namespace {

template <typename Parsed>
bool accepted(const Result<Parsed>& parsed) {
  if (parsed.ok()) return true;
  PERDURE_ASSERT(parsed.code() == ErrorCode::InvalidArgument);
  PERDURE_ASSERT(parsed.error().message.compare(0, 7, "x.toml:") == 0);
  return false;
}

void check_processor(std::string_view text) {
  const auto processor = parse_processor(text, "x.toml");
  if (!accepted(processor)) return;
  PERDURE_ASSERT(processor->threads() > 0);
  PERDURE_ASSERT(processor->instruction_ps > 0);
  // Large caches take their memory at once: the target is about the file.
  if (processor->l2.bytes + processor->cores * processor->l1.bytes > std::uint64_t{1} << 24) return;
  Caches caches(*processor);
  for (std::uint64_t line = 0; line < 3 * processor->l1.ways; ++line) {
    const std::uint32_t thread = static_cast<std::uint32_t>(line) % processor->threads();
    if (caches.access(thread, line, CacheAccess::Store).source == Source::Memory) caches.fill(line);
    PERDURE_ASSERT(caches.access(thread, line, CacheAccess::Load).source != Source::Memory);
  }
  PERDURE_ASSERT(caches.check().empty());
}

void check_others(std::string_view text) {
  if (const auto hardware = parse_hardware(text, "x.toml"); accepted(hardware)) {
    const sim::EpochParts parts = sim::epoch_parts(hardware->network, 512, true);
    PERDURE_ASSERT(parts.spacing() < sim::kTimeNever / 2);
    PERDURE_ASSERT(parts.round_trip() >= parts.in_memory());
  }
  if (const auto clients = sim::parse_client_applications(text, "x.toml"); accepted(clients)) {
    for (const sim::ClientApplication& each : *clients) {
      PERDURE_ASSERT(each.shape.epochs > 0 && each.shape.epoch_bytes > 0 && each.clients > 0);
      PERDURE_ASSERT(each.shape.writes_per_mille > 0 && each.shape.writes_per_mille <= 1000);
    }
  }
}

}  // namespace
}  // namespace perdure::memsys

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text{reinterpret_cast<const char*>(data), size};
  perdure::memsys::check_processor(text);
  perdure::memsys::check_others(text);
  return 0;
}
