// The C interface of durable RPC clients.
#include <perdure/perdure.h>
#include <perdure/rpc.h>

#include <utility>

#include "capi/failure.h"
#include "capi/rpc_parts.h"

using perdure::RpcClient;
using perdure::capi::code_of;
using perdure::capi::counts_of;
using perdure::capi::fail;
using perdure::capi::give_bytes;
using perdure::capi::give_sized;
using perdure::capi::give_text;
using perdure::capi::guarded;
using perdure::capi::handle_of;
using perdure::capi::is_record;
using perdure::capi::take_rnic;
using perdure::capi::take_sized;

struct perdure_rpc_client {
  RpcClient client;
  perdure::capi::Origin origin = {};
};

PERDURE_CAPI_ENDS_WITH(perdure_rpc_client_options, reserved);
PERDURE_CAPI_ENDS_WITH(perdure_rpc_client_status, reserved);
PERDURE_CAPI_ENDS_WITH(perdure_rpc_outcome, reserved);

namespace {

perdure_code client_options_of(const perdure_rpc_client_options* options,
                               perdure::RpcClientOptions& opened) {
  perdure_rpc_client_options given{};
  if (options == nullptr) return fail("options must not be NULL");
  if (!take_sized(options, given)) {
    return perdure::capi::fail_of_size();
  }
  if (given.server == nullptr || given.name == nullptr) {
    return fail("the options need a server, and the name of this client");
  }
  opened.server = given.server;
  opened.name = given.name;
  perdure::LogOptions words;
  const std::pair<const char*, const char*> named[] = {{"transport", given.transport},
                                                       {"primary", given.primary}};
  for (const auto& [name, word] : named) {
    if (word == nullptr) continue;
    if (auto set = perdure::set_option(words, name, word); !set) return fail(set.error());
  }
  opened.transport = words.transport;
  opened.primary = words.primary;
  take_rnic(given, opened.rnic);
  if (given.server_timeout_ms != 0) {
    opened.server_timeout = std::chrono::milliseconds(given.server_timeout_ms);
  }
  if (given.reconnect_ms != 0) opened.reconnect = std::chrono::milliseconds(given.reconnect_ms);
  if (given.never_reconnect) opened.reconnect = std::chrono::milliseconds(0);
  if (given.spin_us != 0) opened.spin = std::chrono::microseconds(given.spin_us);
  if (given.never_spin) opened.spin = std::chrono::microseconds(0);
  opened.measure_costs = !given.usual_costs;
  return PERDURE_OK;
}

}  // namespace

perdure_code perdure_rpc_client_open(const perdure_rpc_client_options* options,
                                     perdure_rpc_client** client) {
  return perdure::capi::open_handle<RpcClient>(options, client, "client must not be NULL",
                                               client_options_of);
}

perdure_code perdure_rpc_client_open_string(const char* connection, perdure_rpc_client** client) {
  return perdure::capi::open_handle_by_words<RpcClient>(connection, client,
                                                        "connection and client must not be NULL",
                                                        perdure::parse_rpc_client_options);
}

perdure_code perdure_rpc_client_open_file(const char* path, perdure_rpc_client** client) {
  return perdure::capi::open_handle_by_words<RpcClient>(
      path, client, "path and client must not be NULL", perdure::read_rpc_client_options);
}

void perdure_rpc_client_close(perdure_rpc_client* client) { delete client; }

perdure_code perdure_rpc_client_call(perdure_rpc_client* client, uint32_t operation,
                                     const void* payload, size_t bytes, uint64_t order_key,
                                     perdure_rpc_handle* handle) {
  return perdure::capi::begin_call(client, operation, payload, bytes, order_key, handle);
}

perdure_code perdure_rpc_client_wait(perdure_rpc_client* client, const perdure_rpc_handle* handle,
                                     perdure_rpc_level level, uint32_t timeout_ms) {
  return perdure::capi::wait_for_call(client, handle, level, timeout_ms);
}

perdure_code perdure_rpc_client_reply(perdure_rpc_client* client, const perdure_rpc_handle* handle,
                                      uint32_t timeout_ms, perdure_rpc_outcome* outcome,
                                      void* reply, size_t room, size_t* bytes) {
  return perdure::capi::wait_for_reply(client, handle, timeout_ms, outcome, reply, room, bytes);
}

perdure_code perdure_rpc_client_cancel(perdure_rpc_client* client,
                                       const perdure_rpc_handle* handle) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || handle == nullptr) return fail("client and handle must not be NULL");
    return code_of(client->client.cancel(handle_of(*handle)));
  });
}

perdure_code perdure_rpc_client_query(perdure_rpc_client* client, uint32_t operation,
                                      const void* payload, size_t payload_bytes, bool own_calls,
                                      uint32_t timeout_ms, void* answer, size_t room,
                                      size_t* bytes) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || bytes == nullptr || !is_record(payload, payload_bytes) ||
        !is_record(answer, room)) {
      return fail("client, payload, answer and bytes must not be NULL");
    }
    const auto got =
        client->client.query(operation, {static_cast<const std::byte*>(payload), payload_bytes},
                             own_calls, std::chrono::milliseconds(timeout_ms));
    if (!got.ok()) return fail(got.error());
    give_bytes(*got, answer, room, bytes);
    return PERDURE_OK;
  });
}

perdure_code perdure_rpc_client_poll(perdure_rpc_client* client) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr) return fail("client must not be NULL");
    return code_of(client->client.poll());
  });
}

uint64_t perdure_rpc_client_payload_bytes_max(const perdure_rpc_client* client) {
  return client == nullptr ? 0 : client->client.payload_bytes_max();
}

perdure_code perdure_rpc_client_handle_of(const perdure_rpc_client* client, uint64_t sequence,
                                          perdure_rpc_handle* handle) {
  return perdure::capi::find_handle(client, sequence, handle);
}

perdure_code perdure_rpc_client_get_times(const perdure_rpc_client* client,
                                          perdure_rpc_client_times* times) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || times == nullptr) return fail("client and times must not be NULL");
    const perdure::RpcTimes now = client->client.times();
    perdure_rpc_client_times told{};
    told.durable = counts_of(now.durable);
    told.applied = counts_of(now.applied);
    told.queries = counts_of(now.queries);
    return give_sized(told, times);
  });
}

perdure_code perdure_rpc_client_get_status(const perdure_rpc_client* client,
                                           perdure_rpc_client_status* status) {
  return guarded(client, [&]() -> perdure_code {
    if (client == nullptr || status == nullptr) return fail("client and status must not be NULL");
    const perdure::RpcClientStatus now = client->client.status();
    perdure_rpc_client_status told{};
    told.client_id = now.client_id;
    told.earlier_durable = now.earlier_durable;
    told.begun = now.begun;
    told.durable = now.durable;
    told.applied = now.applied;
    told.resent = now.resent;
    told.connections = now.connections;
    told.up = now.up;
    give_text(now.down_reason, told.down_reason);
    told.cancelled = now.cancelled;
    told.slowed = now.slowed;
    told.slowed_ns = static_cast<uint64_t>(now.slowed_for.count());
    give_text(now.small_method, told.small_method);
    give_text(now.large_method, told.large_method);
    return give_sized(told, status);
  });
}
