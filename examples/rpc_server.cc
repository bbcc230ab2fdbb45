// A server of one account: deposits are calls, the balance is a query.
//   rpc_server POOL-FILE HOST:PORT
#include <perdure/rpc.h>

#include <cstdio>
#include <cstring>
#include <string>

namespace {

constexpr std::uint32_t kDeposit = 1;
constexpr std::uint32_t kBalance = 2;
constexpr std::uint64_t kBalanceAt = 0;

/// Executed once for each call that is durable, whatever crashes: reads and writes through `data`.
perdure::Result<std::size_t> deposit(const perdure::RpcCall& call, perdure::RpcTransaction& data,
                                     std::span<std::byte> reply) {
  std::int64_t amount = 0;
  if (call.payload.size() != sizeof amount) {
    return perdure::Error{perdure::ErrorCode::InvalidArgument, "a deposit has 8 bytes"};
  }
  std::memcpy(&amount, call.payload.data(), sizeof amount);
  auto balance = data.load<std::int64_t>(kBalanceAt);
  if (!balance.ok()) return balance.error();
  const std::int64_t after = *balance + amount;
  if (auto stored = data.store(kBalanceAt, after); !stored) return stored.error();
  std::memcpy(reply.data(), &after, sizeof after);
  return sizeof after;
}

perdure::Result<std::size_t> balance_of(std::span<const std::byte>, const perdure::RpcData& data,
                                        std::span<std::byte> reply) {
  auto balance = data.load<std::int64_t>(kBalanceAt);
  if (!balance.ok()) return balance.error();
  std::memcpy(reply.data(), &*balance, sizeof *balance);
  return sizeof *balance;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: rpc_server POOL-FILE HOST:PORT\n");
    return 2;
  }
  perdure::RpcServerOptions options;
  options.pool = argv[1];
  options.listen = argv[2];
  options.data_listen = "127.0.0.1:0";
  options.data_bytes = 4096;
  options.clients_max = 8;
  options.handlers[kDeposit] = deposit;
  options.queries[kBalance] = balance_of;
  const auto server = perdure::RpcServer::open(options);
  if (!server.ok()) {
    std::fprintf(stderr, "rpc_server: %s\n", server.error().message.c_str());
    return 1;
  }
  std::printf("serving at %s; end of input ends it\n", server->address().c_str());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  return 0;
}
