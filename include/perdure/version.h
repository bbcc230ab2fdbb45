/* Which Perdure this is, for C and C++: the macros of what a program is compiled with, the function
 * of what it runs with. Before 1.0 a new minor version may change any interface. */
#ifndef PERDURE_VERSION_H
#define PERDURE_VERSION_H

#define PERDURE_VERSION_MAJOR 0
#define PERDURE_VERSION_MINOR 1
#define PERDURE_VERSION_PATCH 0
#define PERDURE_VERSION_STRING "0.1.0"

#ifdef __cplusplus
extern "C" {
#endif

/* "major.minor.patch" of the library. Any thread. */
const char* perdure_version(void);

#ifdef __cplusplus
}
#endif

#endif
