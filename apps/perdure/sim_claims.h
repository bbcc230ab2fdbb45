// Claims: numbers of the papers' text beside simulated ones, as tables and JSON.
#pragma once

#include "core/json.h"
#include "report/table.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

namespace perdure::app {

/// What a simulated number may be beside the paper's.
enum class Tolerance {
  ThirdOfGain,  // "28 % better"
  MoreThan,     // "over 2x": that, or anything above
  Tenth,        // a time, which is no gain
};

/// A number of the paper and ours, as factors: 1.28 is a gain of 28 %.
struct Claim {
  std::string what;
  double published = 1;
  double simulated = 1;
  Tolerance tolerance = Tolerance::ThirdOfGain;
  /// An input that the paper does not state was chosen so that the number comes out: no finding.
  bool by_choice = false;

  double accepted_from() const;
  /// Nothing: there is no limit above.
  std::optional<double> accepted_to() const;
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
