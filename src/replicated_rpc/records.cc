// Calls and effects as bytes.
#include "replicated_rpc/records.h"

#include "core/bytes.h"
#include "core/try.h"

namespace perdure::replicated_rpc {
namespace {

Error senseless(const char* what) {
  return {ErrorCode::Corrupt,
          std::string("a record of ") + what +
              " makes no sense: something else than this service has written to its log"};
}

std::string_view text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

void append(std::vector<std::byte>& to, std::span<const std::byte> bytes) {
  to.insert(to.end(), bytes.begin(), bytes.end());
}

}  // namespace

std::vector<std::byte> encode_call_head(const CallRecord& call) {
  std::vector<std::byte> head(kCallHeadBytes);
  store(head.data(), static_cast<std::uint32_t>(call.kind));
  store(head.data() + 4, call.operation);
  store(head.data() + 8, call.client_id);
  store(head.data() + 16, call.sequence);
  store(head.data() + 24, call.order_key);
  return head;
}

Result<CallRecord> decode_call(std::span<const std::byte> record) {
  if (record.size() < kCallHeadBytes) return senseless("calls");
  CallRecord call;
  call.kind = static_cast<CallKind>(load<std::uint32_t>(record.data()));
  call.operation = load<std::uint32_t>(record.data() + 4);
  call.client_id = load<std::uint64_t>(record.data() + 8);
  call.sequence = load<std::uint64_t>(record.data() + 16);
  call.order_key = load<std::uint64_t>(record.data() + 24);
  call.payload = record.subspan(kCallHeadBytes);
  const bool first = call.kind == CallKind::First && call.sequence == 0;
  const bool later = call.kind == CallKind::Call && call.sequence != 0;
  if (!first && !later) return senseless("calls");
  return call;
}

std::uint64_t item_bytes(std::size_t name, std::size_t bytes) {
  return round_up(kItemHeadBytes + name + bytes, 8);
}

void append_item(std::vector<std::byte>& record, const RecordItem& item) {
  std::byte head[kItemHeadBytes];
  store(head, static_cast<std::uint32_t>(item.type));
  store(head + 4, item.generation);
  store(head + 8, item.number);
  store(head + 16, item.sequence);
  store(head + 24, item.status);
  store(head + 28, static_cast<std::uint32_t>(item.name.size()));
  store(head + 32, static_cast<std::uint64_t>(item.bytes.size()));
  append(record, head);
  append(record, std::as_bytes(std::span(item.name)));
  append(record, item.bytes);
  record.resize(round_up(record.size(), 8));
}

Result<void> for_each_item(std::span<const std::byte> record,
                           const std::function<Result<void>(const RecordItem&)>& visit) {
  while (!record.empty()) {
    if (record.size() < kItemHeadBytes) return senseless("effects");
    const auto type = load<std::uint32_t>(record.data());
    const std::uint64_t name = load<std::uint32_t>(record.data() + 28);
    const auto bytes = load<std::uint64_t>(record.data() + 32);
    const std::uint64_t room = record.size() - kItemHeadBytes;
    const bool known = type >= static_cast<std::uint32_t>(ItemType::Sizes) &&
                       type <= static_cast<std::uint32_t>(ItemType::Tried);
    if (!known || name > room || bytes > room - name) return senseless("effects");
    RecordItem item;
    item.type = static_cast<ItemType>(type);
    item.generation = load<std::uint32_t>(record.data() + 4);
    item.number = load<std::uint64_t>(record.data() + 8);
    item.sequence = load<std::uint64_t>(record.data() + 16);
    item.status = load<std::uint32_t>(record.data() + 24);
    item.name = text(record.subspan(kItemHeadBytes, name));
    item.bytes = record.subspan(kItemHeadBytes + name, bytes);
    PERDURE_TRY_VOID(visit(item));
    const std::uint64_t whole = item_bytes(name, bytes);
    if (whole > record.size()) return senseless("effects");
    record = record.subspan(whole);
  }
  return {};
}

}  // namespace perdure::replicated_rpc
