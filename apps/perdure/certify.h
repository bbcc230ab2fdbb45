// `perdure probe --certify PEER`: what an RNIC does beside the verbs, found out by using it; and
// whether what the peer acknowledges survives a power cut.
#pragma once

#include "client/certify.h"
#include "client/dial.h"
#include "commands.h"
#include "control/service_types.h"
#include "output.h"
#include "peer_options.h"

#include <memory>
#include <optional>
#include <string>

namespace perdure::app {

enum class PowerCutPhase { Arm, Check };

/// "arm", "check". Errors: InvalidArgument, naming the words.
Result<std::optional<PowerCutPhase>> parse_power_cut_phase(std::string_view word);

struct CertifyCommand {
  std::string peer;
  std::string pool;
  PeerOptions over;  // transport and RNIC
  bool overwrite = false;
  std::optional<PowerCutPhase> power_cut;
  std::string state_file;
  std::optional<Primary> primary;
  std::uint64_t write_for_s = 600;
  std::uint64_t timeout_s = 5;
};

/// Prints the report. Failed if something does not hold.
ExitStatus run_certify(const CertifyCommand& command, Format format);
/// The same for a phase of the power cut.
ExitStatus run_power_cut(const CertifyCommand& command, Format format);

/// The peer, over what was asked for. Errors: those of Dialer.
Result<std::unique_ptr<client::HttpPeer>> dial(client::Dialer& dialer,
                                               const CertifyCommand& command);

/// Prints the error of a peer; of one that took too long, with the option that gives it longer.
ExitStatus fail_of_peer(Error error, const CertifyCommand& command);

/// The report, of a peer that said this of itself before; Failed if something of it does not hold.
ExitStatus report_certificate(const std::string& peer, const control::ServiceDescription& service,
                              const client::Certificate& found, Format format);

}  // namespace perdure::app
