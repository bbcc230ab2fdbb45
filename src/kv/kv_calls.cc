// Calls of a key-value store as bytes, and what they do: see kv_calls.h.
#include "kv/kv_calls.h"

#include <perdure/kv.h>

#include <algorithm>
#include <cstring>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/try.h"

namespace perdure::kv {
namespace {

Error nonsense(const char* what) { return {ErrorCode::ProtocolError, what}; }

Result<std::size_t> set(const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply,
                        const KvShape& shape) {
  KvBytes bytes(call.payload);
  const auto flags = bytes.take<std::uint32_t>();
  const auto key_bytes = bytes.take<std::uint16_t>();
  (void)bytes.take<std::uint16_t>();
  const auto crc = bytes.take<std::uint32_t>();
  const auto value_bytes = bytes.take<std::uint32_t>();
  if (!value_bytes) return nonsense("a set that is cut short");
  const auto key = bytes.take(*key_bytes);
  const auto value = bytes.take(*value_bytes);
  if (!key || !value || !bytes.empty() || *flags >> 8 > 2) {
    return nonsense("a set that makes no sense");
  }
  // Not what the server was told: an earlier one may have acknowledged larger values.
  if (key->size() > kKvKeyBytesMax || value->size() > kKvValueBytesMax) {
    return Error{ErrorCode::InvalidArgument, "a key or value is too large for the store"};
  }
  if (*crc != crc32c(*value, crc32c(*key))) {
    return Error{ErrorCode::Corrupt, "the record's checksum is not its own"};
  }
  PERDURE_TRY(writer, KvWriter::open(data, shape));
  KvPut put;
  put.key = {reinterpret_cast<const char*>(key->data()), key->size()};
  put.value = *value;
  put.crc = *crc;
  put.condition = static_cast<KvIf>(*flags >> 8);
  put.granted = (*flags & kFromGrant) != 0 ? call.client_id : 0;
  PERDURE_TRY(outcome, writer.put(put));
  PERDURE_TRY_VOID(writer.finish());
  store(reply.data(), std::uint32_t{outcome.stored});
  store(reply.data() + 4, std::uint32_t{outcome.was_there});
  store(reply.data() + 8, outcome.version);
  return std::size_t{16};
}

Result<std::size_t> erase(const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply,
                          const KvShape& shape) {
  PERDURE_TRY(writer, KvWriter::open(data, shape));
  std::uint64_t erased = 0;
  for (KvBytes bytes(call.payload); !bytes.empty();) {
    const auto key = bytes.take_key();
    if (!key) return nonsense("an erase that is cut short");
    PERDURE_TRY(was_there, writer.erase(*key));
    erased += was_there ? 1 : 0;
  }
  PERDURE_TRY_VOID(writer.finish());
  store(reply.data(), erased);
  return std::size_t{8};
}

Result<std::size_t> grant(const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply,
                          const KvShape& shape) {
  KvBytes bytes(call.payload);
  const auto slots = bytes.take<std::uint64_t>();
  const auto blocks = bytes.take<std::uint64_t>();
  if (!blocks || !bytes.empty()) return nonsense("a grant of another size");
  PERDURE_TRY(writer, KvWriter::open(data, shape));
  // Nobody gets more than a fair part, or one client could keep all of it.
  const std::uint64_t parts = 2 * std::max<std::uint64_t>(writer.geometry().grants, 1);
  PERDURE_TRY(
      granted,
      writer.grant(call.client_id, std::min<std::uint64_t>(*slots, writer.geometry().slots / parts),
                   std::min<std::uint64_t>(*blocks, writer.geometry().blocks / parts)));
  PERDURE_TRY_VOID(writer.finish());
  store(reply.data(), granted.slots);
  store(reply.data() + 8, granted.blocks);
  return std::size_t{16};
}

}  // namespace

std::optional<std::string_view> KvBytes::take_key() {
  const auto length = take<std::uint16_t>();
  if (!length || *length > kKvKeyBytesMax) return std::nullopt;
  const auto key = take(*length);
  if (!key) return std::nullopt;
  return std::string_view(reinterpret_cast<const char*>(key->data()), key->size());
}

void append_text(std::vector<std::byte>& to, std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  to.insert(to.end(), bytes.begin(), bytes.end());
}

void append_key(std::vector<std::byte>& to, std::string_view key) {
  append(to, static_cast<std::uint16_t>(key.size()));
  append_text(to, key);
}

std::vector<std::byte> encode_set(const KvPut& put, bool from_grant) {
  std::vector<std::byte> bytes;
  bytes.reserve(16 + put.key.size() + put.value.size());
  append(bytes, (from_grant ? kFromGrant : 0) | static_cast<std::uint32_t>(put.condition) << 8);
  append(bytes, static_cast<std::uint16_t>(put.key.size()));
  append(bytes, std::uint16_t{0});
  append(bytes, put.crc);
  append(bytes, static_cast<std::uint32_t>(put.value.size()));
  append_text(bytes, put.key);
  bytes.insert(bytes.end(), put.value.begin(), put.value.end());
  return bytes;
}

std::map<std::uint32_t, RpcHandler> call_handlers(const KvShape& shape) {
  std::map<std::uint32_t, RpcHandler> handlers;
  handlers[static_cast<std::uint32_t>(KvCall::Set)] =
      [shape](const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply) {
        return set(call, data, reply, shape);
      };
  handlers[static_cast<std::uint32_t>(KvCall::Erase)] =
      [shape](const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply) {
        return erase(call, data, reply, shape);
      };
  handlers[static_cast<std::uint32_t>(KvCall::Grant)] =
      [shape](const RpcCall& call, RpcTransaction& data, std::span<std::byte> reply) {
        return grant(call, data, reply, shape);
      };
  return handlers;
}

}  // namespace perdure::kv
