// What both ends say of pools and ask of sessions, however it travels.
#pragma once

#include <perdure/pool.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace perdure::control {

using perdure::PoolDescription;
using perdure::PoolStatus;

struct PoolRequest {
  std::string name;         // [A-Za-z0-9._-], at most kPoolNameMax characters, no leading '.'
  std::uint64_t bytes = 0;  // of the exported part; rounded up to 4 KiB
  // See perdure::PoolOptions. Left out of the document where they ask for nothing, for the sake of
  // older daemons; one that knows no such field refuses it.
  PersistenceDomain required_domain = PersistenceDomain::None;
  std::optional<ReceiveBuffers> receive_buffers{};
};

inline constexpr std::size_t kPoolNameMax = 64;
inline constexpr std::uint64_t kPoolBytesMin = 4096;
inline constexpr std::uint64_t kPoolBytesMax = std::uint64_t{1} << 45;  // 32 TiB
inline constexpr std::size_t kWriterNameMax = 64;  // bytes of UTF-8, without control characters

struct SessionRequest {
  std::string pool;
  bool write = false;        // false: the session may only read
  Epoch epoch;               // write: the writer's epoch
  std::uint64_t writer = 0;  // write: a random id of the writer; the same writer may come again
  std::string writer_name;   // for people: program, host, process
  bool take_over = false;    // write: end the session of an earlier writer that is still there
  bool for_writer = false;   // reads for a writer (opening, repair): has room where writers have
};

/// Whether a request makes sense by itself. Errors: InvalidArgument, naming the field.
Result<void> validate(const PoolRequest& request);
Result<void> validate(const SessionRequest& request);
Result<void> validate_pool_name(std::string_view name);

}  // namespace perdure::control
