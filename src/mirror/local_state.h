// LocalState: what a mirror keeps beside its local file, in FILE.mirror: whose memory it is, since
// which writer, and whether it is whole. By that a file that another memory has taken the place of,
// that has lost its end, or over which replicas were half copied, is not taken for what counts.
//
// Lines of text; the second one only where the file is not as long as the mirror's memory:
//
//   perdure mirror 1
//   bytes 0000000000010000
//   id 0123456789abcdef
//   epoch 00000007
//   whole 1
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <optional>
#include <string>

namespace perdure::mirror {

struct LocalState {
  std::uint64_t id = 0;     // of the mirror
  std::uint32_t epoch = 0;  // of the writer that had it last
  bool whole = false;       // else a replica was being copied over it
  std::uint64_t bytes = 0;  // of the file, as it was mirrored last; 0: not known
  bool operator==(const LocalState&) const = default;
};

/// The file that a name leads to, also through symbolic links to one that is not there.
std::string path_behind(const std::string& name);

/// Where it is kept.
class LocalStateFile {
 public:
  /// Of memory that has no file: nothing is kept, and its program has to know.
  LocalStateFile() = default;
  /// Of a file, by its name or another one that leads to it. `bytes`: how long it is; 0: it is not
  /// compared, and nothing is kept of it.
  explicit LocalStateFile(const std::string& file, std::uint64_t bytes = 0);

  /// Its name; empty: there is none.
  const std::string& path() const { return path_; }
  std::uint64_t file_bytes() const { return bytes_; }
  /// Nothing: it is not there. Errors: Corrupt (it says nothing that can be understood), those of
  /// the file system.
  Result<std::optional<LocalState>> read() const;
  /// Whether write() would be let. Errors: those of write.
  Result<void> check_writable() const;
  /// Whole or not at all, and durable when this returns. Errors: those of the file system.
  Result<void> write(const LocalState& state) const;
  /// Errors: AlreadyExists as for write, those of the file system.
  Result<void> remove() const;

  /// Whether the file may be what counts, if it was changed by no other writer since. Errors:
  /// InvalidArgument: it is not whole, or shorter than it was; those of read.
  Result<void> check_whole() const;

 private:
  Result<void> check_ours() const;

  std::string file_;
  std::string path_;
  std::uint64_t bytes_ = 0;
};

}  // namespace perdure::mirror
