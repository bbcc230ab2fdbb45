// PartSet: the part files of one replica, locked, with their headers: made, opened, described anew
// and removed. Mapping them is part_region.h's business.
#pragma once

#include <perdure/result.h>

#include "pmem/file.h"
#include "rpmem/attributes.h"
#include "rpmem/part_header.h"
#include "rpmem/set_file.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace perdure::rpmem {

inline constexpr const char* kClientAttribute = "user.perdure.client";

/// Draws the UUIDs of parts behind the first.
using DrawUuid = std::function<Uuid16()>;

/// Threads: one caller at a time.
class PartSet {
 public:
  /// Makes the parts: zeros behind the headers, every block reserved. A part that is there already
  /// is never touched. Each appears whole, the first one last; on an error none is left.
  ///
  /// Durability  on success the files, their names and their headers are.
  /// Errors      AlreadyExists, Busy, NoSpace, NotFound (no such directory), PermissionDenied,
  ///             OutOfRange (the set has fewer than `bytes_min`), InvalidArgument (attributes and
  ///             options contradict each other), SystemError.
  static Result<PartSet> create(const SetFile& set, const PoolAttributes& attributes,
                                std::uint64_t bytes_min, const DrawUuid& draw_uuid);

  /// Opens the parts and compares their headers with each other.
  /// Errors  NotFound, PermissionDenied, Busy (somebody has a part open), OutOfRange; Corrupt (a
  ///         part of another size, a damaged header, parts of different pools); InvalidArgument
  ///         (headers and options contradict each other).
  static Result<PartSet> open(const SetFile& set, std::uint64_t bytes_min);

  /// Removes the files of all parts, and then with `set_too` that of the set, durably. All are
  /// locked first, so that none goes while any is in use. `force`: what is not there is no error.
  /// Errors  NotFound, Busy, PermissionDenied: nothing was removed; SystemError.
  static Result<void> remove(const SetFile& set, bool force, bool set_too);

  const SetFile& set() const { return set_; }
  /// What the first part's header says; empty without headers.
  const PoolAttributes& attributes() const { return attributes_; }
  const pmem::File& file(std::size_t part) const { return files_[part]; }

  /// Rewrites the headers. The first part gets the UUID that they name, the others keep theirs.
  /// Durability  on success it is. A crash in between leaves parts that are refused, or a header
  ///             that is damaged, as with PMDK; so does a medium that refused.
  /// Errors      InvalidArgument (no headers, or attributes that contradict the options),
  ///             SystemError, NoSpace.
  Result<void> set_attributes(const PoolAttributes& attributes);

  /// Notes at the first part, beside its bytes (the extended attribute kClientAttribute), whose it
  /// is from now on. `again`: it is to be so already. Where the file system has no such attributes
  /// nothing is noted, and nothing is known.
  /// Durability  on success it is.
  /// Errors      InvalidArgument: another client had it since, or it is another file; NoSpace,
  ///             SystemError.
  Result<void> note_client(std::uint64_t client, bool again);

  /// Takes the files away again, which create() made in this process.
  Result<void> remove_files();

 private:
  explicit PartSet(SetFile set) : set_(std::move(set)) {}
  Result<void> make(const PoolAttributes& attributes, const DrawUuid& draw_uuid);
  Result<void> write_headers();
  Result<void> read_headers();
  Result<void> check_links(const std::vector<PartHeader>& headers) const;
  Error in_part(std::size_t part, const Error& error) const;

  SetFile set_;
  std::vector<pmem::File> files_;
  PoolAttributes attributes_;
  std::vector<Uuid16> uuids_;  // of the parts that have headers
  std::uint64_t created_ = 0;
};

}  // namespace perdure::rpmem
