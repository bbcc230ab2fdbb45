// What durable RPC on one server and on k servers have in common in C: handlers, what calls give,
// and the functions of servers and clients that both have.
#pragma once

#include <perdure/perdure.h>
#include <perdure/rpc.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

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

// Functions of a handle that has a `server` or a `client`; for what they do see perdure.h.

/// `handle` is made of what `Object::open` returns. `take` makes options of those that are given.
template <typename Object, typename Options, typename Given, typename Handle>
perdure_code open_handle(const Given* given, Handle** handle, const char* null,
                         perdure_code (*take)(const Given*, Options&)) {
  return guarded([&]() -> perdure_code {
    Options opened;
    if (handle == nullptr) return fail(null);
    if (const auto code = take(given, opened); code != PERDURE_OK) return code;
    auto result = Object::open(std::move(opened));
    if (!result.ok()) return fail(result.error());
    *handle = new Handle{std::move(result).value()};
    return PERDURE_OK;
  });
}

/// The same of the options that `read` makes of a connection string, or of a file's path.
template <typename Object, typename Handle, typename Read>
perdure_code open_handle_by_words(const char* words, Handle** handle, const char* null,
                                  const Read& read) {
  return guarded([&]() -> perdure_code {
    if (words == nullptr || handle == nullptr) return fail(null);
    auto options = read(words);
    if (!options.ok()) return fail(options.error());
    auto result = Object::open(std::move(options).value());
    if (!result.ok()) return fail(result.error());
    *handle = new Handle{std::move(result).value()};
    return PERDURE_OK;
  });
}

/// `member`: retry or drop.
template <typename Server, typename Member>
perdure_code decide(Server* server, const char* client, std::uint64_t sequence, Member member) {
  return guarded(server, [&]() -> perdure_code {
    if (server == nullptr || client == nullptr) return fail("server and client must not be NULL");
    return code_of((server->server.*member)(client, sequence));
  });
}

template <typename Server, typename Place, typename Tell>
perdure_code give_clients(const Server* server, Place* clients, std::size_t count,
                          std::size_t* there, const Tell& tell) {
  return guarded(server, [&]() -> perdure_code {
    if (server == nullptr || there == nullptr || (clients == nullptr && count != 0)) {
      return fail("server, clients and there must not be NULL");
    }
    return give_all(server->server.status().clients, clients, count, there, tell);
  });
}

template <typename Client>
perdure_code begin_call(Client* client, std::uint32_t operation, const void* payload,
                        std::size_t bytes, std::uint64_t order_key, perdure_rpc_handle* handle) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || handle == nullptr || !is_record(payload, bytes)) {
      return fail("client, payload and handle must not be NULL");
    }
    const auto begun =
        client->client.call(operation, {static_cast<const std::byte*>(payload), bytes}, order_key);
    if (!begun.ok()) return fail(begun.error());
    *handle = {begun->sequence, begun->client_id};
    return PERDURE_OK;
  });
}

template <typename Client>
perdure_code wait_for_call(Client* client, const perdure_rpc_handle* handle,
                           perdure_rpc_level level, std::uint32_t timeout_ms) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || handle == nullptr) return fail("client and handle must not be NULL");
    if (!known(level)) return fail("unknown level");
    return code_of(client->client.wait(handle_of(*handle), level_of(level),
                                       std::chrono::milliseconds(timeout_ms)));
  });
}

template <typename Client>
perdure_code wait_for_reply(Client* client, const perdure_rpc_handle* handle,
                            std::uint32_t timeout_ms, perdure_rpc_outcome* outcome, void* reply,
                            std::size_t room, std::size_t* bytes) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || handle == nullptr || outcome == nullptr || bytes == nullptr ||
        !is_record(reply, room)) {
      return fail("client, handle, outcome, reply and bytes must not be NULL");
    }
    if (!has_size(outcome)) return fail_of_no_size();
    const auto got =
        client->client.reply(handle_of(*handle), std::chrono::milliseconds(timeout_ms));
    if (!got.ok()) return fail(got.error());
    return give_reply(*got, outcome, reply, room, bytes);
  });
}

template <typename Client>
perdure_code find_handle(const Client* client, std::uint64_t sequence, perdure_rpc_handle* handle) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || handle == nullptr) return fail("client and handle must not be NULL");
    const RpcHandle found = client->client.handle_of(sequence);
    *handle = {found.sequence, found.client_id};
    return PERDURE_OK;
  });
}

}  // namespace perdure::capi
