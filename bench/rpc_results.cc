// What a run of `perdure bench rpc` found, kept in a file so that a run that was ended goes on
// where it was: a line of JSON for each sample.
#include "bench/rpc_figures.h"
#include "core/json.h"
#include "core/text_file.h"
#include "core/try.h"
#include "report/setup.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <sstream>

namespace perdure::bench {
namespace {

std::string key_of(const RpcPoint& point, std::size_t round) {
  return fmt::format("{} #{}", point.description(), round);
}

}  // namespace

Result<RpcResults> RpcResults::open(const std::string& path) {
  RpcResults results;
  results.path_ = path;
  std::error_code failed;
  if (!std::filesystem::exists(path, failed)) return results;
  std::istringstream lines(read_text(path));
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object()) continue;
    // Another program's numbers are not this one's.
    if (json.value("commit", "") != report::build_commit()) continue;
    PERDURE_TRY(sample, rpc_sample_from_json(json.value("sample", nlohmann::json())));
    results.by_key_[json.value("point", "")] = sample;
  }
  return results;
}

const RpcSample* RpcResults::find(const RpcPoint& point, std::size_t round) const {
  const auto found = by_key_.find(key_of(point, round));
  return found == by_key_.end() ? nullptr : &found->second;
}

Result<void> RpcResults::add(const RpcPoint& point, std::size_t round, const RpcSample& sample) {
  const std::string key = key_of(point, round);
  by_key_[key] = sample;
  if (path_.empty()) return {};
  const nlohmann::json line{
      {"commit", report::build_commit()}, {"point", key}, {"sample", to_json(sample)}};
  std::FILE* file = std::fopen(path_.c_str(), "a");
  if (file == nullptr) {
    return Error{ErrorCode::SystemError, fmt::format("'{}' can not be written", path_)};
  }
  const std::string text = json_text(line) + "\n";
  const bool whole = std::fwrite(text.data(), 1, text.size(), file) == text.size();
  if (std::fclose(file) != 0 || !whole) {
    return Error{ErrorCode::SystemError, fmt::format("'{}' can not be written", path_)};
  }
  return {};
}

}  // namespace perdure::bench
