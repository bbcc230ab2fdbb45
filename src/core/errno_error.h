// How a failed system call becomes an Error: the one place that knows which errno means what.
#pragma once

#include <perdure/result.h>

#include <string_view>

namespace perdure {

/// "`what`: <reason>", with the code a caller can act on: ENOENT is NotFound, EEXIST AlreadyExists,
/// EACCES, EPERM and EROFS PermissionDenied, ENOSPC, EDQUOT and EFBIG NoSpace, and so on; what is
/// not listed is SystemError.
Error errno_error(std::string_view what, int error_number);

}  // namespace perdure
