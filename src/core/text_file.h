// Text files, read and written whole.
#pragma once

#include <perdure/result.h>

#include <string>
#include <string_view>

namespace perdure {

/// Replaces the file at `path`, whole or not at all; directories above it are made.
/// Errors: NotFound, PermissionDenied, NoSpace, SystemError.
Result<void> write_file(const std::string& path, std::string_view text);

/// The text of a file; empty when it can not be read.
std::string read_text(const std::string& path);

}  // namespace perdure
