// Text files, read and written whole.
#pragma once

#include <perdure/result.h>

#include <string>
#include <string_view>

namespace perdure {

/// Replaces the file at `path`, whole or not at all; what is there and is no file, as /dev/null, is
/// written to. Errors: NotFound (no such directory), InvalidArgument (it is one), PermissionDenied,
/// NoSpace, SystemError.
Result<void> write_file(const std::string& path, std::string_view text);

/// Whether write_file() would be let: to know it before the work whose result it is. Leaves what is
/// there as it is. Errors: as above.
Result<void> require_writable(const std::string& path);

/// The text of a file that is there and is meant to be small: what is behind `bytes_max` may be
/// missing, and one byte of it is not. Errors: NotFound, PermissionDenied, SystemError.
Result<std::string> load_text(const std::string& path, std::size_t bytes_max);

/// The text of a file; empty when it can not be read.
std::string read_text(const std::string& path);

}  // namespace perdure
