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
#include <optional>
#include <span>
#include <vector>

namespace perdure::persist {

/// One request as its handler sees it. Everything that came before it on its connection is visible
/// in the pool: messages are copied, and WRITEs are placed.
class Request {
 public:
  /// `exported` is what the session may touch of the region; what is to be durable goes behind
  /// `pending`. `dirties`: pages that a flush names are made dirty first (Region::dirty_pages).
  Request(std::span<const std::byte> payload, std::span<std::byte> reply, pmem::Region& region,
          pmem::Range exported, std::vector<pmem::Range>& pending, bool dirties)
      : payload_(payload),
        reply_(reply),
        region_(region),
        pool_(region.bytes().subspan(exported.at, exported.length)),
        pool_at_(exported.at),
        pending_(pending),
        dirties_(dirties) {}

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
    const pmem::Range range{pool_at_ + at, length};
    pending_.push_back(range);
    if (dirties_) to_dirty_.push_back(range);
  }
  /// Makes what make_durable named durable now: before anything that is stored from here on.
  /// Errors: the medium refused; the session is over then, whatever the handler returns.
  Result<void> flush_now() {
    dirty_named();
    auto flushed = region_.flush(std::span<const pmem::Range>(pending_));
    pending_.clear();
    if (!flushed.ok()) medium_failed_ = flushed.error();
    return flushed;
  }
  /// Makes these bytes durable beyond the memory controller, now. Requires inside_pool.
  /// Errors: Unsupported: of this medium; else as for flush_now.
  Result<void> deep_flush_now(std::uint64_t at, std::uint64_t length) {
    PERDURE_ASSERT(inside_pool(at, length));
    const pmem::Range range{pool_at_ + at, length};
    if (dirties_) region_.dirty_pages(range);
    auto flushed = region_.deep_flush(range);
    if (!flushed.ok() && flushed.code() != ErrorCode::Unsupported) medium_failed_ = flushed.error();
    return flushed;
  }
  /// For the responder: what the handler found in what it named a WRITE may have brought.
  void dirty_named() {
    for (const pmem::Range& range : to_dirty_) region_.dirty_pages(range);
    to_dirty_.clear();
  }
  const std::optional<Error>& medium_failed() const { return medium_failed_; }

 private:
  std::span<const std::byte> payload_;
  std::span<std::byte> reply_;
  pmem::Region& region_;
  std::span<std::byte> pool_;
  std::uint64_t pool_at_;
  std::vector<pmem::Range>& pending_;
  bool dirties_;
  std::vector<pmem::Range> to_dirty_;
  std::optional<Error> medium_failed_;
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
