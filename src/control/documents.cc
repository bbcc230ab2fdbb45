// What makes a request to a peer sensible, whoever carries it.
#include "control/documents.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/epoch.h"

namespace perdure::control {
namespace {

bool pool_name_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
         c == '_' || c == '-';
}

bool control_character(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

}  // namespace

Result<void> validate_pool_name(std::string_view name) {
  const bool valid = !name.empty() && name.size() <= kPoolNameMax && name.front() != '.' &&
                     std::all_of(name.begin(), name.end(), pool_name_character);
  if (valid) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("a pool's name has 1 to {} characters of A-Z a-z 0-9 . _ - and does not "
                           "begin with a dot",
                           kPoolNameMax)};
}

Result<void> validate(const PoolRequest& request) {
  if (auto named = validate_pool_name(request.name); !named) return named;
  if (request.bytes >= kPoolBytesMin && request.bytes <= kPoolBytesMax) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("pool '{}' can not have {} bytes; give {} to {}", request.name,
                           request.bytes, kPoolBytesMin, kPoolBytesMax)};
}

Result<void> validate(const SessionRequest& request) {
  if (auto named = validate_pool_name(request.pool); !named) return named;
  const std::string& name = request.writer_name;
  if (name.size() > kWriterNameMax || std::any_of(name.begin(), name.end(), control_character)) {
    return Error{
        ErrorCode::InvalidArgument,
        fmt::format("writer_name has at most {} bytes and no control characters", kWriterNameMax)};
  }
  if (!request.write) return {};
  if (request.epoch.value == 0 || request.writer == 0) {
    return Error{ErrorCode::InvalidArgument,
                 "a session that writes needs an epoch and a writer id, both above 0"};
  }
  if (request.epoch > kEpochMax) {
    return Error{ErrorCode::InvalidArgument, fmt::format("epoch {} is beyond the highest, {}",
                                                         request.epoch.value, kEpochMax.value)};
  }
  return {};
}

}  // namespace perdure::control
