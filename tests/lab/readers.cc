// Opens as many read sessions as it is told, says so, and keeps them open and idle until its input
// ends.
#include "client/dial.h"
#include "core/try.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

using namespace perdure;

Result<std::vector<client::Session>> open_all(client::HttpPeer& peer, const std::string& pool,
                                              int count) {
  control::SessionRequest request;
  request.pool = pool;
  std::vector<client::Session> sessions;
  for (int number = 0; number < count; ++number) {
    PERDURE_TRY(session, peer.open_session(request, Deadline::after(std::chrono::seconds(60))));
    sessions.push_back(std::move(session));
  }
  return sessions;
}

Result<void> run(const std::string& address, const std::string& pool, const std::string& word,
                 int count) {
  PERDURE_TRY(transport, control::parse_transport_choice(word));
  client::Dialer dialer;
  PERDURE_TRY(peer, dialer.dial(address, transport));
  PERDURE_TRY(sessions, open_all(*peer, pool, count));
  fmt::print("open {}\n", sessions.size());
  std::fflush(stdout);
  char byte = 0;
  while (::read(STDIN_FILENO, &byte, 1) > 0) continue;
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: perdure_lab_readers HOST:PORT POOL TRANSPORT COUNT\n");
    return 2;
  }
  const auto done = run(argv[1], argv[2], argv[3], std::atoi(argv[4]));
  if (!done.ok()) fmt::print("failed: {}\n", done.error().message);
  return done.ok() ? 0 : 1;
}
