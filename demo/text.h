// RecordText: the text that is appended record by record. A record is a line with its end, so all
// records together are the text; it is repeated as often as needed.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::demo {

class RecordText {
 public:
  /// Orders of a made-up trading house, always the same ones.
  static RecordText orders();
  /// The .txt and .md files of a directory, by name. Errors: NotFound (no directory, no text).
  static Result<RecordText> from_directory(const std::string& directory);

  /// The record at `index`, counted from 0, without limit.
  std::span<const std::byte> record(std::uint64_t index) const;
  /// Bytes of the first `records` records.
  std::uint64_t bytes(std::uint64_t records) const;
  std::uint64_t lines() const { return lines_.size(); }
  const std::string& origin() const { return origin_; }

 private:
  RecordText(std::string text, std::string origin);

  std::vector<char> text_;
  std::vector<std::string_view> lines_;
  std::string origin_;
};

}  // namespace perdure::demo
