#include "control/version.h"

#include <perdure/version.h>

namespace perdure::control {

std::string_view version() { return PERDURE_VERSION_STRING; }

}  // namespace perdure::control
