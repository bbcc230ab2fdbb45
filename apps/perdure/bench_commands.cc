// `perdure bench`: measurements.
#include "bench_commands.h"

namespace perdure::app {

void add_bench_commands(Command app) {
  const Command bench = app.add_subcommand("bench", "Measure methods and limits on this machine");
  bench.require_subcommand();
  add_bench_remotelog(bench);
  add_bench_limits(bench);
  add_bench_mirror(bench);
  add_bench_files(bench);
  add_bench_rpc(bench);
}

}  // namespace perdure::app
