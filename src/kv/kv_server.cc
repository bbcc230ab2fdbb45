// The public face of a key-value server: a durable RPC server with the store's handlers.
#include <perdure/kv.h>

#include <algorithm>

#include "core/bytes.h"
#include "core/try.h"
#include "kv/kv_calls.h"
#include "kv/kv_format.h"

namespace perdure {
namespace {

// A ring takes two calls of the largest size and what waits beside them; whatever a ring takes fits
// a transaction, with a head for each block.
constexpr std::uint64_t kValuesInRing = 4;
constexpr std::uint64_t kBesideValue = 4096;
constexpr std::uint64_t kAreaBytesMin = 1024 * 1024;
constexpr std::uint64_t kBytesForKey = 1024;
constexpr std::uint32_t kRepliesKept = 256;
constexpr std::uint32_t kReplyBytes = 64;

}  // namespace

Result<KvServer> KvServer::open(const KvServerOptions& options) {
  if (options.value_bytes_max == 0 || options.value_bytes_max > kKvValueBytesMax) {
    return Error{ErrorCode::InvalidArgument, "values have at most 1 MiB"};
  }
  kv::KvShape shape;
  shape.keys_max = options.keys_max != 0 ? options.keys_max : options.bytes / kBytesForKey;
  shape.block_bytes = options.block_bytes;
  shape.grants = options.clients_max;
  shape.value_bytes_max = static_cast<std::uint32_t>(options.value_bytes_max);
  PERDURE_TRY_VOID(kv::lay_out(options.bytes, shape, 0));
  RpcServerOptions rpc;
  rpc.pool = options.pool;
  rpc.application = kv::kApplication;
  rpc.data_bytes = options.bytes;
  rpc.clients_max = options.clients_max;
  rpc.ring_bytes =
      std::max(kAreaBytesMin,
               round_up(kValuesInRing * (options.value_bytes_max + kBesideValue), kCacheLineBytes));
  rpc.transaction_bytes = rpc.ring_bytes;
  rpc.replies = kRepliesKept;
  rpc.reply_bytes_max = kReplyBytes;
  rpc.declared = options.declared;
  rpc.handlers = kv::call_handlers(shape);
  rpc.queries = kv::query_handlers(shape);
  rpc.listen = options.listen;
  rpc.data_listen = options.data_listen;
  rpc.transports = options.transports;
  rpc.rnic = options.rnic;
  rpc.allow_remote = options.allow_remote;
  rpc.spin = options.spin;
  rpc.refuse_failed = options.refuse_failed;
  PERDURE_TRY(served, RpcServer::open(rpc));
  return KvServer(std::move(served));
}

}  // namespace perdure
