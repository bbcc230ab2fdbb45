// Atomics: see atomics.h.
#include "persist/atomics.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "core/bytes.h"
#include "core/try.h"
#include "persist/deep_flush.h"
#include "persist/ordered.h"
#include "persist/page_digests.h"

namespace perdure::persist {
namespace {

/// What the word was before.
std::uint64_t execute_atomic(const Atomic& atomic, std::byte* at) {
  const std::atomic_ref<std::uint64_t> word(*reinterpret_cast<std::uint64_t*>(at));
  switch (atomic.operation) {
    case AtomicOperation::FetchAdd: return word.fetch_add(atomic.operand);
    case AtomicOperation::Store: return word.exchange(atomic.operand);
    case AtomicOperation::CompareSwap: break;
  }
  std::uint64_t before = atomic.expected;
  word.compare_exchange_strong(before, atomic.operand);
  return before;
}

class AtomicHandler final : public RequestHandler {
 public:
  bool writes() const override { return true; }

  Result<std::size_t> handle(Request& request) override {
    PERDURE_TRY(atomic, decode_atomic(request.payload()));
    PERDURE_TRY_VOID(check_atomic(atomic, request.pool().size()));
    if (request.reply().size() < kAtomicBytes) {
      return Error{ErrorCode::InvalidArgument, "no room for the old value"};
    }
    store(request.reply().data(), execute_atomic(atomic, request.pool().data() + atomic.at));
    // Also where nothing was changed: whoever is told a value may act on it.
    request.make_durable(atomic.at, kAtomicBytes);
    return kAtomicBytes;
  }
};

}  // namespace

Result<void> check_atomic(const Atomic& atomic, std::uint64_t pool_bytes) {
  if (atomic.at % kAtomicBytes != 0) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("an atomic at byte {}; it takes 8 bytes at a multiple of 8", atomic.at)};
  }
  if (pool_bytes < kAtomicBytes || atomic.at > pool_bytes - kAtomicBytes) {
    return Error{
        ErrorCode::OutOfRange,
        fmt::format("an atomic at byte {} lies outside the pool's {}", atomic.at, pool_bytes)};
  }
  return {};
}

AtomicPayload encode_atomic(const Atomic& atomic) {
  AtomicPayload payload{};
  payload[0] = static_cast<std::byte>(atomic.operation);
  store(payload.data() + 8, atomic.at);
  store(payload.data() + 16, atomic.operand);
  store(payload.data() + 24, atomic.expected);
  return payload;
}

Result<Atomic> decode_atomic(std::span<const std::byte> payload) {
  const auto wrong = [](const char* what) {
    return Error{ErrorCode::InvalidArgument, fmt::format("a request for an atomic with {}", what)};
  };
  if (payload.size() != kAtomicPayloadBytes) return wrong("another length");
  Atomic atomic;
  atomic.operation = static_cast<AtomicOperation>(load<std::uint8_t>(payload.data()));
  atomic.at = load<std::uint64_t>(payload.data() + 8);
  atomic.operand = load<std::uint64_t>(payload.data() + 16);
  atomic.expected = load<std::uint64_t>(payload.data() + 24);
  const auto reserved = payload.subspan(1, 7);
  const auto zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (!std::all_of(reserved.begin(), reserved.end(), zero)) return wrong("an unknown field");
  switch (atomic.operation) {
    case AtomicOperation::CompareSwap: return atomic;
    case AtomicOperation::FetchAdd:
    case AtomicOperation::Store: break;
    default: return wrong("an unknown operation");
  }
  if (atomic.expected != 0) return wrong("an expected value where none is compared");
  return atomic;
}

RequestHandlers built_in_handlers() {
  static AtomicHandler atomics;
  RequestHandlers handlers{};
  handlers[static_cast<std::size_t>(MessageKind::Atomic)] = &atomics;
  handlers[static_cast<std::size_t>(MessageKind::Ordered)] = &ordered_handler();
  handlers[static_cast<std::size_t>(MessageKind::Digests)] = &page_digest_handler();
  handlers[static_cast<std::size_t>(MessageKind::DeepFlush)] = &deep_flush_handler();
  return handlers;
}

}  // namespace perdure::persist
