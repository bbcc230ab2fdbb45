/* Which Perdure this is, for C and C++: the macros of what a program is compiled with, the function
 * of what it runs with. Before 1.0 a new minor version may change any interface. */
#ifndef PERDURE_VERSION_H
#define PERDURE_VERSION_H

#define PERDURE_VERSION_MAJOR 0
#define PERDURE_VERSION_MINOR 1
#define PERDURE_VERSION_PATCH 0
#define PERDURE_VERSION_STRING "0.1.0"

/* Of the binary interface: the shared library is libperdure.so.N. It counts up when programs have
 * to be compiled again. */
#define PERDURE_ABI_VERSION 1

#ifdef __cplusplus
#include <string_view>

extern "C" {
#endif

/* "major.minor.patch" of the library. Any thread. */
const char* perdure_version(void);

#ifdef __cplusplus
}

namespace perdure {

/// The same. Threads: any.
std::string_view version();

}  // namespace perdure
#endif

#endif
