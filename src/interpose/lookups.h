// dlsym(): who loads libpmem while it runs, as Python and other languages do, looks its functions
// up by the handle of the library, and gets the interposer's.
#pragma once

namespace perdure::interpose {

using Lookup = void*(void* handle, const char* name);

/// The C library's dlsym(), or that of whoever else stands before it, past the interposer's own.
Lookup* real_dlsym();

/// The library's own function of which the program was given ours instead; null: it has not looked
/// this one up.
void* looked_up(const char* name);

}  // namespace perdure::interpose
