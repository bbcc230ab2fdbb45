#include <perdure/version.h>

const char* perdure_version(void) { return PERDURE_VERSION_STRING; }

namespace perdure {

std::string_view version() { return PERDURE_VERSION_STRING; }

}  // namespace perdure
