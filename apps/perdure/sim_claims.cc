#include "sim_claims.h"

#include <cmath>

namespace perdure::app {

using nlohmann::ordered_json;

namespace {

double distance_allowed(const Claim& claim) {
  switch (claim.tolerance) {
    case Tolerance::ThirdOfGain: return std::abs(claim.published - 1) / 3;
    case Tolerance::MoreThan: break;
    case Tolerance::Tenth: return claim.published / 10;
  }
  return 0;
}

std::string accepted(const Claim& claim) {
  const auto to = claim.accepted_to();
  if (!to) return "more than " + times(claim.published);
  return fmt::format("{} to {}", times(claim.accepted_from()), times(*to));
}

std::string verdict_of(const Claim& claim) {
  if (claim.by_choice) return "by choice";
  return claim.within() ? "within" : "outside";
}

}  // namespace

double Claim::accepted_from() const { return published - distance_allowed(*this); }

std::optional<double> Claim::accepted_to() const {
  if (tolerance == Tolerance::MoreThan) return std::nullopt;
  return published + distance_allowed(*this);
}

bool Claim::within() const {
  const auto to = accepted_to();
  return to ? simulated >= accepted_from() && simulated <= *to : simulated > published;
}

report::Table claims_table(const std::vector<Claim>& claims) {
  report::Table table;
  table.columns = {
      {"claim", false}, {"paper"}, {"simulated"}, {"accepted", false}, {"verdict", false}};
  for (const Claim& claim : claims) {
    table.rows.push_back({claim.what, times(claim.published), times(claim.simulated),
                          accepted(claim), verdict_of(claim)});
  }
  return table;
}

report::Table assumptions_table(const std::vector<Assumption>& assumptions) {
  report::Table table;
  table.columns = {{"with another assumption", false}, {"paper"}};
  for (const Assumption& assumption : assumptions) {
    table.columns.push_back({assumption.what, false});
    for (std::size_t i = 0; i < assumption.claims.size(); ++i) {
      const Claim& claim = assumption.claims[i];
      if (table.rows.size() == i) table.rows.push_back({claim.what, times(claim.published)});
      table.rows[i].push_back(times(claim.simulated) + (claim.within() ? "" : " outside"));
    }
  }
  return table;
}

ordered_json json_of(const std::vector<Claim>& claims) {
  ordered_json list = ordered_json::array();
  for (const Claim& claim : claims) {
    const auto to = claim.accepted_to();
    ordered_json one{{"what", claim.what},
                     {"published", claim.published},
                     {"simulated", claim.simulated},
                     {"accepted_from", claim.accepted_from()},
                     {"accepted_to", to ? ordered_json(*to) : ordered_json(nullptr)},
                     {"by_choice", claim.by_choice},
                     {"within", claim.within()}};
    list.push_back(std::move(one));
  }
  return list;
}

ordered_json json_of(const std::vector<Assumption>& assumptions) {
  ordered_json list = ordered_json::array();
  for (const Assumption& each : assumptions) {
    ordered_json one{{"what", each.what}, {"claims", json_of(each.claims)}};
    list.push_back(std::move(one));
  }
  return list;
}

}  // namespace perdure::app
