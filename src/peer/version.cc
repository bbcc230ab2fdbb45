// The version of Perdure: the build knows it.
#include "peer/version.h"

namespace perdure::peer {

std::string_view version() { return PERDURE_VERSION; }

}  // namespace perdure::peer
