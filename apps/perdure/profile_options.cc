// The words of profiles and updates on the command line.
#include "profile_options.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "core/named.h"

namespace perdure::app {
namespace {

Error unknown_shape(std::string_view word) {
  return Error{ErrorCode::InvalidArgument,
               fmt::format("shape '{}' is not known; use singleton, compound, or the number of "
                           "items of each epoch, for example 1+2+1 (1 to {} items in all)",
                           word, kItemsMax)};
}

}  // namespace

Result<Level> parse_level(std::string_view word) {
  using enum Level;
  return find_named("level", word, std::array{Received, Visible, Durable, Committed});
}

Result<Primary> parse_primary(std::string_view word) {
  using enum Primary;
  return find_named("primary", word, std::array{Write, WriteImm, Send});
}

Result<UpdateShape> parse_shape(std::string_view word) {
  if (word == "singleton") return singleton();
  if (word == "compound") return compound();
  constexpr std::string_view kPrefix = "epochs ";
  std::string_view rest = word;
  if (rest.substr(0, kPrefix.size()) == kPrefix) rest.remove_prefix(kPrefix.size());
  UpdateShape shape;
  shape.items_per_epoch.clear();
  while (true) {
    std::uint8_t items = 0;
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), items);
    if (error != std::errc() || items == 0) return unknown_shape(word);
    shape.items_per_epoch.push_back(items);
    if (shape.items() > kItemsMax) return unknown_shape(word);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    if (rest.empty()) return shape;
    if (rest.front() != '+') return unknown_shape(word);
    rest.remove_prefix(1);
  }
}

void add_profile_options(Command command, ServerProfile& profile) {
  const std::string group = "Responder";
  add_word_option(command, "--domain", profile.domain, parse_persistence_domain,
                  "What survives its power failure (none)", "none|page|dmp|mhp|wsp")
      .group(group);
  add_word_option(command, "--ddio", profile.ddio, parse_ddio,
                  "Whether inbound data lands in its last-level cache (on)", "on|off")
      .group(group);
  add_word_option(command, "--receive-buffers", profile.receive_buffers, parse_receive_buffers,
                  "Where its receive buffers live (dram)", "dram|pm")
      .group(group);
  add_word_option(command, "--transport", profile.transport, parse_transport,
                  "What carries the messages (tcp)", "infiniband|roce|iwarp|tcp|shm")
      .group(group);
  add_word_option(
      command, "--write-order", profile.write_order, parse_write_order,
      "Whether WRITEs are placed in the order of posting (unknown; with --all: ordered)",
      "unknown|ordered")
      .group(group);
  add_word_option(command, "--dma-dirties", profile.dma_dirties, parse_dma_dirties,
                  "Whether what its RNIC writes makes a file's page dirty (no)", "no|yes")
      .group(group);
  add_word_option(command, "--qp-type", profile.qp_type, parse_qp_type,
                  "The kind of queue pair; uc and ud lose messages (rc)", "rc|uc|ud")
      .group(group);
  Capabilities& can = profile.capabilities;
  command.add_flag("--native-flush", can.native_flush, "It has RDMA FLUSH").group(group);
  command
      .add_flag("--persistent-flush", can.persistent_flush,
                "Its RDMA FLUSH reaches persistence by itself, DDIO on or off")
      .group(group);
  command.add_flag("--atomic-write", can.atomic_write, "It has RDMA ATOMIC WRITE").group(group);
  command.add_flag("--ordered-persist", can.ordered_persist, "It acknowledges persistence itself")
      .group(group);
  command.add_flag("--send-flush", can.send_flush, "Its RNIC flushes what a SEND names")
      .group(group);
}

bool describes_responder(const Command& command) {
  bool given = false;
  for (const char* name :
       {"--domain", "--ddio", "--receive-buffers", "--transport", "--write-order", "--dma-dirties",
        "--qp-type", "--native-flush", "--atomic-write", "--persistent-flush", "--ordered-persist",
        "--send-flush"}) {
    given = given || command.count(name) > 0;
  }
  return given;
}

}  // namespace perdure::app
