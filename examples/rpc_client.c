/* Deposits into the account of rpc_server: first durable, then applied, with the balance as its
 * reply. rpc_client HOST:PORT NAME AMOUNT
 */
#include <perdure/perdure.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: rpc_client HOST:PORT NAME AMOUNT\n");
    return 2;
  }
  const perdure_rpc_client_options options = {
      .size = sizeof options, .server = argv[1], .name = argv[2]};
  const int64_t amount = strtoll(argv[3], NULL, 10);
  int64_t balance = 0;
  size_t bytes = 0;
  perdure_rpc_client* client = NULL;
  perdure_rpc_handle deposit = {0};
  perdure_rpc_outcome outcome = {.size = sizeof outcome};
  perdure_code code = perdure_rpc_client_open(&options, &client);
  if (code == PERDURE_OK) {
    code = perdure_rpc_client_call(client, 1, &amount, sizeof amount, 0, &deposit);
  }
  if (code == PERDURE_OK) {
    code = perdure_rpc_client_wait(client, &deposit, PERDURE_RPC_DURABLE, 30000);
  }
  if (code == PERDURE_OK) printf("durable: it will be executed exactly once\n");
  if (code == PERDURE_OK) {
    code = perdure_rpc_client_reply(client, &deposit, 30000, &outcome, &balance, sizeof balance,
                                    &bytes);
  }
  if (code == PERDURE_OK && outcome.refused != PERDURE_OK) {
    printf("refused: %s\n", perdure_code_name(outcome.refused));
  } else if (code == PERDURE_OK) {
    printf("applied: the balance is %lld\n", (long long)balance);
  } else {
    fprintf(stderr, "rpc_client: %s: %s\n", perdure_code_name(code), perdure_last_error());
  }
  perdure_rpc_client_close(client);
  return code == PERDURE_OK && outcome.refused == PERDURE_OK ? 0 : 1;
}
