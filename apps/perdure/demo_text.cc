// The text and its lines.
#include "demo_text.h"

#include "demo_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

namespace perdure::app {

RecordText::RecordText(std::string text, std::string origin)
    : text_(text.begin(), text.end()), origin_(std::move(origin)) {
  std::string_view rest(text_.data(), text_.size());
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size() - 1);
    lines_.push_back(rest.substr(0, end + 1));
    rest.remove_prefix(end + 1);
  }
}

RecordText RecordText::embedded() {
  std::string text;
  for (const std::string_view piece : embedded_texts()) text += piece;
  return RecordText(std::move(text), "the project's documents and headers");
}

Result<RecordText> RecordText::from_directory(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const auto extension = entry.path().extension();
    if (extension == ".txt" || extension == ".md") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const std::string& path : paths) text += read_text(path);
  if (text.empty()) {
    return Error{ErrorCode::NotFound,
                 fmt::format("there is no text in '{}': its .txt and .md files are what would be "
                             "appended",
                             directory)};
  }
  return RecordText(std::move(text), fmt::format("{} files of {}", paths.size(), directory));
}

std::span<const std::byte> RecordText::record(std::uint64_t index) const {
  const std::string_view line = lines_[index % lines_.size()];
  return std::as_bytes(std::span(line.data(), line.size()));
}

std::uint64_t RecordText::bytes(std::uint64_t records) const {
  std::uint64_t rest = 0;
  for (std::uint64_t i = 0; i < records % lines_.size(); ++i) rest += lines_[i].size();
  return records / lines_.size() * text_.size() + rest;
}

}  // namespace perdure::app
