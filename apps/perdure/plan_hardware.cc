// Pricing what is right: see plan_hardware.h.
#include "plan_hardware.h"

#include "core/try.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::app {

Result<std::vector<PricedCandidate>> priced_candidates(const ServerProfile& server,
                                                       const plan::Update& update,
                                                       const sim::Hardware& hardware) {
  PERDURE_TRY(found, plan::candidates(server, update));
  const sim::PriceOptions sizes{static_cast<double>(update.bytes),
                                static_cast<double>(update.later_bytes)};
  std::vector<PricedCandidate> priced;
  for (plan::Candidate& each : found) {
    sim::Price price = sim::price(each.method, server, hardware, sizes);
    priced.push_back({std::move(each), std::move(price)});
  }
  std::stable_sort(priced.begin(), priced.end(),
                   [](const PricedCandidate& a, const PricedCandidate& b) {
                     return a.price.latency_ns < b.price.latency_ns;
                   });
  return priced;
}

std::string to_text(const std::vector<PricedCandidate>& priced, const ServerProfile& server,
                    const plan::Update& update, const sim::Hardware& hardware) {
  std::string text = fmt::format(
      "simulated: {} of {} bytes on {}, {}, one update on an idle connection\n"
      "   latency  responder  round\n"
      "        us     CPU us  trips\n",
      to_string(update.shape), update.bytes, describe(server), hardware.network.name);
  for (const PricedCandidate& each : priced) {
    text += fmt::format("  {:>8.2f}   {:>8.2f}  {:>5}  {}\n", each.price.latency_ns / 1e3,
                        each.price.responder_ns / 1e3, each.candidate.usage.round_trips,
                        each.candidate.method.name);
  }
  const PricedCandidate& first = priced.front();
  text += fmt::format("{}: {}\n", first.candidate.method.name, first.candidate.reason);
  for (const sim::PricedEvent& event : first.price.events) {
    text += fmt::format("  {:>8.0f} ns  {}\n", event.at_ns, event.what);
  }
  return text;
}

}  // namespace perdure::app
