// Ending on request: what runs long asks whether SIGINT or SIGTERM came.
#pragma once

namespace perdure::app {

/// From now on the two signals are counted instead of ending the program. A third one ends it.
void count_signals();

/// How often one came.
int signals_received();

/// For a command that runs another program in its place, in its process group: from now on those
/// that were sent to this process are kept for next_signal(). What was typed at the terminal has
/// reached that program, too, and is dropped. A third one ends this process.
void pass_on_signals();

/// One that has come and was not returned before; 0: none.
int next_signal();

}  // namespace perdure::app
