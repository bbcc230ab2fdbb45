#include "bench/limits_traced.h"

#include "bench/child.h"
#include "core/json.h"
#include "core/try.h"

#include <functional>

namespace perdure::bench {
namespace {

using Appends = std::function<Result<void>(LogUnderTest&)>;

using Count = std::function<Result<void>(ChildTrace&)>;

/// Runs `work` in a process of its own; from where that has said a word, `count` looks.
Result<nlohmann::json> watched(const ChildWork& work, const Count& count) {
  const ParentWork trace = [&](const ChildTask& task) -> Result<void> {
    PERDURE_TRY_VOID(await_word(task.from_child));
    const SharedProcessor shared(task.pid);
    PERDURE_TRY(attached, ChildTrace::attach(task.pid));
    PERDURE_TRY_VOID(tell(task.to_child));
    return count(attached);
  };
  return run_in_child(work, trace);
}

/// Runs `appends` in a process of its own that is traced from a moment on. Returns the method that
/// they used.
Result<std::string> traced(LogUnderTestOptions options, const Appends& appends,
                           const Count& count) {
  options.log.spin = kTracedSpin;
  const ChildWork child = [&](const ChildPipes& pipes) -> Result<nlohmann::json> {
    PERDURE_TRY(log, LogUnderTest::open(options));
    PERDURE_TRY_VOID(log.one_by_one(1'000));
    PERDURE_TRY_VOID(tell(pipes.to_parent));
    PERDURE_TRY_VOID(await_word(pipes.from_parent));
    PERDURE_TRY_VOID(log.one_by_one(20));  // wakes the peer, which slept while we were stopped
    auto appended = appends(log);
    mark_end();
    PERDURE_TRY_VOID(std::move(appended));
    return nlohmann::json(log.log().status().replicas.front().small_method);
  };
  PERDURE_TRY(found, watched(child, count));
  return found.get<std::string>();
}

}  // namespace

Result<SyscallCount> count_calls(LogUnderTestOptions options, std::uint64_t appends) {
  SyscallCount count;
  const Appends append = [&](LogUnderTest& log) -> Result<void> {
    mark_begin();
    PERDURE_TRY_VOID(log.one_by_one(appends));
    return {};
  };
  PERDURE_TRY_VOID(traced(std::move(options), append, [&](ChildTrace& trace) -> Result<void> {
    PERDURE_TRY(counted, trace.count_calls());
    count = std::move(counted);
    return {};
  }));
  return count;
}

Result<SyscallCount> count_calls(RpcUnderTestOptions options, std::uint64_t calls) {
  options.client.spin = kTracedSpin;
  const ChildWork child = [&](const ChildPipes& pipes) -> Result<nlohmann::json> {
    PERDURE_TRY(client, RpcUnderTest::open(options));
    PERDURE_TRY_VOID(client.only_call(1'000, RpcLevel::Applied));
    PERDURE_TRY_VOID(tell(pipes.to_parent));
    PERDURE_TRY_VOID(await_word(pipes.from_parent));
    PERDURE_TRY_VOID(client.only_call(20, RpcLevel::Applied));
    mark_begin();
    auto called = client.only_call(calls / 2, RpcLevel::Durable);
    if (called.ok()) called = client.only_call(calls - calls / 2, RpcLevel::Applied);
    mark_end();
    PERDURE_TRY_VOID(std::move(called));
    return nlohmann::json(0);
  };
  SyscallCount count;
  PERDURE_TRY_VOID(watched(child, [&](ChildTrace& trace) -> Result<void> {
    PERDURE_TRY(counted, trace.count_calls());
    count = std::move(counted);
    return {};
  }));
  return count;
}

Result<StepCount> count_steps(LogUnderTestOptions options, std::uint64_t appends) {
  const Appends append = [&](LogUnderTest& log) -> Result<void> {
    for (std::uint64_t i = 0; i < appends; ++i) {
      const std::span<const std::byte> record = log.record();
      mark_begin();
      PERDURE_TRY_VOID(log.log().append(record));
      mark_begin();
      const auto appended = log.log().append(record);
      mark_step_end();
      PERDURE_TRY(ticket, appended);
      PERDURE_TRY_VOID(log.log().wait(ticket, Level::Durable));
    }
    return {};
  };
  StepCount count;
  PERDURE_TRY(
      method, traced(std::move(options), append, [&](ChildTrace& trace) -> Result<void> {
        PERDURE_TRY(counted, trace.count_instructions({"libfabric", "-rdmav", "libibverbs"}));
        for (std::size_t i = 0; i < counted.size(); ++i) {
          (i % 2 == 0 ? count.posting : count.gathering).push_back(static_cast<double>(counted[i]));
        }
        return {};
      }));
  count.method = method;
  return count;
}

}  // namespace perdure::bench
