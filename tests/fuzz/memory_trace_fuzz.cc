// Fuzz target: traces of memory requests. What the survey accepts is read without an error, event
// for event, and stays within the device.
#include <cstdint>
#include <string_view>

#include "core/assert.h"
#include "memsys/trace.h"

namespace perdure::memsys {
namespace {

void check(std::string_view text, TraceFormat format) {
  constexpr TraceLimits kLimits{1 << 16, 64};
  const auto bytes = trace_of(text);
  TraceReader reader(*bytes, "x", kLimits);
  const auto summary = reader.survey(format);
  if (!summary.ok()) {
    PERDURE_ASSERT(summary.code() == ErrorCode::InvalidArgument);
    PERDURE_ASSERT(summary.error().message.compare(0, 2, "x:") == 0);
    return;
  }
  std::uint64_t writes = 0;
  TraceEvent event;
  while (reader.next(event)) {
    PERDURE_ASSERT(event.line < kLimits.lines);
    PERDURE_ASSERT(event.thread < summary->threads.size());
    PERDURE_ASSERT(event.cycle <= kCycleMax);
    writes += event.kind == EventKind::Write ? 1 : 0;
  }
  PERDURE_ASSERT(reader.outcome().ok());
  PERDURE_ASSERT(writes == summary->writes);
}

}  // namespace
}  // namespace perdure::memsys

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using perdure::memsys::TraceFormat;
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  perdure::memsys::check(text, static_cast<TraceFormat>(data[0] % 5));
  return 0;
}
