// Deposits into the account of rpc_server: first durable, then applied, then asks for the balance.
//   rpc_client HOST:PORT NAME AMOUNT
#include <perdure/rpc.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

constexpr std::uint32_t kDeposit = 1;
constexpr std::uint32_t kBalance = 2;

int fail(const perdure::Error& error) {
  std::fprintf(stderr, "rpc_client: %s\n", error.message.c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: rpc_client HOST:PORT NAME AMOUNT\n");
    return 2;
  }
  perdure::RpcClientOptions options;
  options.server = argv[1];
  options.name = argv[2];
  const std::int64_t amount = std::stoll(argv[3]);
  auto client = perdure::RpcClient::open(options);
  if (!client.ok()) return fail(client.error());

  const auto deposit =
      client->call(kDeposit, std::as_bytes(std::span<const std::int64_t, 1>(&amount, 1)));
  if (!deposit.ok()) return fail(deposit.error());
  if (auto done = client->wait(*deposit, perdure::RpcLevel::Durable); !done) {
    return fail(done.error());
  }
  std::printf("durable: it will be executed exactly once, without this program\n");
  const auto reply = client->reply(*deposit);
  if (!reply.ok()) return fail(reply.error());
  if (reply->refused) {
    std::printf("refused: %s\n", std::string(perdure::to_string(*reply->refused)).c_str());
    return 1;
  }
  const auto balance = client->query(kBalance, {});
  if (!balance.ok()) return fail(balance.error());
  std::int64_t now = 0;
  std::memcpy(&now, balance->data(), sizeof now);
  std::printf("applied: the balance is %lld\n", static_cast<long long>(now));
  return 0;
}
