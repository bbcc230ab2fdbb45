// What `perdure bench rpc` says to its servers: requests, calls of them, and which come next.
//
//   request   u32 object, with the highest bit set if it is a write; u32 bytes; if it is a write,
//             the object's new bytes, whose first four are its number
//   call      one request or several, one behind another, all reads or all writes
//   reply     the bytes of all objects that were read; nothing for writes
#pragma once

#include "bench/rpc_point.h"

#include <cstdint>
#include <span>
#include <vector>

namespace perdure::bench {

inline constexpr std::size_t kRpcRequestHeader = 8;
inline constexpr std::uint32_t kRpcWriteBit = 0x8000'0000;

struct RpcCallPlan {
  bool is_write = false;
  std::uint32_t object = 0;  // of the first request; those after it follow
};

/// All calls of client number `client`, those of the warm-up first.
std::vector<RpcCallPlan> plan_rpc_calls(const RpcLoad& load, std::uint64_t client);

/// Writes the call into `request`, whose payload is filled already, and returns its bytes.
std::size_t encode_rpc_call(const RpcLoad& load, const RpcCallPlan& plan,
                            std::span<std::byte> request);
/// Whether the reply is that of the call.
bool is_rpc_reply(const RpcLoad& load, const RpcCallPlan& plan, std::span<const std::byte> reply);

/// The objects of a server. Object i begins with its number; writes keep that.
class RpcObjects {
 public:
  explicit RpcObjects(const RpcLoad& load);
  std::span<std::byte> object(std::uint32_t number);

 private:
  const std::uint64_t object_bytes_;
  const std::uint64_t objects_;
  std::vector<std::byte> bytes_;
};

}  // namespace perdure::bench
