// The C interface of mirrors.
#include <perdure/mirror.h>
#include <perdure/perdure.h>

#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "capi/failure.h"

using perdure::Mirror;
using perdure::MirrorMemory;
using perdure::MirrorStart;
using perdure::MirrorTicket;
using perdure::Result;
using perdure::capi::code_of;
using perdure::capi::counts_of;
using perdure::capi::fail;
using perdure::capi::give_all;
using perdure::capi::give_sized;
using perdure::capi::give_text;
using perdure::capi::guarded;
using perdure::capi::take_peers;

struct perdure_mirror {
  Mirror mirror;
  perdure::capi::Origin origin = {};
};

PERDURE_CAPI_ENDS_WITH(perdure_mirror_options, memory_file);
PERDURE_CAPI_ENDS_WITH(perdure_mirror_status, generation);
PERDURE_CAPI_ENDS_WITH(perdure_mirror_replica_status, reserved);

namespace {

std::chrono::milliseconds ms(std::uint32_t count) { return std::chrono::milliseconds(count); }

perdure_code ticket_begun(const Result<MirrorTicket>& result, std::uint64_t* ticket) {
  if (!result.ok()) return fail(result.error());
  *ticket = result->number;
  return PERDURE_OK;
}

Result<MirrorMemory> mirror_memory_of(const perdure_mirror_options& given) {
  const auto wrong = [](const char* what) {
    return perdure::Error{perdure::ErrorCode::InvalidArgument, what};
  };
  if ((given.file != nullptr) == (given.memory != nullptr)) {
    return wrong("a mirror takes a file or memory, one of them");
  }
  if (given.file != nullptr) {
    if (given.memory_bytes != 0 || given.memory_domain != nullptr || given.memory_file != nullptr) {
      return wrong("memory_bytes, memory_domain and memory_file are of memory, not of a file");
    }
    return given.create_bytes == 0 ? MirrorMemory::file(given.file)
                                   : MirrorMemory::create_file(given.file, given.create_bytes);
  }
  if (given.create_bytes != 0) return wrong("create_bytes is of a file, not of memory");
  auto domain = given.memory_file == nullptr ? perdure::PersistenceDomain::None
                                             : perdure::PersistenceDomain::Page;
  if (given.memory_domain != nullptr) {
    const auto parsed = perdure::parse_persistence_domain(given.memory_domain);
    if (!parsed.ok()) return parsed.error();
    domain = *parsed;
  }
  const std::span memory(static_cast<std::byte*>(given.memory), given.memory_bytes);
  return given.memory_file == nullptr ? MirrorMemory::bytes(memory, domain)
                                      : MirrorMemory::bytes_of(given.memory_file, memory, domain);
}

perdure_code mirror_options_of(const perdure_mirror_options* options, perdure_mirror_options& given,
                               perdure::MirrorOptions& opened) {
  const perdure_code code = take_peers(options, given, opened);
  if (code != PERDURE_OK) return code;
  if (given.start != nullptr) {
    if (auto set = set_option(opened, "start", given.start); !set) return fail(set.error());
  }
  opened.without_missing = given.without_missing;
  opened.only_copies = given.only_copies;
  if (given.staging_bytes != 0) opened.staging_bytes = given.staging_bytes;
  if (given.peer_timeout_ms != 0) opened.peer_timeout = ms(given.peer_timeout_ms);
  if (given.reconnect_ms != 0) opened.reconnect = ms(given.reconnect_ms);
  if (given.never_reconnect) opened.reconnect = ms(0);
  if (given.spin_us != 0) opened.spin = std::chrono::microseconds(given.spin_us);
  if (given.never_spin) opened.spin = std::chrono::microseconds(0);
  return PERDURE_OK;
}

perdure_code open_mirror(const perdure_mirror_options& given, perdure::MirrorOptions options,
                         perdure_mirror** mirror) {
  auto memory = mirror_memory_of(given);
  if (!memory.ok()) return fail(memory.error());
  auto result = Mirror::open(std::move(memory).value(), std::move(options));
  if (!result.ok()) return fail(result.error());
  *mirror = new perdure_mirror{std::move(result).value()};
  return PERDURE_OK;
}

/// `memory` as the caller has set it; the options are in words.
perdure_code open_mirror_of(const perdure_mirror_options& memory,
                            perdure::Result<perdure::MirrorOptions> options,
                            perdure_mirror** mirror) {
  if (!options.ok()) return fail(options.error());
  perdure_mirror_options given{};
  if (!perdure::capi::take_sized(&memory, given)) return perdure::capi::fail_of_size();
  perdure_mirror_options only{};
  only.size = given.size;
  only.file = given.file;
  only.create_bytes = given.create_bytes;
  only.memory = given.memory;
  only.memory_bytes = given.memory_bytes;
  only.memory_domain = given.memory_domain;
  only.memory_file = given.memory_file;
  if (std::memcmp(&only, &given, sizeof only) != 0) {
    return fail("memory: only what is about the memory may be set, the rest is in words");
  }
  return open_mirror(only, std::move(options).value(), mirror);
}

/// Epochs as C gives them: ranges in a row, each with the number of its epoch.
template <typename Each>
class Epochs {
 public:
  explicit Epochs(std::size_t count) { ranges_.reserve(count); }  // epochs point into it

  /// False: epochs do not count upwards.
  bool add(Each range, std::uint32_t epoch) {
    if (!ranges_.empty() && epoch < last_) return false;
    const bool next = ranges_.empty() || epoch != last_;
    last_ = epoch;
    ranges_.push_back(std::move(range));
    if (next) epochs_.emplace_back(&ranges_.back(), 0);
    epochs_.back() = {epochs_.back().data(), epochs_.back().size() + 1};
    return true;
  }
  std::span<const std::span<const Each>> all() const { return epochs_; }

 private:
  std::vector<Each> ranges_;
  std::vector<std::span<const Each>> epochs_;
  std::uint32_t last_ = 0;
};

perdure_mirror_replica_status mirror_replica_of(const perdure::MirrorReplicaStatus& replica) {
  perdure_mirror_replica_status told{};
  told.compared = replica.compared;
  told.dirty_bytes = replica.dirty_bytes;
  told.copied_bytes = replica.copied_bytes;
  told.returned = replica.returned;
  told.state = static_cast<perdure_mirror_state>(replica.state);
  give_text(replica.peer, told.peer);
  give_text(replica.pool_uuid, told.pool_uuid);
  give_text(replica.small_method, told.small_method);
  give_text(replica.large_method, told.large_method);
  give_text(replica.small_family, told.small_family);
  give_text(replica.large_family, told.large_family);
  if (replica.state != perdure::MirrorReplicaState::Lost) {
    give_text(perdure::describe(replica.profile), told.profile);
  }
  give_text(replica.down_reason, told.down_reason);
  return told;
}

}  // namespace

static_assert(static_cast<int>(perdure::MirrorReplicaState::InSync) == PERDURE_MIRROR_IN_SYNC);

perdure_code perdure_mirror_open(const perdure_mirror_options* options, perdure_mirror** mirror) {
  return guarded([&]() -> perdure_code {
    if (options == nullptr || mirror == nullptr) return fail("options and mirror must not be NULL");
    perdure_mirror_options given{};
    perdure::MirrorOptions opened;
    const perdure_code code = mirror_options_of(options, given, opened);
    if (code != PERDURE_OK) return code;
    return open_mirror(given, std::move(opened), mirror);
  });
}

perdure_code perdure_mirror_open_string(const char* connection,
                                        const perdure_mirror_options* memory,
                                        perdure_mirror** mirror) {
  return guarded([&]() -> perdure_code {
    if (connection == nullptr || memory == nullptr || mirror == nullptr) {
      return fail("connection, memory and mirror must not be NULL");
    }
    return open_mirror_of(*memory, perdure::parse_mirror_options(connection), mirror);
  });
}

perdure_code perdure_mirror_open_file(const char* path, const perdure_mirror_options* memory,
                                      perdure_mirror** mirror) {
  return guarded([&]() -> perdure_code {
    if (path == nullptr || memory == nullptr || mirror == nullptr) {
      return fail("path, memory and mirror must not be NULL");
    }
    return open_mirror_of(*memory, perdure::read_mirror_options(path), mirror);
  });
}

perdure_code perdure_mirror_close(perdure_mirror* mirror, uint32_t timeout_ms) {
  return guarded([&]() -> perdure_code {
    if (mirror == nullptr) return PERDURE_OK;
    const std::unique_ptr<perdure_mirror> freed(mirror);
    return code_of(mirror->mirror.close(ms(timeout_ms)));
  });
}

void* perdure_mirror_memory(const perdure_mirror* mirror, size_t* bytes) {
  const auto memory = mirror == nullptr ? std::span<std::byte>{} : mirror->mirror.memory();
  if (bytes != nullptr) *bytes = memory.size();
  return memory.data();
}

perdure_code perdure_mirror_persist(perdure_mirror* mirror, uint64_t at, uint64_t length,
                                    uint32_t timeout_ms) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr) return fail("mirror must not be NULL");
    return code_of(mirror->mirror.persist(at, length, ms(timeout_ms)));
  });
}

perdure_code perdure_mirror_deep_persist(perdure_mirror* mirror, uint64_t at, uint64_t length,
                                         uint32_t timeout_ms) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr) return fail("mirror must not be NULL");
    return code_of(mirror->mirror.deep_persist(at, length, ms(timeout_ms)));
  });
}

perdure_code perdure_mirror_flush(perdure_mirror* mirror, uint64_t at, uint64_t length,
                                  uint64_t* ticket) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr || ticket == nullptr) return fail("mirror and ticket must not be NULL");
    return ticket_begun(mirror->mirror.flush(at, length), ticket);
  });
}

perdure_code perdure_mirror_wait(perdure_mirror* mirror, uint64_t ticket, uint32_t timeout_ms) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr) return fail("mirror must not be NULL");
    return code_of(mirror->mirror.wait({ticket}, ms(timeout_ms)));
  });
}

perdure_code perdure_mirror_drain(perdure_mirror* mirror, uint32_t timeout_ms) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr) return fail("mirror must not be NULL");
    return code_of(mirror->mirror.drain(ms(timeout_ms)));
  });
}

perdure_code perdure_mirror_reached(const perdure_mirror* mirror, uint64_t ticket, bool* yes) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr || yes == nullptr) return fail("mirror and yes must not be NULL");
    *yes = mirror->mirror.reached({ticket});
    return PERDURE_OK;
  });
}

perdure_code perdure_mirror_flush_ordered(perdure_mirror* mirror,
                                          const perdure_mirror_range* ranges, size_t count,
                                          uint64_t* ticket) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr || ticket == nullptr || (ranges == nullptr && count != 0)) {
      return fail("mirror, ranges and ticket must not be NULL");
    }
    Epochs<perdure::MirrorRange> epochs(count);
    for (std::size_t index = 0; index < count; ++index) {
      const perdure_mirror_range& range = ranges[index];
      if (!epochs.add({range.at, range.length}, range.epoch)) return fail("epochs count upwards");
    }
    return ticket_begun(mirror->mirror.flush_ordered(epochs.all()), ticket);
  });
}

perdure_code perdure_mirror_write(perdure_mirror* mirror, const perdure_range* ranges, size_t count,
                                  uint64_t* ticket) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr || ticket == nullptr || (ranges == nullptr && count != 0)) {
      return fail("mirror, ranges and ticket must not be NULL");
    }
    Epochs<perdure::MirrorWrite> epochs(count);
    for (std::size_t index = 0; index < count; ++index) {
      const perdure_range& range = ranges[index];
      if (range.bytes == nullptr && range.length != 0) return fail("the bytes of a range are NULL");
      const std::span bytes(static_cast<const std::byte*>(range.bytes), range.length);
      if (!epochs.add({range.at, bytes}, range.epoch)) return fail("epochs count upwards");
    }
    return ticket_begun(mirror->mirror.write(epochs.all()), ticket);
  });
}

perdure_code perdure_mirror_write_atomic(perdure_mirror* mirror, uint64_t at, uint64_t value,
                                         uint32_t timeout_ms) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr) return fail("mirror must not be NULL");
    return code_of(mirror->mirror.write_atomic(at, value, ms(timeout_ms)));
  });
}

perdure_code perdure_mirror_read(perdure_mirror* mirror, uint64_t at, void* into, size_t length,
                                 size_t replica) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr || (into == nullptr && length != 0)) {
      return fail("mirror and into must not be NULL");
    }
    return code_of(mirror->mirror.read(at, {static_cast<std::byte*>(into), length}, replica));
  });
}

perdure_code perdure_mirror_wait_in_sync(perdure_mirror* mirror, uint32_t timeout_ms) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr) return fail("mirror must not be NULL");
    return code_of(mirror->mirror.wait_in_sync(ms(timeout_ms)));
  });
}

perdure_code perdure_mirror_get_status(const perdure_mirror* mirror,
                                       perdure_mirror_status* status) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr || status == nullptr) return fail("mirror and status must not be NULL");
    const perdure::MirrorStatus now = mirror->mirror.status();
    perdure_mirror_status told{};
    told.bytes = now.bytes;
    told.begun = now.begun;
    told.committed = now.committed;
    told.quorum = now.quorum;
    told.replicas = now.replicas.size();
    told.in_sync = now.in_sync;
    told.epoch = now.epoch.value;
    told.generation = now.generation;
    return give_sized(told, status);
  });
}

perdure_code perdure_mirror_get_times(const perdure_mirror* mirror, perdure_mirror_times* times) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr || times == nullptr) return fail("mirror and times must not be NULL");
    const perdure::MirrorTimes now = mirror->mirror.times();
    perdure_mirror_times told{};
    told.durable = counts_of(now.durable);
    told.reads = counts_of(now.reads);
    return give_sized(told, times);
  });
}

perdure_code perdure_mirror_get_replicas(const perdure_mirror* mirror,
                                         perdure_mirror_replica_status* replicas, size_t count,
                                         size_t* there) {
  return guarded(mirror, [&]() -> perdure_code {
    if (mirror == nullptr || there == nullptr || (replicas == nullptr && count != 0)) {
      return fail("mirror, replicas and there must not be NULL");
    }
    return give_all(mirror->mirror.status().replicas, replicas, count, there, mirror_replica_of);
  });
}
