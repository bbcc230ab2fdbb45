// Ending on request: what runs long asks whether SIGINT or SIGTERM came.
#pragma once

namespace perdure::app {

/// From now on the two signals are counted instead of ending the program. A third one ends it.
void count_signals();

/// How often one came.
int signals_received();

}  // namespace perdure::app
