// Runs client::certify over a peer and prints what it found: docs/certify.schema.json.
#include "certify.h"

#include <fmt/format.h>

#include <algorithm>

#include "client/certify.h"
#include "client/dial.h"
#include "core/json.h"
#include "core/random.h"

namespace perdure::app {
namespace {

std::string to_text(const std::string& peer, const client::Certificate& found) {
  std::string text =
      fmt::format("{}, pool {} ({} bytes): {}\nthis side: {}\n\n", peer, found.pool.name,
                  found.pool.bytes, describe(found.pool.profile), found.device);
  for (const client::CertifyCheck& check : found.checks) {
    text += fmt::format("{:<11} {}: {}\n", to_string(check.proof), check.name, check.finding);
    for (const auto& [name, value] : check.numbers) {
      text += fmt::format("              {} {:.0f}\n", name, value);
    }
  }
  return text + "\nMeasured, on these two machines and this network; see docs/hardware.md.\n";
}

std::string to_json(const std::string& peer, const client::Certificate& found) {
  nlohmann::ordered_json json{{"format", 1},
                              {"label", "measured"},
                              {"peer", peer},
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
  return json.dump(2) + "\n";
}

}  // namespace

ExitStatus run_certify(const CertifyCommand& command, Format format) {
  if (!command.overwrite) {
    print_error({ErrorCode::InvalidArgument,
                 fmt::format("the list writes into pool {}: give --overwrite if nobody wants what "
                             "it holds, or make another pool",
                             command.pool)});
    return ExitStatus::Usage;
  }
  const auto choice = control::parse_transport_choice(command.transport);
  if (!choice.ok()) return fail(choice.error());
  client::Dialer dialer;
  const auto dialed = dialer.dial(command.peer, *choice);
  if (!dialed.ok()) return fail(dialed.error());
  client::CertifyOptions options;
  options.pool = command.pool;
  options.writer = random_secret() | 1;
  const auto found = client::certify(**dialed, options);
  if (!found.ok()) return fail(found.error());
  print(format == Format::Json ? to_json(command.peer, *found) : to_text(command.peer, *found));
  const bool broken = std::any_of(
      found->checks.begin(), found->checks.end(),
      [](const client::CertifyCheck& check) { return check.proof == client::Proof::Broken; });
  return broken ? ExitStatus::Failed : ExitStatus::Ok;
}

}  // namespace perdure::app
