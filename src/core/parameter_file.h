// ParameterFile: quantities of hardware, each with unit and source, read from TOML and refused when
// wrong.
#pragma once

#include "core/toml_file.h"

#include <string>
#include <string_view>
#include <utility>

namespace perdure {

class ParameterFile : public TomlFile {
 public:
  /// Errors: InvalidArgument with the line; NotFound, PermissionDenied or SystemError when it
  /// can not be read.
  static Result<ParameterFile> read(const std::string& path);
  static Result<ParameterFile> parse(std::string_view text, std::string name);

  /// A quantity written as `key = {value = 1.5, unit = "ns", source = "..."}`; unit and source must
  /// be there, and the unit must be this one.
  void quantity(std::string_view table, std::string_view key, Need need, std::string_view unit,
                double min, double max, double& target);

 private:
  explicit ParameterFile(TomlFile file) : TomlFile(std::move(file)) {}
};

}  // namespace perdure
