// The same machine once more, as a Promela model for SPIN: a second, independent witness. It is
// written from the method's data and shares nothing with model.h: no reductions, one process per
// actor, the requester free to be slow.
#pragma once

#include "check/check.h"
#include "check/set_check.h"

#include <string>

namespace perdure::check {

/// A complete Promela model. SPIN reports an assertion violation if a property of a state is
/// broken, and an invalid end state if the requester can get stuck. Run it with
/// `spin -a model.pml && cc -DSAFETY -o pan pan.c && ./pan`.
///
/// Requires  check(method, profile, options) does not report NotModelled.
std::string to_promela(const Method& method, const ServerProfile& profile,
                       const CheckOptions& options = {});

/// The same for updates by different methods.
///
/// Requires  check_sequence(updates, profile, options) does not report NotModelled.
std::string to_promela(const std::vector<MixedUpdate>& updates, const ServerProfile& profile,
                       const SetOptions& options);

}  // namespace perdure::check
