// The papers' figures simulated, each beside what its paper says: figure 2 of the taxonomy paper
// (sim_remotelog_runs.cc); of the BROI paper 4, 12 and 13 on the network (sim_network_figures.cc)
// and 9 to 11 on the server (sim_server_figures.cc).
#pragma once

#include "sim/client_applications.h"
#include "sim_claims.h"
#include "sim_network_runs.h"
#include "sim_server_runs.h"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace perdure::app {

struct Figure {
  int number = 0;
  std::string title;
  report::Table table;
  std::vector<Claim> claims;            // empty: the paper's text has no number
  std::vector<Assumption> assumptions;  // what the paper does not say, the other way
  std::string decides;                  // the assumption that the number depends on most
  std::vector<std::string> remarks;     // what the paper leaves open, and what was found
  std::string drawing;                  // SVG for a page
};

struct FigureOptions {
  NetworkFiles files;
  std::string applications;
  std::uint64_t network_transactions = 2000;
  ServerRunOptions server;
};

/// Runs that several figures show, each made when the first of them asks.
struct SharedRuns {
  BuiltStructures structures;
  /// Of figures 9 and 10: without remote channels, and with them; the same from cold caches on.
  std::array<std::optional<std::vector<ServerRow>>, 2> servers;
  std::array<std::optional<std::vector<ServerRow>>, 2> cold_servers;
  /// What decides both, on the page.
  struct Assumed {
    std::string title;
    std::vector<std::pair<std::string, ServerGain>> gains;  // by what was assumed
  };
  std::optional<std::vector<Assumed>> assumed_of_servers;
};

/// BSP over Sync with 6 epochs of 512 bytes, as the BROI paper has it.
inline constexpr double kFigure4Gain = 4.6;
inline constexpr std::array kFigures{2, 4, 9, 10, 11, 12, 13};

/// What can be said of a figure before anything is simulated.
/// Requires  `number` is one of kFigures.
/// Errors    of files; InvalidArgument: what does not fit, or nothing to compare.
Result<void> check_figure(int number, const FigureOptions& options);
Result<void> check_network_figure(int number, const FigureOptions& options);  // 4, 12, 13
Result<void> check_server_figure(int number, const FigureOptions& options);   // 9 to 11

/// Requires  `number` is one of kFigures.
/// `shared` is that of all figures with these options.
/// Errors    of files, and of runs.
Result<Figure> simulate_figure(int number, const FigureOptions& options, SharedRuns& shared);

Result<Figure> simulate_figure_2(const FigureOptions& options);
Result<Figure> simulate_figure_4(const FigureOptions& options);
Result<Figure> simulate_figure_9_or_10(int number, const FigureOptions& options,
                                       SharedRuns& shared);
Result<Figure> simulate_figure_11(const FigureOptions& options, SharedRuns& shared);
Result<Figure> simulate_figure_12(const FigureOptions& options);
Result<Figure> simulate_figure_13(const FigureOptions& options);

}  // namespace perdure::app
