// Options that describe a responder and an update, shared by `plan` and `check`.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>
#include <perdure/types.h>

#include "commands.h"
#include "core/method.h"

#include <string>
#include <string_view>

namespace perdure::app {

/// The inverse of to_string. Errors: InvalidArgument, naming the accepted words.
Result<Level> parse_level(std::string_view word);
Result<Primary> parse_primary(std::string_view word);
/// "singleton", "compound", or epochs with their numbers of items: "1+2+1".
Result<UpdateShape> parse_shape(std::string_view word);

/// --domain, --ddio, --receive-buffers, --transport, --write-order, --dma-dirties, --qp-type and
/// one flag for each capability.
void add_profile_options(Command command, ServerProfile& profile);

/// Whether one of the options that say what the responder is was given: then it is that one, and
/// not the one that a file of methods names.
bool describes_responder(const Command& command);

}  // namespace perdure::app
