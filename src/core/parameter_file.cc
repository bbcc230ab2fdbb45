// Reading quantities with units: see parameter_file.h.
#include "core/parameter_file.h"

#include <fmt/format.h>

#include "core/text_file.h"
#include "core/try.h"

namespace perdure {

Result<ParameterFile> ParameterFile::read(const std::string& path) {
  PERDURE_TRY(text, load_text(path, kFileBytesMax));
  return parse(text, path);
}

Result<ParameterFile> ParameterFile::parse(std::string_view text, std::string name) {
  PERDURE_TRY(file, TomlFile::parse(text, std::move(name)));
  return ParameterFile(std::move(file));
}

void ParameterFile::quantity(std::string_view table, std::string_view key, Need need,
                             std::string_view unit, double min, double max, double& target) {
  note_asked(table, key);
  const std::string name = fmt::format("{}.{}", table, key);
  if (!has_table(name)) {
    if (has(table, key)) {
      problem(table, key, R"(has no unit: write {value = ..., unit = "...", source = "..."})");
    } else if (need == Need::Required) {
      problem(table, key, "is missing");
    }
    return;
  }
  std::string its_unit;
  std::string source;
  real(name, "value", Need::Required, min, max, target);
  text(name, "unit", Need::Required, its_unit);
  text(name, "source", Need::Required, source);
  if (!its_unit.empty() && its_unit != unit) {
    problem(name, "unit",
            fmt::format("'{}' is not the unit of this one, which is {}", its_unit, unit));
  }
}

}  // namespace perdure
