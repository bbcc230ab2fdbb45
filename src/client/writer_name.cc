#include "client/writer_name.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>

namespace perdure::client {

std::string this_writer() {
  std::array<char, 256> host{};
  (void)::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}:{}", host.data(), ::getpid());
}

}  // namespace perdure::client
