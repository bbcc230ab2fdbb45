// Runs client::certify over a peer and prints what it found: docs/certify.schema.json.
#include "certify.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <chrono>

#include "client/certify.h"
#include "client/dial.h"
#include "control/version.h"
#include "core/json.h"
#include "core/random.h"
#include "core/try.h"

namespace perdure::app {
namespace {

/// What was tried: for whoever reads the report elsewhere, and later.
struct Circumstances {
  std::string peer;
  std::string peer_version;
  std::string peer_device;
  bool emulated = false;  // its RNIC and memory are software
  std::string date;       // UTC, ISO 8601
  std::string kernel;     // of this side
};

/// Of the devices that the peer offers, the one of the session's transport.
Circumstances circumstances(const std::string& peer, const control::ServiceDescription& service,
                            Transport transport) {
  Circumstances found{peer, service.version, "not said", service.emulated, "", ""};
  const auto offered = std::find(service.transports.begin(), service.transports.end(), transport);
  const auto index = static_cast<std::size_t>(offered - service.transports.begin());
  if (index < service.devices.size()) found.peer_device = service.devices[index];
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  found.date = fmt::format("{:%FT%TZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  utsname kernel{};
  (void)::uname(&kernel);
  found.kernel = fmt::format("{} {}", kernel.sysname, kernel.release);
  return found;
}

std::string to_text(const Circumstances& around, const client::Certificate& found) {
  std::string text = fmt::format(
      "{}, pool {} ({} bytes): {}\nthat side: Perdure {}, {}\nthis side: Perdure {}, {}, "
      "{}\n{}\n\n",
      around.peer, found.pool.name, found.pool.bytes, describe(found.pool.profile),
      around.peer_version, around.peer_device, control::version(), found.device, around.kernel,
      around.date);
  for (const client::CertifyCheck& check : found.checks) {
    text += fmt::format("{:<11} {}: {}\n", to_string(check.proof), check.name, check.finding);
    for (const auto& [name, value] : check.numbers) {
      text += fmt::format("              {} {:.0f}\n", name, value);
    }
  }
  return text + fmt::format("\n{}, on these two machines and this network; see docs/hardware.md.\n",
                            around.emulated ? "Emulated: it says nothing of any RNIC" : "Measured");
}

std::string to_json(const Circumstances& around, const client::Certificate& found) {
  nlohmann::ordered_json json{{"format", 2},
                              {"label", around.emulated ? "emulated" : "measured"},
                              {"date", around.date},
                              {"version", control::version()},
                              {"kernel", around.kernel},
                              {"peer", around.peer},
                              {"peer_version", around.peer_version},
                              {"peer_device", around.peer_device},
                              {"pool", found.pool.name},
                              {"pool_bytes", found.pool.bytes},
                              {"profile", describe(found.pool.profile)},
                              {"device", found.device}};
  json["checks"] = nlohmann::ordered_json::array();
  for (const client::CertifyCheck& check : found.checks) {
    nlohmann::ordered_json numbers = nlohmann::ordered_json::object();
    for (const auto& [name, value] : check.numbers) numbers[name] = value;
    json["checks"].push_back({{"name", check.name},
                              {"proof", to_string(check.proof)},
                              {"finding", check.finding},
                              {"numbers", std::move(numbers)}});
  }
  return json_text(json, 2) + "\n";
}

}  // namespace

Result<std::unique_ptr<client::HttpPeer>> dial(client::Dialer& dialer,
                                               const CertifyCommand& command) {
  PERDURE_TRY_VOID(dialer.use_rnic({.name = command.over.rnic}));
  return dialer.dial(command.peer, command.over.transport);
}

ExitStatus fail_of_peer(Error error, const CertifyCommand& command) {
  if (error.code == ErrorCode::TimedOut)
    error.message += fmt::format(" (it had {} s: --timeout-s)", command.timeout_s);
  return fail(error);
}

ExitStatus report_certificate(const std::string& peer, const control::ServiceDescription& service,
                              const client::Certificate& found, Format format) {
  const auto around = circumstances(peer, service, found.pool.profile.transport);
  print(format == Format::Json ? to_json(around, found) : to_text(around, found));
  const bool broken = std::any_of(
      found.checks.begin(), found.checks.end(),
      [](const client::CertifyCheck& check) { return check.proof == client::Proof::Broken; });
  return broken ? ExitStatus::Failed : ExitStatus::Ok;
}

ExitStatus run_certify(const CertifyCommand& command, Format format) {
  if (command.pool.empty()) {
    print_error({ErrorCode::InvalidArgument,
                 "--certify needs --pool NAME: one of the peer's, which is written over"});
    return ExitStatus::Usage;
  }
  if (!command.overwrite) {
    print_error({ErrorCode::InvalidArgument,
                 fmt::format("the list writes into pool {}: give --overwrite if nobody wants what "
                             "it holds, or make another pool",
                             command.pool)});
    return ExitStatus::Usage;
  }
  client::Dialer dialer;
  const auto dialed = dial(dialer, command);
  if (!dialed.ok()) return fail(dialed.error());
  client::CertifyOptions options;
  options.timeout = std::chrono::seconds(command.timeout_s);
  // Asked first: the peer may be gone when there is something to report.
  const auto service = client::HttpPeer::probe(command.peer, Deadline::after(options.timeout));
  if (!service.ok()) return fail_of_peer(service.error(), command);
  options.pool = command.pool;
  options.writer = random_secret() | 1;
  const auto found = client::certify(**dialed, options);
  if (!found.ok()) return fail_of_peer(found.error(), command);
  return report_certificate(command.peer, *service, *found, format);
}

}  // namespace perdure::app
