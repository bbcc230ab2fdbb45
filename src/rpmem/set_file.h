// Set files as PMDK writes and reads them (poolset(5)), as far as a target serves them: one replica
// of part files. And where the files of a target may lie.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::rpmem {

inline constexpr std::uint64_t kPageBytes = 4096;

inline constexpr std::uint64_t kPartBytesMin = std::uint64_t{2} << 20;
inline constexpr std::uint64_t kPartBytesMax = std::uint64_t{1} << 46;
inline constexpr std::size_t kPartsMax = 1024;
inline constexpr std::size_t kSetFileBytesMax = 1024 * 1024;
inline constexpr std::size_t kSetNameMax = 1024;

struct SetPart {
  std::string path;  // absolute
  std::uint64_t bytes = 0;
  std::size_t line = 0;  // of the set file
};

struct SetFile {
  std::string path;
  bool no_headers = false;     // OPTION NOHDRS
  bool single_header = false;  // OPTION SINGLEHDR
  std::vector<SetPart> parts;

  std::size_t headers() const { return no_headers ? 0 : single_header ? 1 : parts.size(); }
  /// Where the pool begins in the file of a part: the header of the first one is the pool's start.
  std::uint64_t data_at(std::size_t part) const;
  std::uint64_t data_bytes(std::size_t part) const;
  std::uint64_t pool_bytes() const;
};

/// Reads the text of a set file. `path` is for errors. Pure.
/// Errors: InvalidArgument, Unsupported (what PMDK knows and a target does not serve: replicas,
/// AUTO, directories), each naming the line.
Result<SetFile> parse_set_file(std::string_view text, const std::string& path);

/// "16M", "4GB", "8MiB", "4096": K, M, G, T, P with iB or nothing are powers of 1024, with B powers
/// of 1000. Errors: InvalidArgument.
Result<std::uint64_t> parse_part_size(std::string_view word);

/// Where sets and their parts may lie.
struct SetDirectories {
  std::string sets;                // poolset-dir
  std::vector<std::string> parts;  // besides: part-dir
};

/// The path of a set by the name that a client gives: below directories.sets, also behind links.
/// Errors: InvalidArgument (absolute, or leads out), NotFound, PermissionDenied.
Result<std::string> find_set(const SetDirectories& directories, const std::string& name);

/// Reads it, and asks that every part lies in one of the directories.
/// `force`: a part whose directory is not there is left out.
/// Errors: those of find_set and parse_set_file; PermissionDenied (a part outside); NotFound.
Result<SetFile> read_set(const SetDirectories& directories, const std::string& name,
                         bool force = false);

}  // namespace perdure::rpmem
