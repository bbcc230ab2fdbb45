// What durable RPC on one server and on k servers have in common in C: handlers, and what calls
// give.
#pragma once

#include <perdure/perdure.h>
#include <perdure/rpc.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>

#include "capi/failure.h"

struct perdure_rpc_data {
  const perdure::RpcData& data;
  perdure::RpcTransaction* transaction;  // of a call; NULL: of a query
};

namespace perdure::capi {

/// What is 0 has its default.
template <typename From, typename To>
void set(From given, To& option) {
  if (given != From{}) option = To(given);
}

inline Error refusal(perdure_code code) {
  const bool known = code > PERDURE_OK && code <= PERDURE_SYSTEM_ERROR;
  return {known ? static_cast<ErrorCode>(static_cast<int>(code) - 1) : ErrorCode::SystemError,
          "refused by its handler"};
}

inline RpcHandler handler_of(const perdure_rpc_operation& operation) {
  return [operation](const RpcCall& call, RpcTransaction& transaction,
                     std::span<std::byte> reply) -> Result<std::size_t> {
    const std::string name(call.client);
    const perdure_rpc_request request{sizeof(perdure_rpc_request),
                                      name.c_str(),
                                      call.client_id,
                                      call.sequence,
                                      call.order_key,
                                      call.payload.data(),
                                      call.payload.size(),
                                      call.operation,
                                      call.generation};
    perdure_rpc_data data{transaction, &transaction};
    std::size_t bytes = 0;
    const perdure_code code =
        operation.handler(&request, &data, reply.data(), reply.size(), &bytes, operation.context);
    if (code != PERDURE_OK) return refusal(code);
    return bytes;
  };
}

inline RpcHandle handle_of(const perdure_rpc_handle& handle) {
  return {handle.sequence, handle.client_id};
}

inline void give_bytes(std::span<const std::byte> from, void* to, std::size_t room,
                       std::size_t* bytes) {
  std::copy_n(from.begin(), std::min(room, from.size()), static_cast<std::byte*>(to));
  *bytes = from.size();
}

inline bool known(perdure_rpc_level level) {
  return level == PERDURE_RPC_DURABLE || level == PERDURE_RPC_APPLIED;
}
inline RpcLevel level_of(perdure_rpc_level level) {
  return level == PERDURE_RPC_DURABLE ? RpcLevel::Durable : RpcLevel::Applied;
}

/// Gives the outcome and the reply; `outcome` has its size.
inline perdure_code give_reply(const RpcReply& got, perdure_rpc_outcome* outcome, void* reply,
                               std::size_t room, std::size_t* bytes) {
  perdure_rpc_outcome told{};
  told.refused = got.refused ? number_of(*got.refused) : PERDURE_OK;
  told.dropped = got.dropped;
  told.cancelled = got.cancelled;
  give_bytes(got.bytes, reply, room, bytes);
  return give_sized(told, outcome);
}

}  // namespace perdure::capi
