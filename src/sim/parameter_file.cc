#include "sim/parameter_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <memory>

#include "core/errno_error.h"
#include "core/try.h"

namespace perdure::sim {

Result<ParameterFile> ParameterFile::read(const std::string& path) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (!file) return errno_error(fmt::format("{} can not be read", path), errno);
  std::string text(kFileBytesMax + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) {
    return Error{ErrorCode::SystemError, fmt::format("{} can not be read", path)};
  }
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

}  // namespace perdure::sim
