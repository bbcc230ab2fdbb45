// Cost over size: as curves for a drawing, and as bars of text.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/byte_text.h"
#include "core/try.h"
#include "plan/render.h"

namespace perdure::plan {

Result<CostCurves> cost_curves(const ServerProfile& server, const Update& update,
                               const CostModel& costs, std::uint64_t bytes_max) {
  std::map<std::string, CostCurve> by_name;
  for (std::uint64_t bytes = 1; bytes <= bytes_max; bytes *= 2) {
    Update sized = update;
    sized.bytes = bytes;
    const auto found = candidates(server, sized, costs);
    if (!found.ok()) break;  // no message holds as much: crossovers says why nothing holds any
    for (const Candidate& candidate : *found) {
      CostCurve& curve = by_name[candidate.method.name];
      curve.method = candidate.method.name;
      curve.points.push_back({bytes, candidate.cost_ns});
    }
    if (bytes > bytes_max / 2) break;
  }
  PERDURE_TRY(changes, crossovers(server, update, costs, bytes_max));
  CostCurves curves;
  curves.changes = std::move(changes);
  for (auto& [name, curve] : by_name) curves.methods.push_back(std::move(curve));
  return curves;
}

Result<std::string> cost_plot_text(const ServerProfile& server, const Update& update,
                                   const CostModel& costs, std::uint64_t bytes_max) {
  constexpr double kBarPerDecade = 10;
  PERDURE_TRY(changes, crossovers(server, update, costs, bytes_max));
  std::string text;
  std::size_t shown = 0;
  for (std::uint64_t bytes = 1;; bytes *= 4) {
    for (; shown < changes.size() && changes[shown].bytes <= bytes; ++shown) {
      text +=
          fmt::format("-- from {} bytes: {}\n", changes[shown].bytes, changes[shown].method.name);
    }
    Update sized = update;
    sized.bytes = bytes;
    const auto found = candidates(server, sized, costs);
    if (!found.ok()) return text;  // no message holds as much
    const double microseconds = found->front().cost_ns / 1000;
    const double decades = std::log10(std::max(microseconds, 0.01)) + 2;  // from 10 ns on
    text += fmt::format("{:>10} {:>12.2f} us  {}\n", format_bytes(bytes), microseconds,
                        std::string(static_cast<std::size_t>(decades * kBarPerDecade) + 1, '#'));
    if (bytes > bytes_max / 4) return text;
  }
}

}  // namespace perdure::plan
