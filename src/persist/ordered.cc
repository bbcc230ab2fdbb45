// Ordered updates: see ordered.h.
#include "persist/ordered.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/try.h"
#include "core/whole_words.h"

namespace perdure::persist {
namespace {

struct OrderedRange {
  std::uint64_t at = 0;
  std::uint32_t length = 0;
  std::uint32_t epoch = 0;
};

OrderedRange range_at(std::span<const std::byte> payload, std::size_t index) {
  const std::byte* const at = payload.data() + kOrderedHeadBytes + index * kOrderedRangeBytes;
  return {load<std::uint64_t>(at), load<std::uint32_t>(at + 8), load<std::uint32_t>(at + 12)};
}

/// How many ranges there are. Trusts nothing of `payload`.
Result<std::size_t> check_ordered(const Request& request) {
  const auto wrong = [](const char* what) {
    return Error{ErrorCode::InvalidArgument, fmt::format("an ordered update with {}", what)};
  };
  const std::span<const std::byte> payload = request.payload();
  if (payload.size() < kOrderedHeadBytes) return wrong("no head");
  const std::size_t ranges = load<std::uint32_t>(payload.data());
  if (load<std::uint32_t>(payload.data() + 4) != 0) return wrong("an unknown field");
  if (ranges == 0 || ranges > kOrderedRangesMax) return wrong("no ranges, or too many");
  std::size_t bytes = kOrderedHeadBytes + ranges * kOrderedRangeBytes;
  if (payload.size() < bytes) return wrong("fewer ranges than it says");
  std::uint32_t epoch = 0;
  for (std::size_t index = 0; index < ranges; ++index) {
    const OrderedRange range = range_at(payload, index);
    if (range.length == 0) return wrong("a range of no bytes");
    if (!request.inside_pool(range.at, range.length)) {
      return Error{ErrorCode::OutOfRange, "an ordered update of bytes outside the pool"};
    }
    if (range.epoch != epoch && (index == 0 || range.epoch != epoch + 1)) {
      return wrong("epochs that are out of order");
    }
    epoch = range.epoch;
    bytes += range.length;
  }
  if (payload.size() != bytes) return wrong("more or fewer bytes than its ranges have");
  return ranges;
}

class OrderedHandler final : public RequestHandler {
 public:
  bool writes() const override { return true; }

  Result<std::size_t> handle(Request& request) override {
    PERDURE_TRY(ranges, check_ordered(request));
    const std::span<const std::byte> payload = request.payload();
    std::size_t from = kOrderedHeadBytes + ranges * kOrderedRangeBytes;
    std::uint32_t epoch = 0;
    for (std::size_t index = 0; index < ranges; ++index) {
      const OrderedRange range = range_at(payload, index);
      if (range.epoch != epoch) PERDURE_TRY_VOID(request.flush_now());
      epoch = range.epoch;
      copy_whole_words(request.pool().data() + range.at, payload.subspan(from, range.length));
      request.make_durable(range.at, range.length);
      from += range.length;
    }
    return std::size_t{0};
  }
};

}  // namespace

std::span<const std::byte> encode_ordered(std::span<const std::span<const UpdateItem>> epochs,
                                          std::vector<std::byte>& payload) {
  OrderedSize size;
  for (const auto& epoch : epochs) {
    for (const UpdateItem& item : epoch) size = size.with(item.data.length);
  }
  PERDURE_ASSERT(size.ranges <= kOrderedRangesMax);
  if (payload.size() < size.bytes()) payload.resize(size.bytes());
  std::uint32_t ranges = 0;
  for (std::uint32_t epoch = 0; epoch < epochs.size(); ++epoch) {
    for (const UpdateItem& item : epochs[epoch]) {
      std::byte* const at = payload.data() + kOrderedHeadBytes + ranges * kOrderedRangeBytes;
      store(at, item.at);
      store(at + 8, static_cast<std::uint32_t>(item.data.length));
      store(at + 12, epoch);
      ++ranges;
    }
  }
  store(payload.data(), ranges);
  store(payload.data() + 4, std::uint32_t{0});
  std::byte* to = payload.data() + kOrderedHeadBytes + ranges * kOrderedRangeBytes;
  for (const auto& epoch : epochs) {
    for (const UpdateItem& item : epoch) {
      load_whole_words(to, {item.data.data, item.data.length});
      to += item.data.length;
    }
  }
  return std::span(payload).first(size.bytes());
}

RequestHandler& ordered_handler() {
  static OrderedHandler handler;
  return handler;
}

}  // namespace perdure::persist
