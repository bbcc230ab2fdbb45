#include "sim/remotelog_run.h"

#include "core/assert.h"

#include <algorithm>
#include <cmath>

namespace perdure::sim {
namespace {

constexpr std::uint64_t kProgressMask = (1 << 14) - 1;  // of the records that are appended

/// With a WRITE where the method has an ATOMIC WRITE; the FLUSH behind it is the second READ.
Method with_stand_in(Method method) {
  for (RequesterStep& step : method.requester) {
    if (step.verb == Verb::WriteAtomic) step.verb = Verb::Write;
  }
  return method;
}

}  // namespace

std::uint64_t receive_buffers_of(const Method& method) {
  return static_cast<std::uint64_t>(
      std::count_if(method.requester.begin(), method.requester.end(), takes_receive_buffer));
}

RemotelogResult run_remotelog(const Method& method, const ServerProfile& profile,
                              const Hardware& hardware, const RemotelogOptions& options) {
  const std::uint64_t buffers = options.responder.receive_buffers;
  PERDURE_ASSERT(buffers == 0 || buffers >= receive_buffers_of(method));
  const Method runs = options.write_for_atomic ? with_stand_in(method) : method;
  ServerProfile server = profile;
  if (options.read_for_flush) server.capabilities.native_flush = false;
  PriceOptions price;
  price.item_bytes = options.record_bytes;
  price.flushes_always = options.flushes_always;
  ResponderOptions responder = options.responder;
  if (responder.log_records > 0) {
    responder.collect_records = std::min(responder.collect_records, responder.log_records);
  }
  MethodMachine machine(runs, server, hardware, price, responder);
  RemotelogResult result;
  for (std::uint64_t i = 0; i < options.records; ++i) {
    const Price append = machine.update(false);
    result.append.add(static_cast<std::uint64_t>(std::llround(append.latency_ns * 1e3)));
    if (((i + 1) & kProgressMask) == 0 && options.progress) options.progress(i + 1);
  }
  result.elapsed_ns = machine.now_ns();
  result.counts = machine.counts();
  return result;
}

}  // namespace perdure::sim
