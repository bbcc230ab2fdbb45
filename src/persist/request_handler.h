// RequestHandler: what a responder's program does for one kind of message and answers. Atomics
// (atomics.h) are the first; durable RPC is another.
#pragma once

#include <perdure/result.h>

#include "core/assert.h"
#include "persist/wire.h"
#include "pmem/region.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace perdure::persist {

/// One request as its handler sees it. Everything that came before it on its connection is visible
/// in the pool: messages are copied, and WRITEs are placed.
class Request {
 public:
  /// `pool` is what the session may touch of the region, `pool_at` where that begins; what is to be
  /// durable goes behind `pending`.
  Request(std::span<const std::byte> payload, std::span<std::byte> reply, std::span<std::byte> pool,
          std::uint64_t pool_at, std::vector<pmem::Range>& pending)
      : payload_(payload), reply_(reply), pool_(pool), pool_at_(pool_at), pending_(pending) {}

  /// As it came from the network: nothing of it is to be trusted.
  std::span<const std::byte> payload() const { return payload_; }
  /// Room for the payload of the reply.
  std::span<std::byte> reply() const { return reply_; }
  /// The exported part of the pool.
  std::span<std::byte> pool() const { return pool_; }
  /// Whether bytes `at`+`length` lie inside the pool.
  bool inside_pool(std::uint64_t at, std::uint64_t length) const {
    return length <= pool_.size() && at <= pool_.size() - length;
  }
  /// These bytes of the pool are durable before the reply leaves. Requires inside_pool.
  void make_durable(std::uint64_t at, std::uint64_t length) {
    PERDURE_ASSERT(inside_pool(at, length));
    pending_.push_back({pool_at_ + at, length});
  }

 private:
  std::span<const std::byte> payload_;
  std::span<std::byte> reply_;
  std::span<std::byte> pool_;
  std::uint64_t pool_at_;
  std::vector<pmem::Range>& pending_;
};

/// Threads: handle is called by the threads of many sessions at a time.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  /// Whether it may change the pool. A session that may only read is then refused.
  virtual bool writes() const = 0;
  /// Does what was asked for, once, and returns how many bytes of reply() it has written.
  /// Errors: nothing was executed. The requester gets the code, and the session goes on.
  /// Cost: the session's other messages wait for it.
  virtual Result<std::size_t> handle(Request& request) = 0;
};

/// By MessageKind; none: requests of that kind are answered with Unsupported.
using RequestHandlers = std::array<RequestHandler*, kMessageKinds>;

/// Those that every responder has.
RequestHandlers built_in_handlers();

}  // namespace perdure::persist
