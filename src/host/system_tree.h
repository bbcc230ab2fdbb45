// SystemTree: the files by which a machine describes itself (/proc, /sys), read below a root, so
// that the doctor can be shown a machine that somebody made up. Never writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::host {

/// One file, and how reading it went.
struct Reading {
  enum class State { Read, Absent, Unreadable };

  State state = State::Absent;
  std::string path;    // as the machine itself names it, without the root
  std::string text;    // without the white space at its end
  std::string reason;  // why it is unreadable

  bool read() const { return state == State::Read; }
  bool absent() const { return state == State::Absent; }
  /// For a person: the path and what it said (the first line), or why it says nothing.
  std::string evidence() const;
  /// The whole text as a decimal number.
  std::optional<std::uint64_t> number() const;
};

/// Threads  any number of callers: it holds nothing but the root.
class SystemTree {
 public:
  explicit SystemTree(std::string root = "") : root_(std::move(root)) {}

  /// The first kFileBytesMax bytes of a file.
  Reading read(const std::string& path) const;
  /// The same, byte for byte, for files that are not text.
  Reading read_bytes(const std::string& path) const;
  /// The names in a directory in alphabetical order, at most kNamesMax; empty if there is none.
  std::vector<std::string> names(const std::string& directory) const;
  bool exists(const std::string& path) const;
  /// Where the links of a path lead, as the machine names it; empty if nowhere.
  std::string resolve(const std::string& path) const;
  /// Where a file is for this program: below the root.
  std::string below_root(const std::string& path) const { return root_ + path; }

  static constexpr std::size_t kFileBytesMax = 256 * 1024;
  static constexpr std::size_t kNamesMax = 65536;  // /proc has one for each process

 private:
  std::string root_;
};

/// The words of a text, without the white space between them.
std::vector<std::string> words_of(std::string_view text);
/// The last part of a path.
std::string last_name(const std::string& path);
/// A whole text as a decimal number.
std::optional<std::uint64_t> number_in(std::string_view text);

}  // namespace perdure::host
