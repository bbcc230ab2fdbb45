// The C interface of durable RPC on k servers.
#include <perdure/log.h>
#include <perdure/perdure.h>
#include <perdure/replicated_rpc.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "capi/failure.h"
#include "capi/rpc_parts.h"

using perdure::ReplicatedRpcClient;
using perdure::ReplicatedRpcServer;
using perdure::capi::code_of;
using perdure::capi::fail;
using perdure::capi::give_sized;
using perdure::capi::give_text;
using perdure::capi::guarded;
using perdure::capi::is_record;
using perdure::capi::number_of;
using perdure::capi::set;
using perdure::capi::take_sized;
using std::chrono::milliseconds;

struct perdure_replicated_rpc_server {
  ReplicatedRpcServer server;
  perdure::capi::Origin origin = {};
};

struct perdure_replicated_rpc_client {
  ReplicatedRpcClient client;
  perdure::capi::Origin origin = {};
};

PERDURE_CAPI_ENDS_WITH(perdure_replicated_rpc_server_options, reserved);
PERDURE_CAPI_ENDS_WITH(perdure_replicated_rpc_server_status, set_aside);
PERDURE_CAPI_ENDS_WITH(perdure_replicated_rpc_client_place, reserved);
PERDURE_CAPI_ENDS_WITH(perdure_replicated_rpc_client_options, reserved);
PERDURE_CAPI_ENDS_WITH(perdure_replicated_rpc_client_status, failure_message);

namespace {

/// What the options of servers and clients have in common.
/// Errors: what is wrong with them, as fail says it.
template <typename Given>
perdure_code take_group(const Given& given, perdure::ReplicatedRpcGroup& group) {
  if (given.peers == nullptr || given.peer_count == 0 || given.service == nullptr) {
    return fail("the options need peers and the name of a service");
  }
  for (std::size_t index = 0; index < given.peer_count; ++index) {
    if (given.peers[index] == nullptr) return fail("a peer is NULL");
    group.peers.emplace_back(given.peers[index]);
  }
  group.service = given.service;
  group.quorum = given.quorum;
  if (given.transport != nullptr) {
    perdure::LogOptions words;
    const auto taken = perdure::set_option(words, "transport", given.transport);
    if (!taken.ok()) return fail(taken.error());
    group.transport = words.transport;
  }
  perdure::capi::take_rnic(given, group.rnic);
  set(given.peer_timeout_ms, group.peer_timeout);
  set(given.reconnect_ms, group.reconnect);
  if (given.never_reconnect) group.reconnect = milliseconds(0);
  return PERDURE_OK;
}

/// Errors: InvalidArgument.
perdure::Result<void> take_operations(const perdure_rpc_operation* operations, std::size_t count,
                                      perdure::ReplicatedRpcServerOptions& opened) {
  const auto wrong = [](const char* why) {
    return perdure::Error{perdure::ErrorCode::InvalidArgument, why};
  };
  if (operations == nullptr && count != 0) return wrong("operations is NULL");
  for (std::size_t index = 0; index < count; ++index) {
    const perdure_rpc_operation& each = operations[index];
    if (each.handler == nullptr || each.query != nullptr) {
      return wrong("on k servers an operation has a handler of calls, and none of queries");
    }
    opened.handlers[each.operation] = perdure::capi::handler_of(each);
  }
  return {};
}

/// `read` makes options of `words`.
template <typename Read>
perdure_code open_server(const char* words, const perdure_rpc_operation* operations,
                         std::size_t count, perdure_replicated_rpc_server** server,
                         const char* null, const Read& read) {
  const auto read_all =
      [&](const char* from) -> perdure::Result<perdure::ReplicatedRpcServerOptions> {
    auto options = read(from);
    if (!options.ok()) return options;
    if (auto taken = take_operations(operations, count, *options); !taken) return taken.error();
    return options;
  };
  return perdure::capi::open_handle_by_words<ReplicatedRpcServer>(words, server, null, read_all);
}

perdure_code take_server(const perdure_replicated_rpc_server_options* options,
                         perdure::ReplicatedRpcServerOptions& opened) {
  perdure_replicated_rpc_server_options given{};
  if (options == nullptr) return fail("options must not be NULL");
  if (!take_sized(options, given)) return perdure::capi::fail_of_size();
  if (const auto code = take_group(given, opened.group); code != PERDURE_OK) return code;
  const auto taken = take_operations(given.operations, given.operation_count, opened);
  if (!taken.ok()) return fail(taken.error());
  set(given.data_bytes, opened.data_bytes);
  set(given.transaction_bytes, opened.transaction_bytes);
  set(given.clients_max, opened.clients_max);
  set(given.replies, opened.replies);
  set(given.reply_bytes_max, opened.reply_bytes_max);
  set(given.application, opened.application);
  set(given.attempts_max, opened.attempts_max);
  opened.take_over = given.take_over;
  opened.hold_failed = given.hold_failed;
  return PERDURE_OK;
}

perdure_code take_client(const perdure_replicated_rpc_client_options* options,
                         perdure::ReplicatedRpcClientOptions& opened) {
  perdure_replicated_rpc_client_options given{};
  if (options == nullptr) return fail("options must not be NULL");
  if (!take_sized(options, given)) return perdure::capi::fail_of_size();
  if (given.name == nullptr) return fail("the options need the name of this client");
  if (const auto code = take_group(given, opened.group); code != PERDURE_OK) return code;
  opened.name = given.name;
  set(given.calls_bytes, opened.calls_bytes);
  opened.reads = given.reads;
  return PERDURE_OK;
}

/// PERDURE_OK and "" if there is none.
template <std::size_t room>
perdure_code give_error(const std::optional<perdure::Error>& error, char (&message)[room]) {
  if (!error) return PERDURE_OK;
  give_text(error->message, message);
  return number_of(error->code);
}

/// As much as there is room for, and a zero. Returns the length of the whole.
std::size_t give_long_text(const std::string& from, char* to, std::size_t room) {
  if (room != 0) to[from.copy(to, room - 1)] = '\0';
  return from.size();
}

perdure_replicated_rpc_server_status status_of(const perdure::ReplicatedRpcServerStatus& now) {
  perdure_replicated_rpc_server_status told{};
  told.executed = now.executed;
  told.refused = now.refused;
  told.rounds = now.rounds;
  told.epoch = now.epoch.value;
  told.waiting = give_error(now.waiting, told.waiting_message);
  told.failure = give_error(now.failure, told.failure_message);
  told.careful = now.careful;
  told.set_aside = now.set_aside;
  told.effects_bytes = now.effects_bytes;
  told.effects_bytes_max = now.effects_bytes_max;
  told.quorum = now.quorum;
  told.replicas = now.replicas;
  told.replicas_up = now.replicas_up;
  return told;
}

perdure_replicated_rpc_client_status status_of(const perdure::ReplicatedRpcClientStatus& now) {
  perdure_replicated_rpc_client_status told{};
  told.client_id = now.client_id;
  told.earlier_durable = now.earlier_durable;
  told.begun = now.begun;
  told.applied = now.applied;
  told.calls_bytes = now.calls_bytes;
  told.calls_bytes_max = now.calls_bytes_max;
  told.quorum = now.quorum;
  told.replicas = now.replicas;
  told.replicas_up = now.replicas_up;
  told.epoch = now.epoch.value;
  told.unread = give_error(now.unread, told.unread_message);
  told.failure = give_error(now.failure, told.failure_message);
  return told;
}

perdure_replicated_rpc_client_place replicated_place_of(
    const perdure::ReplicatedRpcClientPlace& client) {
  perdure_replicated_rpc_client_place told{};
  told.client_id = client.client_id;
  told.applied = client.applied;
  told.waiting_bytes = client.waiting_bytes;
  told.attempts = client.attempts;
  told.held = client.held;
  told.failure = give_error(client.failure, told.failure_message);
  give_text(client.name, told.name);
  return told;
}

}  // namespace

perdure_code perdure_replicated_rpc_server_open(
    const perdure_replicated_rpc_server_options* options, perdure_replicated_rpc_server** server) {
  return perdure::capi::open_handle<ReplicatedRpcServer>(options, server, "server must not be NULL",
                                                         take_server);
}

perdure_code perdure_replicated_rpc_server_open_string(const char* connection,
                                                       const perdure_rpc_operation* operations,
                                                       size_t operation_count,
                                                       perdure_replicated_rpc_server** server) {
  return open_server(connection, operations, operation_count, server,
                     "connection and server must not be NULL",
                     perdure::parse_replicated_rpc_server_options);
}

perdure_code perdure_replicated_rpc_server_open_file(const char* path,
                                                     const perdure_rpc_operation* operations,
                                                     size_t operation_count,
                                                     perdure_replicated_rpc_server** server) {
  return open_server(path, operations, operation_count, server, "path and server must not be NULL",
                     perdure::read_replicated_rpc_server_options);
}

void perdure_replicated_rpc_server_close(perdure_replicated_rpc_server* server) { delete server; }

perdure_code perdure_replicated_rpc_server_read(perdure_replicated_rpc_server* server, uint64_t at,
                                                void* into, size_t length, uint32_t timeout_ms) {
  return guarded(server, [&]() -> perdure_code {
    if (server == nullptr || !is_record(into, length)) {
      return fail("server and into must not be NULL");
    }
    return code_of(
        server->server.read(at, {static_cast<std::byte*>(into), length}, milliseconds(timeout_ms)));
  });
}

perdure_code perdure_replicated_rpc_server_replace_peer(perdure_replicated_rpc_server* server,
                                                        const char* which, const char* peer) {
  return guarded(server, [&]() -> perdure_code {
    if (server == nullptr || which == nullptr || peer == nullptr) {
      return fail("server, which and peer must not be NULL");
    }
    return code_of(server->server.replace_peer(which, peer));
  });
}

perdure_code perdure_replicated_rpc_server_retry(perdure_replicated_rpc_server* server,
                                                 const char* client, uint64_t sequence) {
  return perdure::capi::decide(server, client, sequence, &ReplicatedRpcServer::retry);
}

perdure_code perdure_replicated_rpc_server_drop(perdure_replicated_rpc_server* server,
                                                const char* client, uint64_t sequence) {
  return perdure::capi::decide(server, client, sequence, &ReplicatedRpcServer::drop);
}

perdure_code perdure_replicated_rpc_server_get_status(
    const perdure_replicated_rpc_server* server, perdure_replicated_rpc_server_status* status) {
  return guarded(server, [&]() -> perdure_code {
    if (server == nullptr || status == nullptr) return fail("server and status must not be NULL");
    return give_sized(status_of(server->server.status()), status);
  });
}

perdure_code perdure_replicated_rpc_server_get_metrics(const perdure_replicated_rpc_server* server,
                                                       char* text, size_t room, size_t* bytes) {
  return guarded(server, [&]() -> perdure_code {
    if (server == nullptr || bytes == nullptr || !is_record(text, room)) {
      return fail("server, text and bytes must not be NULL");
    }
    *bytes = give_long_text(server->server.metrics(), text, room);
    return PERDURE_OK;
  });
}

perdure_code perdure_replicated_rpc_server_get_clients(const perdure_replicated_rpc_server* server,
                                                       perdure_replicated_rpc_client_place* clients,
                                                       size_t count, size_t* there) {
  return perdure::capi::give_clients(server, clients, count, there, replicated_place_of);
}

perdure_code perdure_replicated_rpc_client_open(
    const perdure_replicated_rpc_client_options* options, perdure_replicated_rpc_client** client) {
  return perdure::capi::open_handle<ReplicatedRpcClient>(options, client, "client must not be NULL",
                                                         take_client);
}

perdure_code perdure_replicated_rpc_client_open_string(const char* connection,
                                                       perdure_replicated_rpc_client** client) {
  return perdure::capi::open_handle_by_words<ReplicatedRpcClient>(
      connection, client, "connection and client must not be NULL",
      perdure::parse_replicated_rpc_client_options);
}

perdure_code perdure_replicated_rpc_client_open_file(const char* path,
                                                     perdure_replicated_rpc_client** client) {
  return perdure::capi::open_handle_by_words<ReplicatedRpcClient>(
      path, client, "path and client must not be NULL",
      perdure::read_replicated_rpc_client_options);
}

void perdure_replicated_rpc_client_close(perdure_replicated_rpc_client* client) { delete client; }

perdure_code perdure_replicated_rpc_client_call(perdure_replicated_rpc_client* client,
                                                uint32_t operation, const void* payload,
                                                size_t bytes, uint64_t order_key,
                                                perdure_rpc_handle* handle) {
  return perdure::capi::begin_call(client, operation, payload, bytes, order_key, handle);
}

perdure_code perdure_replicated_rpc_client_wait(perdure_replicated_rpc_client* client,
                                                const perdure_rpc_handle* handle,
                                                perdure_rpc_level level, uint32_t timeout_ms) {
  return perdure::capi::wait_for_call(client, handle, level, timeout_ms);
}

perdure_code perdure_replicated_rpc_client_reply(perdure_replicated_rpc_client* client,
                                                 const perdure_rpc_handle* handle,
                                                 uint32_t timeout_ms, perdure_rpc_outcome* outcome,
                                                 void* reply, size_t room, size_t* bytes) {
  return perdure::capi::wait_for_reply(client, handle, timeout_ms, outcome, reply, room, bytes);
}

perdure_code perdure_replicated_rpc_client_read(perdure_replicated_rpc_client* client, uint64_t at,
                                                void* into, size_t length, uint32_t timeout_ms) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || !is_record(into, length)) {
      return fail("client and into must not be NULL");
    }
    return code_of(
        client->client.read(at, {static_cast<std::byte*>(into), length}, milliseconds(timeout_ms)));
  });
}

perdure_code perdure_replicated_rpc_client_replace_peer(perdure_replicated_rpc_client* client,
                                                        const char* which, const char* peer) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || which == nullptr || peer == nullptr) {
      return fail("client, which and peer must not be NULL");
    }
    return code_of(client->client.replace_peer(which, peer));
  });
}

perdure_code perdure_replicated_rpc_client_handle_of(const perdure_replicated_rpc_client* client,
                                                     uint64_t sequence,
                                                     perdure_rpc_handle* handle) {
  return perdure::capi::find_handle(client, sequence, handle);
}

perdure_code perdure_replicated_rpc_client_get_status(
    const perdure_replicated_rpc_client* client, perdure_replicated_rpc_client_status* status) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || status == nullptr) return fail("client and status must not be NULL");
    return give_sized(status_of(client->client.status()), status);
  });
}

perdure_code perdure_replicated_rpc_client_get_metrics(const perdure_replicated_rpc_client* client,
                                                       char* text, size_t room, size_t* bytes) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || bytes == nullptr || !is_record(text, room)) {
      return fail("client, text and bytes must not be NULL");
    }
    *bytes = give_long_text(client->client.metrics(), text, room);
    return PERDURE_OK;
  });
}
