// What a figure's number does when the assumption that decides it is another one: a drawing for the
// page of `perdure sim all`.
#pragma once

#include "sim_figures.h"

#include <string>

namespace perdure::app {

/// What can be said of it before anything is simulated.
/// Requires  `number` is one of kFigures, and check_figure found nothing.
/// Errors    of files; InvalidArgument: what does not fit.
Result<void> check_sensitivity(int number, const FigureOptions& options);

struct Sensitivity {
  std::string title;  // what was varied; a page does not show it unless it is told to
  std::string svg;
};

/// Runs on the server are short and small here: hash, 64 MiB unless options.server has less.
/// Requires  `number` is one of kFigures; `shared` is that of all figures with these options.
/// Errors    of files, and of runs.
Result<Sensitivity> draw_sensitivity(int number, const FigureOptions& options, SharedRuns& shared);

}  // namespace perdure::app
