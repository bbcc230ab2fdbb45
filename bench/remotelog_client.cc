// The client of REMOTELOG, and the check of what it left behind.
#include "bench/remotelog.h"

#include "core/assert.h"
#include "core/crc32c.h"
#include "core/random.h"
#include "core/try.h"
#include "testing/process.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace perdure::bench {
namespace {

constexpr std::uint64_t kRingBytesMax = 16 << 20;
constexpr std::uint64_t kSlotsMax = 4096;
constexpr std::uint64_t kRoundsBetweenLooks = 4096;
constexpr Nanoseconds kStandstillMax = std::chrono::seconds(20);

/// Writes record `number` to `to`.
void encode_record(std::uint64_t number, std::uint64_t bytes, std::byte* to) {
  store(to + 4, static_cast<std::uint32_t>(bytes));
  store(to + 8, number);
  const auto pattern = static_cast<int>(number * 37 % 251);
  std::memset(to + RemotelogLayout::kRecordBytesMin, pattern,
              bytes - RemotelogLayout::kRecordBytesMin);
  store(to, crc32c({to + 4, bytes - 4}));
}

}  // namespace

RemotelogLayout RemotelogOptions::layout() const {
  RemotelogLayout layout;
  layout.record_bytes = record_bytes;
  layout.slots = std::clamp<std::uint64_t>(kRingBytesMax / layout.slot_bytes(), 2 * window,
                                           std::max<std::uint64_t>(kSlotsMax, 2 * window));
  return layout;
}

RemotelogClient::RemotelogClient(const std::vector<Replica>& replicas, const Method& method,
                                 const RemotelogOptions& options)
    : replicas_(replicas),
      options_(options),
      items_(method.shape.items()),
      source_(options.window * (options.layout().slot_bytes() + 64)),
      begun_(replicas.size()),
      started_(options.window) {}

Result<std::unique_ptr<RemotelogClient>> RemotelogClient::open(const std::vector<Replica>& replicas,
                                                               const Method& method,
                                                               const RemotelogOptions& options) {
  PERDURE_ASSERT(options.record_bytes >= RemotelogLayout::kRecordBytesMin);
  PERDURE_ASSERT(method.shape.items() <= 2);
  std::unique_ptr<RemotelogClient> client(new RemotelogClient(replicas, method, options));
  for (const Replica& replica : replicas) {
    PERDURE_TRY(memory, replica.device->register_memory(client->source_, fabric::Access::Local));
    client->memories_.push_back(std::move(memory));
  }
  return client;
}

/// Begins the record on every replica that has room; false: some had none, try again.
Result<bool> RemotelogClient::begin(std::uint64_t number) {
  const RemotelogLayout layout = options_.layout();
  std::byte* record = source(number);
  std::byte* tail = record + layout.slot_bytes();
  bool all = true;
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    if (begun_[i] > number) continue;
    const std::array<persist::UpdateItem, 2> items{{
        {layout.slot_at(number), {record, layout.record_bytes, memories_[i].get()}},
        {RemotelogLayout::kTailAt, {tail, sizeof(std::uint64_t), memories_[i].get()}},
    }};
    const auto begun = replicas_[i].requester->begin(0, std::span(items).first(items_));
    if (begun.ok()) {
      ++begun_[i];
    } else if (begun.code() == ErrorCode::QueueFull) {
      all = false;
    } else {
      return begun.error();
    }
  }
  return all;
}

std::uint64_t RemotelogClient::resolved() const {
  std::uint64_t least = ~std::uint64_t{0};
  for (const Replica& replica : replicas_) least = std::min(least, replica.requester->resolved());
  return least;
}

Result<void> RemotelogClient::run(const Clock& clock, RemotelogRow& row,
                                  const RemotelogProgress& progress) {
  PERDURE_ASSERT(options_.window > 0);
  const std::uint64_t all = options_.all_records();
  std::uint64_t prepared = 0;  // records whose bytes stand in `source_`
  std::uint64_t begun = 0;
  std::uint64_t done = 0;
  Nanoseconds counted_from = clock.now();
  Nanoseconds moved = Clock::monotonic().now();
  for (std::uint64_t round = 1; done < all; ++round) {
    while (begun < all && begun - done < options_.window) {
      if (prepared == begun) {
        encode_record(begun, options_.record_bytes, source(begun));
        store(source(begun) + options_.layout().slot_bytes(), begun + 1);
        started_[begun % options_.window] = clock.now();
        ++prepared;
      }
      PERDURE_TRY(everywhere, begin(begun));
      if (!everywhere) break;
      ++begun;
    }
    for (const Replica& replica : replicas_) PERDURE_TRY_VOID(replica.requester->poll());
    const std::uint64_t now_resolved = resolved();
    if (now_resolved > done) {
      const Nanoseconds now = clock.now();
      for (; done < now_resolved; ++done) {
        if (done == options_.warm_up) counted_from = started_[done % options_.window];
        if (done >= options_.warm_up) row.latencies.add(now - started_[done % options_.window]);
      }
      moved = Nanoseconds{0};
    }
    if (round % kRoundsBetweenLooks != 0) continue;
    PERDURE_TRY_VOID(test::InterruptGuard::check());
    const Nanoseconds now = Clock::monotonic().now();
    if (moved == Nanoseconds{0}) moved = now;
    if (now - moved > kStandstillMax) {
      return Error{ErrorCode::TimedOut, fmt::format("record {} does not become durable", done)};
    }
    if (progress) progress(done);
  }
  row.seconds = to_seconds(clock.now() - counted_from);
  return {};
}

Result<std::uint64_t> check_remotelog(std::span<const std::byte> exported, const Method& method,
                                      const RemotelogOptions& options) {
  const RemotelogLayout layout = options.layout();
  PERDURE_ASSERT(exported.size() >= layout.exported_bytes());
  const std::uint64_t all = options.all_records();
  std::vector<std::byte> wanted(layout.record_bytes);
  const std::uint64_t first = all - std::min(all, layout.slots);
  for (std::uint64_t number = first; number < all; ++number) {
    encode_record(number, layout.record_bytes, wanted.data());
    if (std::memcmp(exported.data() + layout.slot_at(number), wanted.data(), wanted.size()) != 0) {
      return Error{ErrorCode::Corrupt, fmt::format("record {} of {} is not there", number, all)};
    }
  }
  if (method.shape.items() == 2) {
    const auto tail = load<std::uint64_t>(exported.data() + RemotelogLayout::kTailAt);
    if (tail != all) {
      return Error{ErrorCode::Corrupt, fmt::format("the tail word says {}, not {}", tail, all)};
    }
  }
  return all - first;
}

}  // namespace perdure::bench
