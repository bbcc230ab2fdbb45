// Appends one record to a replicated log and waits until it is durable on a quorum of peers.
//   append POOL HOST:PORT [HOST:PORT ...]
#include <perdure/log.h>

#include <cstdio>
#include <string>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: append POOL HOST:PORT [HOST:PORT ...]\n");
    return 2;
  }
  perdure::LogOptions options;
  options.pool = argv[1];
  options.peers.assign(argv + 2, argv + argc);
  auto log = perdure::Log::open(options);
  if (!log.ok()) {
    std::fprintf(stderr, "append: %s\n", log.error().message.c_str());
    return 1;
  }
  const std::string record = "a record that survives";
  const auto ticket = log->append(std::as_bytes(std::span(record)));
  if (!ticket.ok()) {
    std::fprintf(stderr, "append: %s\n", ticket.error().message.c_str());
    return 1;
  }
  if (auto committed = log->wait(*ticket, perdure::Level::Committed); !committed) {
    std::fprintf(stderr, "append: %s\n", committed.error().message.c_str());
    return 1;
  }
  std::printf("record %llu is committed\n", static_cast<unsigned long long>(ticket->index));
  return 0;
}
