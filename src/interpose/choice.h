// Which back-end this process has: the environment says it, since nothing else reaches a program
// that is not ours.
#pragma once

#include "interpose/backend.h"

namespace perdure::interpose {

/// `record:DIRECTORY`: see recorder.h. `mirror:FILE`: see forwarder.h.
inline constexpr char kVariable[] = "PERDURE_INTERPOSE";

/// Null: none; calls are only passed on. The first call decides. A choice that can not be served
/// ends the process with a message: it must not run as if it were.
Backend* backend();

}  // namespace perdure::interpose
