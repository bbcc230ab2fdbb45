/* A server of one account, as rpc_server.cc: deposits are calls, the balance is a query.
 * rpc_server POOL-FILE HOST:PORT [DOMAIN]
 * DOMAIN: what survives a power failure here, if it is more than Perdure sees by itself ("dmp",
 * "mhp", "wsp"); docs/hardware.md.
 */
#include <perdure/perdure.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { kDeposit = 1, kBalance = 2, kBalanceAt = 0 };

/* Executed once for each call that is durable, whatever crashes. */
static perdure_code deposit(const perdure_rpc_request* request, perdure_rpc_data* data, void* reply,
                            size_t room, size_t* bytes, void* context) {
  int64_t amount = 0;
  int64_t balance = 0;
  (void)context;
  if (request->payload_bytes != sizeof amount || room < sizeof balance) {
    return PERDURE_INVALID_ARGUMENT;
  }
  memcpy(&amount, request->payload, sizeof amount);
  perdure_code code = perdure_rpc_data_read(data, kBalanceAt, &balance, sizeof balance);
  if (code != PERDURE_OK) return code;
  balance += amount;
  code = perdure_rpc_data_write(data, kBalanceAt, &balance, sizeof balance);
  if (code != PERDURE_OK) return code;
  memcpy(reply, &balance, sizeof balance);
  *bytes = sizeof balance;
  return PERDURE_OK;
}

static perdure_code balance_of(const void* payload, size_t payload_bytes,
                               const perdure_rpc_data* data, void* reply, size_t room,
                               size_t* bytes, void* context) {
  (void)payload;
  (void)payload_bytes;
  (void)context;
  *bytes = sizeof(int64_t);
  if (room < *bytes) return PERDURE_NO_SPACE;
  return perdure_rpc_data_read(data, kBalanceAt, reply, *bytes);
}

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fprintf(stderr, "usage: rpc_server POOL-FILE HOST:PORT [DOMAIN]\n");
    return 2;
  }
  const perdure_rpc_operation operations[] = {{.operation = kDeposit, .handler = deposit},
                                              {.operation = kBalance, .query = balance_of}};
  const perdure_rpc_server_options options = {.size = sizeof options,
                                              .pool = argv[1],
                                              .operations = operations,
                                              .operation_count = 2,
                                              .listen = argv[2],
                                              .data_listen = "127.0.0.1:0",
                                              .data_bytes = 4096,
                                              .clients_max = 8,
                                              .declared = argc == 4 ? argv[3] : NULL};
  perdure_rpc_server* server = NULL;
  const perdure_code code = perdure_rpc_server_open(&options, &server);
  if (code != PERDURE_OK) {
    fprintf(stderr, "rpc_server: %s: %s\n", perdure_code_name(code), perdure_last_error());
    return 1;
  }
  printf("serving at %s; end of input ends it\n", perdure_rpc_server_address(server));
  fflush(stdout);
  while (getchar() != EOF) {
  }
  perdure_rpc_server_close(server);
  return 0;
}
