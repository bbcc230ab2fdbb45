// An rpmemd as it was before there were ordered updates: all of today's, and no handler for them.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

#include "control/version.h"
#include "persist/request_handler.h"
#include "rpmem/channel.h"
#include "rpmem/pool_host.h"

namespace perdure::rpmem {
namespace {

int serve(const char* directory) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(60));
  Channel channel(STDIN_FILENO, STDOUT_FILENO);
  const Hello hello{"0.1", control::host_identity()};
  if (!channel.send({FrameKind::Hello, encode(hello)}, deadline)) return 1;
  PoolHostOptions options;
  options.directories.sets = directory;
  options.service.handlers = [](const server::SessionTerms&) {
    auto handlers = persist::built_in_handlers();
    handlers[static_cast<std::size_t>(persist::MessageKind::Ordered)] = nullptr;
    return handlers;
  };
  PoolHost host(std::move(options));
  while (!host.closed()) {
    const auto request = channel.receive(deadline);
    if (!request.ok()) ::_exit(0);
    if (!channel.send(host.handle(*request), deadline)) return 1;
  }
  return 0;
}

}  // namespace
}  // namespace perdure::rpmem

/// early_rpmemd DIRECTORY: of the set files.
int main(int argc, char** argv) { return argc == 2 ? perdure::rpmem::serve(argv[1]) : 2; }
