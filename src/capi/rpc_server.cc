// The C interface of durable RPC servers.
#include <perdure/perdure.h>
#include <perdure/rpc.h>

#include <utility>

#include "capi/failure.h"
#include "capi/rpc_parts.h"

using perdure::RpcServer;
using perdure::RpcServerOptions;
using perdure::RpcServerStatus;
using perdure::capi::code_of;
using perdure::capi::fail;
using perdure::capi::give_all;
using perdure::capi::give_sized;
using perdure::capi::give_text;
using perdure::capi::guarded;
using perdure::capi::handler_of;
using perdure::capi::refusal;
using perdure::capi::set;
using perdure::capi::take_rnic;
using perdure::capi::take_sized;

struct perdure_rpc_server {
  RpcServer server;
  perdure::capi::Origin origin = {};
};

PERDURE_CAPI_ENDS_WITH(perdure_rpc_request, generation);
PERDURE_CAPI_ENDS_WITH(perdure_rpc_server_options, reserved_too);
PERDURE_CAPI_ENDS_WITH(perdure_rpc_server_status, refused_failed);
PERDURE_CAPI_ENDS_WITH(perdure_rpc_client_place, reserved);
PERDURE_CAPI_ENDS_WITH(perdure_rpc_executing, reserved);

namespace {

perdure::RpcQueryHandler query_of(const perdure_rpc_operation& operation) {
  return [operation](std::span<const std::byte> payload, const perdure::RpcData& view,
                     std::span<std::byte> reply) -> perdure::Result<std::size_t> {
    const perdure_rpc_data data{view, nullptr};
    std::size_t bytes = 0;
    const perdure_code code = operation.query(payload.data(), payload.size(), &data, reply.data(),
                                              reply.size(), &bytes, operation.context);
    if (code != PERDURE_OK) return refusal(code);
    return bytes;
  };
}

/// Errors: a word that means nothing, as fail says it.
perdure_code take_words(const perdure_rpc_server_options& given, RpcServerOptions& opened) {
  if (given.declared != nullptr) {
    const auto domain = perdure::parse_persistence_domain(given.declared);
    if (!domain.ok()) return fail(domain.error());
    opened.declared = *domain;
  }
  if (given.receive_buffers != nullptr) {
    const auto buffers = perdure::parse_receive_buffers(given.receive_buffers);
    if (!buffers.ok()) return fail(buffers.error());
    opened.receive_buffers = *buffers;
  }
  if (given.transports == nullptr && given.transport_count != 0) return fail("transports is NULL");
  if (given.transport_count != 0) opened.transports.clear();
  for (std::size_t index = 0; index < given.transport_count; ++index) {
    if (given.transports[index] == nullptr) return fail("a transport is NULL");
    const auto transport = perdure::parse_transport(given.transports[index]);
    if (!transport.ok()) return fail(transport.error());
    opened.transports.push_back(*transport);
  }
  return PERDURE_OK;
}

perdure_code server_options_of(const perdure_rpc_server_options* options,
                               RpcServerOptions& opened) {
  perdure_rpc_server_options given{};
  if (options == nullptr) return fail("options must not be NULL");
  if (!take_sized(options, given)) {
    return perdure::capi::fail_of_size();
  }
  if (given.pool == nullptr || (given.operations == nullptr && given.operation_count != 0)) {
    return fail("the options need the file of a pool, and operations");
  }
  opened.pool = given.pool;
  for (std::size_t index = 0; index < given.operation_count; ++index) {
    const perdure_rpc_operation& each = given.operations[index];
    if (each.handler != nullptr) opened.handlers[each.operation] = handler_of(each);
    if (each.query != nullptr) opened.queries[each.operation] = query_of(each);
  }
  if (given.listen != nullptr) opened.listen = given.listen;
  if (given.data_listen != nullptr) opened.data_listen = given.data_listen;
  set(given.data_bytes, opened.data_bytes);
  set(given.ring_bytes, opened.ring_bytes);
  set(given.transaction_bytes, opened.transaction_bytes);
  set(given.answer_bytes_max, opened.answer_bytes_max);
  set(given.clients_max, opened.clients_max);
  set(given.replies, opened.replies);
  set(given.reply_bytes_max, opened.reply_bytes_max);
  set(given.attempts_max, opened.attempts_max);
  set(given.application, opened.application);
  set(given.lease_ms, opened.lease);
  set(given.spin_us, opened.spin);
  if (given.never_spin) opened.spin = std::chrono::microseconds(0);
  opened.refuse_failed = given.refuse_failed;
  opened.quick_handlers = given.quick_handlers;
  set(given.slow_from_percent, opened.slow_from_percent);
  set(given.handler_threads, opened.handler_threads);
  opened.allow_remote = given.allow_remote;
  take_rnic(given, opened.rnic);
  return take_words(given, opened);
}

perdure_code give_status(const RpcServerStatus& now, perdure_rpc_server_status* status) {
  perdure_rpc_server_status told{};
  told.applied = now.applied;
  told.refused = now.refused;
  told.unknown = now.unknown;
  told.set_aside = now.set_aside;
  told.dropped = now.dropped;
  told.transactions = now.transactions;
  told.queries = now.queries;
  told.expired = now.expired;
  told.cancelled = now.cancelled;
  told.refused_failed = now.refused_failed;
  told.failed = now.failure.has_value();
  if (now.failure) give_text(now.failure->message, told.failure);
  return give_sized(told, status);
}

perdure_rpc_client_place place_of(const perdure::RpcClientPlace& client) {
  perdure_rpc_client_place told{};
  told.client_id = client.client_id;
  told.applied = client.applied;
  told.waiting = client.waiting;
  told.attempts = client.attempts;
  told.set_aside = client.set_aside;
  told.dropped = client.dropped;
  told.held = client.held;
  give_text(client.name, told.name);
  return told;
}

perdure_rpc_executing executing_of(const perdure::RpcExecuting& call) {
  perdure_rpc_executing told{};
  told.client_id = call.client_id;
  told.sequence = call.sequence;
  told.lasted_ns = static_cast<std::uint64_t>(call.lasted.count());
  told.operation = call.operation;
  give_text(call.client, told.name);
  return told;
}

}  // namespace

uint64_t perdure_rpc_data_bytes(const perdure_rpc_data* data) {
  return data == nullptr ? 0 : data->data.bytes();
}

perdure_code perdure_rpc_data_read(const perdure_rpc_data* data, uint64_t at, void* into,
                                   size_t length) {
  return guarded([&]() -> perdure_code {
    if (data == nullptr || (into == nullptr && length != 0))
      return fail("data and into are needed");
    return code_of(data->data.read(at, {static_cast<std::byte*>(into), length}));
  });
}

perdure_code perdure_rpc_data_write(perdure_rpc_data* data, uint64_t at, const void* bytes,
                                    size_t length) {
  return guarded([&]() -> perdure_code {
    if (data == nullptr || (bytes == nullptr && length != 0)) {
      return fail("data and bytes are needed");
    }
    if (data->transaction == nullptr) return fail("a query changes nothing");
    return code_of(data->transaction->write(at, {static_cast<const std::byte*>(bytes), length}));
  });
}

perdure_code perdure_rpc_server_open(const perdure_rpc_server_options* options,
                                     perdure_rpc_server** server) {
  return perdure::capi::open_handle<RpcServer>(options, server, "server must not be NULL",
                                               server_options_of);
}

void perdure_rpc_server_close(perdure_rpc_server* server) { delete server; }

perdure_code perdure_rpc_server_replay(const perdure_rpc_server_options* options,
                                       perdure_rpc_server_status* status) {
  return guarded([&]() -> perdure_code {
    RpcServerOptions opened;
    const perdure_code code = server_options_of(options, opened);
    if (code != PERDURE_OK) return code;
    if (!perdure::capi::has_size(status)) return perdure::capi::fail_of_no_size();
    const auto result = RpcServer::replay(std::move(opened));
    if (!result.ok()) return fail(result.error());
    return status == nullptr ? PERDURE_OK : give_status(*result, status);
  });
}

const char* perdure_rpc_server_address(const perdure_rpc_server* server) {
  return server == nullptr ? "" : server->server.address().c_str();
}

perdure_code perdure_rpc_server_get_status(const perdure_rpc_server* server,
                                           perdure_rpc_server_status* status) {
  return guarded(server, [&]() -> perdure_code {
    if (server == nullptr || status == nullptr) return fail("server and status must not be NULL");
    return give_status(server->server.status(), status);
  });
}

perdure_code perdure_rpc_server_get_clients(const perdure_rpc_server* server,
                                            perdure_rpc_client_place* clients, size_t count,
                                            size_t* there) {
  return perdure::capi::give_clients(server, clients, count, there, place_of);
}

perdure_code perdure_rpc_server_get_executing(const perdure_rpc_server* server,
                                              perdure_rpc_executing* executing, size_t count,
                                              size_t* there) {
  return guarded(server, [&]() -> perdure_code {
    if (server == nullptr || there == nullptr || (executing == nullptr && count != 0)) {
      return fail("server, executing and there must not be NULL");
    }
    return give_all(server->server.status().executing, executing, count, there, executing_of);
  });
}

perdure_code perdure_rpc_server_retry(perdure_rpc_server* server, const char* client,
                                      uint64_t sequence) {
  return perdure::capi::decide(server, client, sequence, &RpcServer::retry);
}

perdure_code perdure_rpc_server_drop(perdure_rpc_server* server, const char* client,
                                     uint64_t sequence) {
  return perdure::capi::decide(server, client, sequence, &RpcServer::drop);
}
