// One run of a YCSB workload on a store: see bench_run.h.
#include "bench_run.h"

#include <poll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/random.h"
#include "core/try.h"
#include "stop_signals.h"

namespace perdure::kv_app {
namespace {

using workload::YcsbKind;
using workload::YcsbOperation;

class Runner {
 public:
  Runner(KvClient& client, const BenchSizes& sizes)
      : client_(client), sizes_(sizes), value_(sizes.value_bytes) {}

  Result<void> store(std::uint64_t record) {
    // Values differ, so nothing that compares or compresses gains.
    for (std::size_t at = 0; at + 8 <= value_.size(); at += 512) {
      const std::uint64_t word = random_.next();
      std::copy_n(reinterpret_cast<const std::byte*>(&word), sizeof word,
                  value_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    return client_.set(workload::ycsb_key(record), value_, sizes_.acknowledged);
  }
  Result<void> read(std::uint64_t record) {
    PERDURE_TRY(value, client_.get(workload::ycsb_key(record)));
    if (!value || value->size() != sizes_.value_bytes) ++missing;
    return {};
  }
  Result<void> execute(const YcsbOperation& operation) {
    switch (operation.kind) {
      case YcsbKind::Read: return read(operation.record);
      case YcsbKind::Update:
      case YcsbKind::Insert: return store(operation.record);
      case YcsbKind::Scan: {
        PERDURE_TRY(found, client_.range(workload::ycsb_key(operation.record), operation.scan));
        if (found.empty()) ++missing;
        return {};
      }
      case YcsbKind::ReadModifyWrite:
        PERDURE_TRY_VOID(read(operation.record));
        return store(operation.record);
    }
    return {};
  }

  /// Looked at before some of the operations. Errors: SystemError: a signal came. The next one
  /// ends the process.
  Result<void> go_on(std::uint64_t operation) const {
    constexpr std::uint64_t kLooksEvery = 64;
    if (sizes_.stop < 0 || operation % kLooksEvery != 0) return {};
    pollfd stop{sizes_.stop, POLLIN, 0};
    if (::poll(&stop, 1, 0) <= 0) return {};
    let_signals_end();
    return Error{ErrorCode::SystemError, "interrupted; a store that was made for it is removed"};
  }

  std::uint64_t missing = 0;

 private:
  KvClient& client_;
  const BenchSizes& sizes_;
  std::vector<std::byte> value_;
  Random random_{7};
};

}  // namespace

std::uint64_t BenchResult::operations() const {
  std::uint64_t sum = 0;
  for (const Times& each : times) sum += each.count();
  return sum;
}

Result<void> load_records(KvClient& client, const BenchSizes& sizes) {
  Runner runner(client, sizes);
  for (std::uint64_t record = 0; record < sizes.records; ++record) {
    PERDURE_TRY_VOID(runner.go_on(record));
    PERDURE_TRY_VOID(runner.store(record));
  }
  return {};
}

Result<BenchResult> run_workload(KvClient& client, const workload::YcsbMix& mix,
                                 const BenchSizes& sizes) {
  BenchResult result;
  result.workload = mix.name;
  Runner runner(client, sizes);
  workload::Ycsb ycsb(mix, sizes.records, sizes.seed);
  const Clock& clock = Clock::monotonic();
  std::uint64_t inserted = 0;
  Result<void> goes_on;
  const Nanoseconds began = clock.now();
  for (std::uint64_t each = 0; each < sizes.operations; ++each) {
    goes_on = runner.go_on(each);
    if (!goes_on.ok()) break;
    const YcsbOperation operation = ycsb.next();
    inserted += operation.kind == YcsbKind::Insert ? 1 : 0;
    const Nanoseconds before = clock.now();
    PERDURE_TRY_VOID(runner.execute(operation));
    result.times[static_cast<std::size_t>(operation.kind)].add(
        static_cast<std::uint64_t>((clock.now() - before).count()));
  }
  result.seconds = to_seconds(clock.now() - began);
  result.missing = runner.missing;
  for (std::uint64_t each = 0; each < inserted; ++each) {
    const std::string key = workload::ycsb_key(sizes.records + each);
    const std::string_view keys[] = {key};
    PERDURE_TRY_VOID(client.erase(keys));
  }
  PERDURE_TRY_VOID(std::move(goes_on));
  return result;
}

}  // namespace perdure::kv_app
