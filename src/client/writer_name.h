// How a writer is called that was given no name.
#pragma once

#include <string>

namespace perdure::client {

/// "host:process".
std::string this_writer();

}  // namespace perdure::client
