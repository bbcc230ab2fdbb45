// Text files, read and written whole.
#pragma once

#include <perdure/result.h>

#include <string>
#include <string_view>

namespace perdure {

/// Replaces the file at `path`, whole or not at all; directories above it are made.
/// Errors: NotFound, PermissionDenied, NoSpace, SystemError.
Result<void> write_file(const std::string& path, std::string_view text);

/// The text of a file that is there and is meant to be small: what is behind `bytes_max` may be
/// missing, and one byte of it is not. Errors: NotFound, PermissionDenied, SystemError.
Result<std::string> load_text(const std::string& path, std::size_t bytes_max);

/// The text of a file; empty when it can not be read.
std::string read_text(const std::string& path);

}  // namespace perdure
