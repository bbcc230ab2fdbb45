// The signals that end the commands that serve, and a bench.
#pragma once

#include <perdure/result.h>

namespace perdure::kv_app {

/// SIGTERM and SIGINT from now on only make a descriptor readable; the second one ends the process
/// at once. To be called before any thread is started. The descriptor lives as long as the process.
Result<int> stop_descriptor();
/// Waits for it.
void wait_for_stop(int stop);
/// It was readable: from now on a signal ends the process.
void let_signals_end();

}  // namespace perdure::kv_app
