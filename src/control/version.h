// The version of Perdure, as answers and --version give it.
#pragma once

#include <string_view>

namespace perdure::control {

std::string_view version();

}  // namespace perdure::control
