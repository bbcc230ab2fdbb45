#include "sim_claims.h"

#include <cmath>

namespace perdure::app {

using nlohmann::ordered_json;

bool Claim::within() const {
  return std::abs(simulated - published) <= std::abs(published - 1) / 3;
}

report::Table claims_table(const std::vector<Claim>& claims) {
  report::Table table;
  table.columns = {
      {"claim", false}, {"paper"}, {"simulated"}, {"within a third of the gain", false}};
  for (const Claim& claim : claims) {
    table.rows.push_back({claim.what, times(claim.published), times(claim.simulated),
                          claim.within() ? "within" : "outside"});
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
    ordered_json one{{"what", claim.what},
                     {"published", claim.published},
                     {"simulated", claim.simulated},
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
