// Claims: numbers of the seed papers' text beside simulated ones, as tables and JSON.
#pragma once

#include "core/json.h"
#include "report/table.h"

#include <fmt/format.h>

#include <string>
#include <vector>

namespace perdure::app {

/// A number of the paper and ours, as factors: 1.28 is a gain of 28 %.
struct Claim {
  std::string what;
  double published = 1;
  double simulated = 1;
  /// Within a third of the gain.
  bool within() const;
};

/// What the paper does not say, assumed otherwise than the claims beside it do.
struct Assumption {
  std::string what;
  std::vector<Claim> claims;  // the same ones, in their order
};

/// How often; "1.28".
inline std::string times(double value) { return fmt::format("{:.2f}", value); }

report::Table claims_table(const std::vector<Claim>& claims);
/// A column for each assumption: a claim that is outside finds here what brings it in.
report::Table assumptions_table(const std::vector<Assumption>& assumptions);

nlohmann::ordered_json json_of(const std::vector<Claim>& claims);
nlohmann::ordered_json json_of(const std::vector<Assumption>& assumptions);

}  // namespace perdure::app
