#include <perdure/version.h>

const char* perdure_version(void) { return PERDURE_VERSION_STRING; }
