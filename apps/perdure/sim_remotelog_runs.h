// Figure 2 of the taxonomy paper, simulated: REMOTELOG under all 72 methods of its tables, beside
// the one method that is right on every responder, and its claims.
#pragma once

#include "plan/paper.h"
#include "report/progress.h"
#include "sim/remotelog_run.h"
#include "sim_figures.h"

#include <vector>

namespace perdure::app {

/// Right on every responder of the tables, also where that is not known (tests/agreement).
inline constexpr const char* kUniversalMethod = "send-copy-flush-ack";

struct RemotelogRow {
  plan::Scenario scenario;
  sim::RemotelogResult published;  // the tables' method
  sim::RemotelogResult universal;  // kUniversalMethod on the same responder, flushing always
};

/// Says on standard error how far the appends of a command's simulations are.
class RemotelogProgress {
 public:
  RemotelogProgress(std::uint64_t simulations, const sim::RemotelogOptions& options);
  /// run_remotelog, which is one of them.
  sim::RemotelogResult run(const Method& method, const ServerProfile& profile,
                           const Hardware& hardware, sim::RemotelogOptions options);

 private:
  report::ProgressBar bar_;
  std::uint64_t appended_ = 0;
};

/// Errors  InvalidArgument: fewer receive buffers than an update takes.
Result<std::vector<RemotelogRow>> simulate_remotelog(const Hardware& hardware,
                                                     const sim::RemotelogOptions& options,
                                                     RemotelogProgress& progress);

double mean_us(const sim::RemotelogResult& result);

/// Panel of figure 2, 'a' to 'f': DMP, MHP, WSP; singletons, then compound updates.
char panel_of(const plan::Scenario& scenario);
/// "ddio_dram_rqwrb_write", as the figure labels its bars.
std::string bar_of(const plan::Scenario& scenario);

/// What sections 4.3 and 4.4 say in numbers. Requires  all 72.
std::vector<Claim> remotelog_claims(const std::vector<RemotelogRow>& rows);
/// The same on other servers than the file's, which the paper's may have been.
/// Errors  as simulate_remotelog.
Result<std::vector<Assumption>> remotelog_assumptions(const Hardware& hardware,
                                                      const sim::RemotelogOptions& options,
                                                      RemotelogProgress& progress);

struct RemotelogStudy {
  std::vector<RemotelogRow> rows;
  std::vector<Assumption> assumptions;
};
/// Both. Errors  as simulate_remotelog.
Result<RemotelogStudy> study_remotelog(const Hardware& hardware,
                                       const sim::RemotelogOptions& options);
/// What they say in words, each with what the runs show.
std::vector<std::string> remotelog_remarks(const std::vector<RemotelogRow>& rows);
report::Table remotelog_table(const std::vector<RemotelogRow>& rows);
std::string remotelog_drawing(const std::vector<RemotelogRow>& rows);

}  // namespace perdure::app
