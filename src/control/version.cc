// The version of Perdure: the build knows it.
#include "control/version.h"

namespace perdure::control {

std::string_view version() { return PERDURE_VERSION; }

}  // namespace perdure::control
