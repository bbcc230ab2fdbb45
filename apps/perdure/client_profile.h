// The client's profile: a file with what is the same in every command about one cluster. Least of
// all counts what it says, then the environment, then the command line.
//
//   peers = ["a:7470", "b:7470", "c:7470"]
//   pool = "orders"
//   transport = "auto"
//   rnic = "mlx5_0"
//   rnic_ack_timeout = 17
//   rnic_traffic_class = 106
//   timeout_ms = 5000
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::app {

// What stands in for --peers, --pool and so on; the profile stands in for these.
inline constexpr const char* kPeersVariable = "PERDURE_PEERS";
inline constexpr const char* kPoolVariable = "PERDURE_POOL";
inline constexpr const char* kTransportVariable = "PERDURE_TRANSPORT";
inline constexpr const char* kRnicVariable = "PERDURE_RNIC";
inline constexpr const char* kRnicAckTimeoutVariable = "PERDURE_RNIC_ACK_TIMEOUT";
inline constexpr const char* kRnicTrafficClassVariable = "PERDURE_RNIC_TRAFFIC_CLASS";
inline constexpr const char* kTimeoutVariable = "PERDURE_TIMEOUT_MS";
/// Which file, where --profile does not say it.
inline constexpr const char* kProfileVariable = "PERDURE_PROFILE";

struct ClientProfile {
  std::vector<std::string> peers;
  std::string pool;
  std::string transport;
  std::string rnic;
  std::optional<std::uint64_t> rnic_ack_timeout;
  std::optional<std::uint64_t> rnic_traffic_class;
  std::uint64_t timeout_ms = 0;  // 0: not said
};

/// `name` stands in errors. Errors: InvalidArgument, with the line: what is wrong, or not known.
Result<ClientProfile> parse_client_profile(std::string_view text, const std::string& name);

/// Reads the profile that --profile, PERDURE_PROFILE or else the user's directory has, if any, and
/// sets the variables above that are not set. Before the command line is parsed, and while there is
/// one thread. Errors: those of parsing; NotFound: a file that was named is not there.
Result<void> use_client_profile(int argc, const char* const* argv);

}  // namespace perdure::app
