// Reading methods from a file in a form of docs/plan.schema.json, as `perdure plan` writes it.
// The text is not trusted: what is not described there is an error that names the place.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "core/method.h"
#include "core/method_set.h"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::app {

inline constexpr std::size_t kMethodFileBytesMax = 16 * 1024 * 1024;
inline constexpr std::size_t kMethodStepsMax = 64;
inline constexpr std::size_t kSetMethodsMax = 8;

/// A method and, if the file says so, the responder it is meant for.
struct FileMethod {
  Method method;
  std::optional<ServerProfile> server;
};

struct MethodFile {
  std::vector<FileMethod> methods;  // at least one
  std::vector<SetMember> set;       // the same, if they share a connection: all on one responder
  std::optional<Level> level;       // for which they were planned
};

/// Errors: InvalidArgument, naming the method and the field.
Result<MethodFile> parse_methods(std::string_view json);

/// The same from a file ("-": standard input). Errors: also NotFound, SystemError.
Result<MethodFile> read_methods(const std::string& path);

}  // namespace perdure::app
