#include "plan_plot.h"

#include "core/try.h"
#include "plan/render.h"
#include "report/charts.h"

#include <fmt/format.h>

#include <algorithm>

namespace perdure::app {

Result<std::string> cost_plot(const ServerProfile& server, const plan::Update& update,
                              const plan::CostModel& costs, std::uint64_t bytes_max) {
  PERDURE_TRY(curves, plan::cost_curves(server, update, costs, bytes_max));
  report::SizeChart chart;
  chart.title = fmt::format("expected cost by record size: {}, {}\ncosts: {}", describe(server),
                            to_string(update.shape), plan::source_of(costs));
  chart.unit = "us";
  for (const plan::CostCurve& curve : curves.methods) {
    auto& series = chart.series.emplace_back();
    series.name = curve.method;
    for (const auto& [bytes, cost_ns] : curve.points) {
      series.points.emplace_back(static_cast<double>(bytes), std::max(cost_ns / 1e3, 0.001));
    }
  }
  for (std::size_t i = 1; i < curves.changes.size(); ++i) {
    const plan::Crossover& change = curves.changes[i];
    chart.marks.push_back({static_cast<double>(change.bytes),
                           fmt::format("from {} bytes: {}", change.bytes, change.method.name)});
  }
  return report::to_svg_file(chart);
}

}  // namespace perdure::app
