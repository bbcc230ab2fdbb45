// The C interface of regions.
#include <perdure/perdure.h>
#include <perdure/region.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "capi/failure.h"

using perdure::Level;
using perdure::Region;
using perdure::capi::code_of;
using perdure::capi::counts_of;
using perdure::capi::fail;
using perdure::capi::give_all;
using perdure::capi::give_sized;
using perdure::capi::give_text;
using perdure::capi::guarded;
using perdure::capi::known;
using perdure::capi::take_options;

struct perdure_region {
  Region region;
  perdure::capi::Origin origin = {};
};

PERDURE_CAPI_ENDS_WITH(perdure_region_options, reserved_last);
PERDURE_CAPI_ENDS_WITH(perdure_region_status, reserved_too);
PERDURE_CAPI_ENDS_WITH(perdure_region_replica_status, coalesced);
PERDURE_CAPI_ENDS_WITH(perdure_region_times, atomics);

namespace {

perdure_code answer(const perdure::Result<std::uint64_t>& result, std::uint64_t* before) {
  if (!result.ok()) return fail(result.error());
  *before = *result;
  return PERDURE_OK;
}

perdure_region_replica_status replica_of(const perdure::RegionReplicaStatus& replica) {
  perdure_region_replica_status told{};
  told.resolved = replica.resolved;
  told.small_bytes_max = replica.small_bytes_max;
  told.up = replica.up;
  told.whole = replica.whole;
  give_text(replica.peer, told.peer);
  give_text(replica.pool_uuid, told.pool_uuid);
  give_text(replica.small_method, told.small_method);
  give_text(replica.large_method, told.large_method);
  if (replica.up) give_text(perdure::describe(replica.profile), told.profile);
  give_text(replica.down_reason, told.down_reason);
  told.missed_bytes = replica.missed_bytes;
  told.catching_up = replica.catching_up;
  told.mixed = replica.mixed;
  told.coalesced = replica.coalesced;
  return told;
}

perdure_code open_region(perdure::Result<perdure::RegionOptions> options, perdure_region** region) {
  if (!options.ok()) return fail(options.error());
  auto result = Region::open(std::move(options).value());
  if (!result.ok()) return fail(result.error());
  *region = new perdure_region{std::move(result).value()};
  return PERDURE_OK;
}

}  // namespace

perdure_code perdure_region_open(const perdure_region_options* options, perdure_region** region) {
  return guarded([&]() -> perdure_code {
    if (options == nullptr || region == nullptr) return fail("options and region must not be NULL");
    perdure_region_options given{};
    perdure::RegionOptions opened;
    const perdure_code code = take_options(options, given, opened);
    if (code != PERDURE_OK) return code;
    if (given.staging_bytes != 0) opened.staging_bytes = given.staging_bytes;
    if (given.peer_timeout_ms != 0) {
      opened.peer_timeout = std::chrono::milliseconds(given.peer_timeout_ms);
    }
    if (given.spin_us != 0) opened.spin = std::chrono::microseconds(given.spin_us);
    opened.reconnect = std::chrono::milliseconds(given.reconnect_ms);
    if (given.never_spin) opened.spin = std::chrono::microseconds(0);
    return open_region(std::move(opened), region);
  });
}

perdure_code perdure_region_open_string(const char* connection, perdure_region** region) {
  return guarded([&]() -> perdure_code {
    if (connection == nullptr || region == nullptr) {
      return fail("connection and region must not be NULL");
    }
    return open_region(perdure::parse_region_options(connection), region);
  });
}

perdure_code perdure_region_open_file(const char* path, perdure_region** region) {
  return guarded([&]() -> perdure_code {
    if (path == nullptr || region == nullptr) return fail("path and region must not be NULL");
    return open_region(perdure::read_region_options(path), region);
  });
}

perdure_code perdure_region_close(perdure_region* region, uint32_t timeout_ms) {
  return guarded([&]() -> perdure_code {
    if (region == nullptr) return PERDURE_OK;
    const std::unique_ptr<perdure_region> freed(region);
    return code_of(region->region.close(std::chrono::milliseconds(timeout_ms)));
  });
}

perdure_code perdure_region_write(perdure_region* region, const perdure_range* ranges, size_t count,
                                  perdure_region_ticket* ticket) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || ticket == nullptr || (ranges == nullptr && count != 0)) {
      return fail("region, ranges and ticket must not be NULL");
    }
    std::vector<perdure::RangeWrite> writes;
    std::vector<perdure::RangeEpoch> epochs;
    writes.reserve(count);  // epochs point into it
    for (std::size_t index = 0; index < count; ++index) {
      const perdure_range& range = ranges[index];
      if (range.bytes == nullptr && range.length != 0) return fail("the bytes of a range are NULL");
      if (index != 0 && range.epoch < ranges[index - 1].epoch) return fail("epochs count upwards");
      const bool next = index == 0 || range.epoch != ranges[index - 1].epoch;
      writes.push_back({range.at, {static_cast<const std::byte*>(range.bytes), range.length}});
      if (next) epochs.emplace_back(&writes.back(), 0);
      epochs.back() = {epochs.back().data(), epochs.back().size() + 1};
    }
    const auto begun = region->region.write(epochs);
    if (!begun.ok()) return fail(begun.error());
    *ticket = {begun->number, begun->writer};
    return PERDURE_OK;
  });
}

perdure_code perdure_region_wait(perdure_region* region, const perdure_region_ticket* ticket,
                                 perdure_level level, uint32_t timeout_ms) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || ticket == nullptr) return fail("region and ticket must not be NULL");
    if (!known(level)) return fail("unknown level");
    return code_of(region->region.wait({ticket->number, ticket->writer}, static_cast<Level>(level),
                                       std::chrono::milliseconds(timeout_ms)));
  });
}

perdure_code perdure_region_flush(perdure_region* region, perdure_level level,
                                  uint32_t timeout_ms) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr) return fail("region must not be NULL");
    if (!known(level)) return fail("unknown level");
    return code_of(
        region->region.flush(static_cast<Level>(level), std::chrono::milliseconds(timeout_ms)));
  });
}

perdure_code perdure_region_reached(const perdure_region* region,
                                    const perdure_region_ticket* ticket, perdure_level level,
                                    bool* yes) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || ticket == nullptr || yes == nullptr) {
      return fail("region, ticket and yes must not be NULL");
    }
    if (!known(level)) return fail("unknown level");
    *yes = region->region.reached({ticket->number, ticket->writer}, static_cast<Level>(level));
    return PERDURE_OK;
  });
}

perdure_code perdure_region_poll(perdure_region* region) {
  return perdure_region_poll_within(region, 0);
}

perdure_code perdure_region_poll_within(perdure_region* region, uint32_t timeout_ms) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr) return fail("region must not be NULL");
    return code_of(region->region.poll(std::chrono::milliseconds(timeout_ms)));
  });
}

perdure_code perdure_region_fetch_add(perdure_region* region, uint64_t at, uint64_t addend,
                                      uint64_t* before) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || before == nullptr) return fail("region and before must not be NULL");
    return answer(region->region.fetch_add(at, addend), before);
  });
}

perdure_code perdure_region_compare_swap(perdure_region* region, uint64_t at, uint64_t expected,
                                         uint64_t value, uint64_t* before) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || before == nullptr) return fail("region and before must not be NULL");
    return answer(region->region.compare_swap(at, expected, value), before);
  });
}

perdure_code perdure_region_store(perdure_region* region, uint64_t at, uint64_t value,
                                  uint64_t* before) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || before == nullptr) return fail("region and before must not be NULL");
    return answer(region->region.store(at, value), before);
  });
}

perdure_code perdure_region_read(perdure_region* region, uint64_t at, void* into, size_t length,
                                 size_t replica) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || (into == nullptr && length != 0)) {
      return fail("region and into must not be NULL");
    }
    return code_of(region->region.read(at, {static_cast<std::byte*>(into), length}, replica));
  });
}

perdure_code perdure_region_completion_fd(perdure_region* region, int* fd) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || fd == nullptr) return fail("region and fd must not be NULL");
    const auto result = region->region.completion_fd();
    if (!result.ok()) return fail(result.error());
    *fd = *result;
    return PERDURE_OK;
  });
}

perdure_code perdure_region_arm(perdure_region* region, bool* armed) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || armed == nullptr) return fail("region and armed must not be NULL");
    *armed = region->region.arm();
    return PERDURE_OK;
  });
}

perdure_code perdure_region_note_equal(perdure_region* region) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr) return fail("region must not be NULL");
    return code_of(region->region.note_equal());
  });
}

perdure_code perdure_region_get_status(const perdure_region* region,
                                       perdure_region_status* status) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || status == nullptr) return fail("region and status must not be NULL");
    const perdure::RegionStatus now = region->region.status();
    perdure_region_status told{};
    told.bytes = now.bytes;
    told.begun = now.begun;
    told.committed = now.committed;
    told.quorum = now.quorum;
    told.replicas = now.replicas.size();
    for (const perdure::RegionReplicaStatus& replica : now.replicas) {
      told.replicas_up += replica.up ? 1 : 0;
      told.replicas_whole += replica.whole ? 1 : 0;
    }
    told.may_differ = now.may_differ;
    told.epoch = now.epoch.value;
    return give_sized(told, status);
  });
}

perdure_code perdure_region_get_replicas(const perdure_region* region,
                                         perdure_region_replica_status* replicas, size_t count,
                                         size_t* there) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || there == nullptr || (replicas == nullptr && count != 0)) {
      return fail("region, replicas and there must not be NULL");
    }
    return give_all(region->region.status().replicas, replicas, count, there, replica_of);
  });
}

perdure_code perdure_region_get_times(const perdure_region* region, perdure_region_times* times) {
  return guarded(region, [&]() -> perdure_code {
    if (region == nullptr || times == nullptr) return fail("region and times must not be NULL");
    const perdure::RegionTimes now = region->region.times();
    perdure_region_times told{};
    told.durable = counts_of(now.durable);
    told.committed = counts_of(now.committed);
    told.reads = counts_of(now.reads);
    told.atomics = counts_of(now.atomics);
    return give_sized(told, times);
  });
}
