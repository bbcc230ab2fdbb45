// The words by which peers, pools and sizes are named.
#include "peer_options.h"

#include "client/peer.h"
#include "control/host_port.h"
#include "core/try.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>

namespace perdure::app {
namespace {

constexpr std::array<std::string_view, 5> kUnits{"", "K", "M", "G", "T"};

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view word) {
  const Error wrong{
      ErrorCode::InvalidArgument,
      fmt::format("'{}' is not a size; write bytes, or for example 64KiB, 1.5GiB", word)};
  double number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || !(number >= 0)) return wrong;
  std::string_view unit = word.substr(static_cast<std::size_t>(end - word.data()));
  for (const std::string_view ending : {"iB", "B"}) {
    const bool ends =
        unit.size() >= ending.size() && unit.substr(unit.size() - ending.size()) == ending;
    if (ends && (ending == "B" || unit.size() == 3)) {
      unit.remove_suffix(ending.size());
      break;
    }
  }
  for (std::size_t power = 0; power < kUnits.size(); ++power) {
    if (unit != kUnits[power]) continue;
    const double bytes = std::round(number * std::pow(1024.0, static_cast<double>(power)));
    if (bytes > 9.0e18) return wrong;
    return static_cast<std::uint64_t>(bytes);
  }
  return wrong;
}

std::string format_bytes(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double size = static_cast<double>(bytes);
  std::size_t power = 0;
  while (size >= 1024 && power + 1 < kUnits.size()) {
    size /= 1024;
    ++power;
  }
  return fmt::format("{:.1f} {}iB", size, kUnits[power]);
}

Option add_peers_option(Command command, PeerOptions& options) {
  return command
      .add_option("--peers", options.peers, "Control planes of the peers, separated by commas")
      .delimiter(',')
      .required()
      .option_text("HOST:PORT,...")
      .each([](const std::string& word) -> Result<void> {
        PERDURE_TRY_VOID(control::parse_host_port(word));
        return {};
      });
}

Option add_pool_option(Command command, PeerOptions& options) {
  return command.add_option("--pool", options.pool, "Name of the pool, the same on every peer")
      .required()
      .option_text("NAME")
      .each([](const std::string& word) -> Result<void> {
        const auto valid = control::validate_pool_name(word);
        if (!valid.ok()) return Error{valid.code(), word + ": " + valid.error().message};
        return {};
      });
}

void add_transport_option(Command command, PeerOptions& options) {
  command
      .add_option("--transport", options.transport,
                  "How the bytes travel; shm on one host only, the last three with an RNIC (auto)")
      .option_text("auto|tcp|shm|infiniband|roce|iwarp")
      .each([](const std::string& word) -> Result<void> {
        PERDURE_TRY_VOID(control::parse_transport_choice(word));
        return {};
      });
  command
      .add_option("--rnic", options.rnic,
                  "Which RNIC of this machine, by name or address (the first that fits)")
      .option_text("NAME");
}

void add_timeout_option(Command command, PeerOptions& options) {
  command
      .add_option("--timeout-ms", options.timeout_ms, "How long a peer may take to answer (5000)")
      .range(1, 3'600'000)
      .option_text("MS");
}

}  // namespace perdure::app
