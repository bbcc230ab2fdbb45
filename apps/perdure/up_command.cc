// `perdure up`: peers of this machine to try things with, until they are not wanted any more.
#include "client/http_peer.h"
#include "commands.h"
#include "control/documents.h"
#include "core/byte_text.h"
#include "core/clock.h"
#include "core/try.h"
#include "log/log_format.h"
#include "output.h"
#include "pmem/medium.h"
#include "testing/peer_process.h"
#include "testing/process.h"
#include "testing/temporary_directory.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

namespace perdure::app {
namespace {

constexpr const char* kPlace = "/var/tmp";
constexpr Nanoseconds kAnswerWithin = std::chrono::seconds(10);
constexpr Nanoseconds kLookAtPeersEvery = std::chrono::milliseconds(200);

struct UpOptions {
  std::uint64_t peers = 3;
  std::string directory;  // empty: one that goes when the peers do
  std::string pool = "play";
  std::uint64_t bytes = 64ULL << 20;
};

Result<void> require_durable(const std::string& directory) {
  std::error_code failed;
  if (!std::filesystem::is_directory(directory, failed)) {
    return Error{
        ErrorCode::NotFound,
        fmt::format("there is no directory '{}'; make it, or name another one", directory)};
  }
  const auto place = pmem::examine_file_system(directory);
  if (!place.ok() || place->found != PersistenceDomain::None) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}' is {}, which does not survive a power failure: nothing could be "
                           "durable there; name another place with --directory",
                           directory, place->file_system)};
}

/// The pool on a peer that was just started: made, unless it is there from last time.
Result<void> provide_pool(const std::string& address, const UpOptions& options) {
  PERDURE_TRY(peer, client::HttpPeer::open(address, nullptr));
  const Deadline deadline = Deadline::after(kAnswerWithin);
  if (peer->describe(options.pool, deadline).ok()) return {};
  PERDURE_TRY(made, peer->create({options.pool, options.bytes}, deadline));
  return {};
}

std::string instructions(const UpOptions& options, const std::string& directory,
                         const std::vector<std::string>& addresses, pid_t last) {
  return fmt::format(
      "{} peers serve the pool '{}' ({}) from {}, until Ctrl-C. In another shell:\n\n"
      "  export PERDURE_PEERS={} PERDURE_POOL={}\n"
      "  echo hello | perdure log append\n"
      "  perdure log read\n"
      "  kill -9 {}        # the last peer; the log goes on\n"
      "  perdure status\n",
      addresses.size(), options.pool, format_bytes(options.bytes), directory,
      fmt::join(addresses, ","), options.pool, last);
}

/// Where it was last time, if it can be had again: logs know their replicas by that name.
Result<test::PeerProcess> start_peer(const std::string& directory) {
  test::PeerProcessOptions own;
  own.directory = directory;
  own.address = test::last_address(directory);
  auto there = test::PeerProcess::start(own);
  if (there.ok() || own.address.empty()) return there;
  const std::string before = std::exchange(own.address, "");
  PERDURE_TRY(elsewhere, test::PeerProcess::start(own));
  print_warning(fmt::format("the peer that was at {} is at {} now: {}", before, elsewhere.address(),
                            there.error().message));
  return elsewhere;
}

Result<void> serve(const UpOptions& options, const std::string& directory) {
  std::vector<test::PeerProcess> peers;
  std::vector<std::string> addresses;
  for (std::uint64_t number = 1; number <= options.peers; ++number) {
    const std::string own = fmt::format("{}/peer{}", directory, number);
    std::error_code failed;
    std::filesystem::create_directories(own, failed);
    if (failed) {
      return Error{ErrorCode::SystemError,
                   fmt::format("{} can not be made: {}", own, failed.message())};
    }
    PERDURE_TRY(peer, start_peer(own));
    PERDURE_TRY_VOID(provide_pool(peer.address(), options));
    addresses.push_back(peer.address());
    peers.push_back(std::move(peer));
  }
  print(instructions(options, directory, addresses, peers.back().pid()));
  flush_output();
  std::vector<bool> gone(peers.size());
  while (!test::InterruptGuard::interrupted()) {
    test::pause_for(kLookAtPeersEvery);
    for (std::size_t index = 0; index < peers.size(); ++index) {
      if (gone[index] || peers[index].running()) continue;
      gone[index] = true;
      print(fmt::format("The peer at {} has ended.\n", addresses[index]));
      flush_output();
    }
  }
  for (std::size_t index = 0; index < peers.size(); ++index) {
    if (!gone[index] && peers[index].running()) PERDURE_TRY_VOID(peers[index].stop());
  }
  return {};
}

ExitStatus up(const UpOptions& options) {
  const test::InterruptGuard guard;
  std::optional<test::TemporaryDirectory> temporary;
  std::string directory = options.directory;
  if (const auto durable = require_durable(directory.empty() ? kPlace : directory); !durable.ok()) {
    return fail(durable.error());
  }
  if (directory.empty()) {
    auto made = test::TemporaryDirectory::make(kPlace);
    if (!made.ok()) return fail(made.error());
    temporary.emplace(std::move(made).value());
    directory = temporary->path();
  }
  const auto served = serve(options, directory);
  return served.ok() ? ExitStatus::Ok : fail(served.error());
}

}  // namespace

void add_up_command(Command app) {
  const Command command = app.add_subcommand(
      "up", "Peers on this machine to try things with: daemons with a pool each, until Ctrl-C");
  auto options = std::make_shared<UpOptions>();
  command.add_option("--peers", options->peers, "How many")
      .range(std::uint64_t{1}, std::uint64_t{16})
      .capture_default();
  command
      .add_option(
          "--directory", options->directory,
          "Keep their pools and ports there, an existing directory (one that goes when they do)")
      .option_text("DIR");
  command.add_option("--pool", options->pool, "Name of the pool that each has")
      .each(
          [](const std::string& word) -> Result<void> { return control::validate_pool_name(word); })
      .capture_default();
  add_size_option(command, "--bytes", options->bytes, "Size of that pool", log::kLogBytesMin,
                  control::kPoolBytesMax);
  add_examples(command,
               "  perdure up\n"
               "  perdure up --peers 5 --directory ~/perdure --bytes 1GiB\n");
  run_with(command, [options] { return up(*options); });
}

}  // namespace perdure::app
