// Which code is of the libraries that the interposer stands before, or of the interposer itself: a
// call that comes from there is a part of another one.
#pragma once

namespace perdure::interpose {

/// The library that has this function is one of them.
void note_library(void* function);

/// Whether the address is in the code of one of them, or in our own: a library's last call of a
/// function returns to where its own function was called, which is here. Signal handlers may ask.
bool is_library(const void* address);

}  // namespace perdure::interpose
