// How a failed system call becomes an Error.
#include "core/errno_error.h"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

namespace perdure {
namespace {

ErrorCode code_of(int error_number) {
  switch (error_number) {
    case ENOENT:
    case ENOTDIR: return ErrorCode::NotFound;
    case EEXIST: return ErrorCode::AlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS: return ErrorCode::PermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return ErrorCode::NoSpace;
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP: return ErrorCode::InvalidArgument;
    case ETXTBSY: return ErrorCode::Busy;
    case EOPNOTSUPP: return ErrorCode::Unsupported;
    default: return ErrorCode::SystemError;
  }
}

}  // namespace

Error errno_error(std::string_view what, int error_number) {
  return Error{code_of(error_number),
               fmt::format("{}: {}", what, std::generic_category().message(error_number))};
}

}  // namespace perdure
