// The figures of *durable RPC* that `perdure bench rpc` makes again: which loads each has, what is
// read off it, and what the paper says of it.
#pragma once

#include "bench/rpc_point.h"
#include "report/page.h"
#include "report/setup.h"
#include "report/table.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::bench {

/// What a figure draws.
enum class RpcQuantity : std::uint8_t {
  CallsPerSecond,  // more is better; of all others less
  MeanLatency,     // microseconds
  P99Latency,
  TotalTime,  // seconds for all requests
};

std::string_view unit_of(RpcQuantity quantity);
double value_of(RpcQuantity quantity, const RpcSample& sample);

/// A graph that is still to be made, or read where it has a file.
struct RpcGraphSource {
  std::uint32_t vertices = 0;
  std::uint64_t edges = 0;
  std::string file = {};
  std::uint64_t iterations = 1;  // 0: as many as the calls of the load make
};

/// A group of bars: one load.
struct RpcCell {
  std::string label;
  RpcLoad load;
  std::optional<RpcGraphSource> graph = {};
};

/// A comparison that the paper's text makes: designs of its own with others, in some cells.
struct RpcClaim {
  std::string_view where;  // "heavy load, WRITEs"
  std::string_view paper_says;
  std::vector<const rpc::models::Design*> own;
  std::vector<const rpc::models::Design*> others;
  std::vector<std::string_view> cells;  // their labels; empty: all
};

struct RpcFigure {
  std::string_view name;  // "8"
  std::string_view title;
  RpcQuantity quantity = RpcQuantity::CallsPerSecond;
  std::vector<RpcCell> cells;
  std::vector<RpcClaim> claims;
  std::string note;  // what is otherwise than in the paper
};

/// How much is run.
struct RpcScale {
  bool full = false;        // objects and calls as in the paper
  std::uint64_t calls = 0;  // of a client; 0: what fits two minutes
  std::uint64_t seed = 1;
  std::vector<std::string> graphs = {};  // files of edges, in place of generated graphs
};

/// All of them, in the paper's order.
std::vector<RpcFigure> rpc_figures(const RpcScale& scale);
/// Their names, and that of figure 12 (rpc_failures.h): "8, 9, 11, ...".
std::string rpc_figure_names();

struct RpcRunOptions {
  RpcFabric fabric = RpcFabric::Shm;
  std::size_t rounds = 3;
  std::size_t window = 4;                           // of the equalised form
  std::vector<const rpc::models::Design*> designs;  // empty: those that the paper's figures have
  bool confounders = false;                         // each by itself, too
};

/// One design in one cell and form: its rounds.
struct RpcRow {
  RpcPoint point;
  std::string cell;
  std::string confounder;  // that is switched on by itself; empty: none
  std::vector<RpcSample> rounds;
  std::string failure;  // why there are none, or not all: then it is compared with nothing

  bool is_whole() const { return failure.empty() && !rounds.empty(); }
  double median(RpcQuantity quantity) const;
  double low(RpcQuantity quantity) const;
  double high(RpcQuantity quantity) const;
  std::uint64_t lost() const;
};

/// What was found already; a run that is repeated takes it from there.
class RpcResults {
 public:
  /// Keeps nothing outside of this process.
  RpcResults() = default;
  /// Reads what an earlier run left in the file, and adds to it. A line that is not whole, the last
  /// one of a run that was killed, is left out. Errors: SystemError, PermissionDenied, Corrupt.
  static Result<RpcResults> open(const std::string& path);

  const RpcSample* find(const RpcPoint& point, std::size_t round) const;
  /// Errors: SystemError: it can not be written.
  Result<void> add(const RpcPoint& point, std::size_t round, const RpcSample& sample);

 private:
  std::string path_;
  std::map<std::string, RpcSample> by_key_;
};

/// How many runs a figure takes, 0 where none of the designs can be run; told before each of them
/// how many were made.
std::uint64_t rpc_runs(const RpcFigure& figure, const RpcRunOptions& options);
using RpcProgress = std::function<void(std::uint64_t made, const std::string& what)>;

/// Makes the graphs of a figure, if it has some. Errors: those of read_edge_list.
Result<void> make_rpc_graphs(RpcFigure& figure, std::uint64_t seed);

/// Runs a figure, whose graphs are made: round by round, so that what disturbs the machine for a
/// while disturbs all designs alike. A point that fails is a row with a failure. Errors:
/// InvalidArgument: none of the designs can be run there, naming those that can; SystemError:
/// interrupted, or the results can not be kept.
Result<std::vector<RpcRow>> run_rpc_figure(const RpcFigure& figure, const RpcRunOptions& options,
                                           RpcResults& results, const RpcProgress& progress);

// --- results ------------------------------------------------------------------------------------

/// By how much own designs are better than others, over all pairs and cells: from, to. For
/// CallsPerSecond how much more, else how much less, of the other's value. Nothing: not run.
struct RpcGain {
  double from = 0;
  double to = 0;
};
std::optional<RpcGain> gain_of(const RpcFigure& figure, const RpcClaim& claim,
                               std::span<const RpcRow> rows, RpcForm form,
                               std::string_view confounder = {});
/// "+20 % to +90 %".
std::string gain_text(const std::optional<RpcGain>& gain);

struct RpcFigureResult {
  RpcFigure figure;
  RpcFabric fabric = RpcFabric::Shm;
  std::vector<RpcRow> rows;
};

std::string rpc_text(const RpcFigureResult& result);
void add_rpc_figure(report::ReportPage& page, const RpcFigureResult& result);
/// `failures`: those of figure 12, as rpc_failures_json gives them.
std::string rpc_json(std::span<const RpcFigureResult> results, const nlohmann::json& failures,
                     const report::Setup& setup);

}  // namespace perdure::bench
