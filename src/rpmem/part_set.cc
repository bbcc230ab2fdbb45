// The part files of one replica: see part_set.h.
#include "rpmem/part_set.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <set>

#include "core/assert.h"
#include "core/counted.h"
#include "core/errno_error.h"
#include "core/try.h"
#include "pmem/sync_directory.h"

namespace perdure::rpmem {
namespace {

Result<void> check_attributes(const SetFile& set, const PoolAttributes& attributes) {
  const auto wrong = [&](const char* what) {
    return Error{ErrorCode::InvalidArgument, fmt::format("{}: {}", set.path, what)};
  };
  if (set.no_headers && !attributes.empty()) {
    return wrong("the pool has headers, and OPTION NOHDRS leaves no place for them: take it out");
  }
  if (set.no_headers) return {};
  if (attributes.empty()) {
    return wrong("the pool comes without attributes; such a set needs OPTION NOHDRS");
  }
  if (attributes.major == 0) return wrong("the attributes name the version 0 of the pool's format");
  const bool single = (attributes.incompat & kSingleHeader) != 0;
  if (single == set.single_header) return {};
  return wrong(single ? "the client's set has OPTION SINGLEHDR, and this one must have it, too"
                      : "OPTION SINGLEHDR must be in the client's set, too, and is not");
}

Result<void> check_bytes(const SetFile& set, std::uint64_t bytes_min) {
  if (set.pool_bytes() >= bytes_min) return {};
  return Error{
      ErrorCode::OutOfRange,
      fmt::format("{}: its {} hold {} bytes, and the pool has {}: make them larger", set.path,
                  counted(set.parts.size(), "part"), set.pool_bytes(), bytes_min)};
}

/// Ours, and the one that PMDK's own programs take.
Result<void> lock_part(const pmem::File& file) {
  PERDURE_TRY_VOID(pmem::lock_exclusively(file));
  if (::flock(file.descriptor(), LOCK_EX | LOCK_NB) == 0) return {};
  if (errno != EWOULDBLOCK) return errno_error(file.path() + ": flock", errno);
  return Error{
      ErrorCode::Busy,
      fmt::format("{}: is in use by another program; close the pool there first", file.path())};
}

Result<void> write_at(const pmem::File& file, std::span<const std::byte> bytes, off_t at) {
  while (!bytes.empty()) {
    const ssize_t wrote = ::pwrite(file.descriptor(), bytes.data(), bytes.size(), at);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) return errno_error(file.path() + ": write", errno);
    bytes = bytes.subspan(static_cast<std::size_t>(wrote));
    at += wrote;
  }
  return {};
}

Result<void> read_at(const pmem::File& file, std::span<std::byte> bytes) {
  off_t at = 0;
  while (!bytes.empty()) {
    const ssize_t got = ::pread(file.descriptor(), bytes.data(), bytes.size(), at);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno_error(file.path() + ": read", errno);
    if (got == 0) return Error{ErrorCode::Corrupt, file.path() + ": ends within its header"};
    bytes = bytes.subspan(static_cast<std::size_t>(got));
    at += got;
  }
  return {};
}

/// By an open file of its own. The kernel tells of a failed write-back once to each: by the one
/// that is mapped, a flush of the pool's bytes would hear nothing of it any more, and call them
/// durable.
Result<void> sync_apart(const pmem::File& file) {
  const std::string again = fmt::format("/proc/self/fd/{}", file.descriptor());
  const int descriptor = ::open(again.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) return errno_error(file.path() + ": open again", errno);
  const int failed = ::fdatasync(descriptor) == 0 ? 0 : errno;
  ::close(descriptor);
  PERDURE_TRY_VOID(pmem::lock_exclusively(file));  // closing takes the half that names the holder
  if (failed != 0) return errno_error(file.path() + ": fdatasync", failed);
  return {};
}

}  // namespace

Error PartSet::in_part(std::size_t part, const Error& error) const {
  return {error.code, fmt::format("{}: part {} ({}): {}", set_.path, part, set_.parts[part].path,
                                  error.message)};
}

Result<PartSet> PartSet::create(const SetFile& set, const PoolAttributes& attributes,
                                std::uint64_t bytes_min, const DrawUuid& draw_uuid) {
  PERDURE_TRY_VOID(check_attributes(set, attributes));
  PERDURE_TRY_VOID(check_bytes(set, bytes_min));
  PartSet made(set);
  PERDURE_TRY_VOID(made.make(attributes, draw_uuid));
  return made;
}

Result<void> PartSet::make(const PoolAttributes& attributes, const DrawUuid& draw_uuid) {
  std::vector<pmem::NewFile> files;  // removes what was not published
  for (const SetPart& part : set_.parts) {
    PERDURE_TRY(file, pmem::NewFile::begin(part.path, part.bytes));
    files.push_back(std::move(file));
  }
  attributes_ = attributes;
  const Uuid16 none{};
  if (!set_.no_headers && attributes_.user_flags == none) {
    attributes_.user_flags = architecture_of_this_machine();
  }
  for (std::size_t part = 0; part < set_.headers(); ++part) {
    uuids_.push_back(part == 0 ? attributes.uuid : draw_uuid());
  }
  struct stat status {};
  if (::fstat(files[0].file().descriptor(), &status) == 0) {
    created_ = static_cast<std::uint64_t>(status.st_ctime);
  }
  for (pmem::NewFile& file : files) files_.push_back(file.take_file());
  for (const pmem::File& file : files_) PERDURE_TRY_VOID(lock_part(file));
  PERDURE_TRY_VOID(write_headers());
  for (std::size_t part = files.size(); part-- > 0;) {
    auto published = files[part].publish(files_[part].descriptor());
    if (published.ok()) continue;
    for (std::size_t there = part + 1; there < files.size(); ++there) {
      (void)::unlink(set_.parts[there].path.c_str());
    }
    return published;
  }
  return {};
}

Result<void> PartSet::write_headers() {
  const std::size_t count = uuids_.size();
  for (std::size_t part = 0; part < count; ++part) {
    std::array<std::byte, kHeaderBytes> bytes{};
    PartHeader header;
    header.pool = attributes_;
    header.pool.uuid = uuids_[part];
    header.previous_part = uuids_[(part + count - 1) % count];
    header.next_part = uuids_[(part + 1) % count];
    header.created = created_;
    encode_header(header, bytes);
    PERDURE_TRY_VOID(write_at(files_[part], bytes, 0));
    PERDURE_TRY_VOID(sync_apart(files_[part]));
  }
  return {};
}

Result<PartSet> PartSet::open(const SetFile& set, std::uint64_t bytes_min) {
  PERDURE_TRY_VOID(check_bytes(set, bytes_min));
  PartSet opened(set);
  for (std::size_t part = 0; part < set.parts.size(); ++part) {
    PERDURE_TRY(file, pmem::open_file(set.parts[part].path, pmem::OpenMode::ReadWrite));
    PERDURE_TRY_VOID(lock_part(file));
    PERDURE_TRY(bytes, pmem::size_of(file));
    if (bytes != set.parts[part].bytes) {
      return opened.in_part(
          part, {ErrorCode::Corrupt,
                 fmt::format("has {} bytes, and line {} of the set says {}: it was truncated, or "
                             "the set was changed since",
                             bytes, set.parts[part].line, set.parts[part].bytes)});
    }
    opened.files_.push_back(std::move(file));
  }
  PERDURE_TRY_VOID(opened.read_headers());
  return opened;
}

Result<void> PartSet::read_headers() {
  std::vector<PartHeader> headers;
  for (std::size_t part = 0; part < set_.headers(); ++part) {
    std::array<std::byte, kHeaderBytes> bytes{};
    PERDURE_TRY_VOID(read_at(files_[part], bytes));
    const auto header = decode_header(bytes);
    if (!header) return in_part(part, header.error());
    headers.push_back(*header);
    uuids_.push_back(header->pool.uuid);
  }
  if (headers.empty()) return {};
  attributes_ = headers[0].pool;
  created_ = headers[0].created;
  PERDURE_TRY_VOID(check_attributes(set_, attributes_));
  return check_links(headers);
}

/// Every part says which ones stand before and behind it, and all say the same of the pool.
Result<void> PartSet::check_links(const std::vector<PartHeader>& headers) const {
  for (std::size_t part = 0; part < headers.size(); ++part) {
    const PartHeader& next = headers[(part + 1) % headers.size()];
    const std::size_t following = (part + 1) % headers.size();
    PoolAttributes same = next.pool;
    same.uuid = headers[part].pool.uuid;
    if (same != headers[part].pool) {
      return in_part(following,
                     {ErrorCode::Corrupt, "its header is that of another pool, or replica"});
    }
    const bool linked =
        headers[part].next_part == next.pool.uuid && next.previous_part == headers[part].pool.uuid;
    if (linked) continue;
    return in_part(following, {ErrorCode::Corrupt,
                               "its header does not follow that of the part before: a part of "
                               "another set, or in another order"});
  }
  return {};
}

Result<void> PartSet::set_attributes(const PoolAttributes& attributes) {
  if (set_.no_headers) {
    return Error{ErrorCode::InvalidArgument,
                 set_.path + ": its parts have no headers (OPTION NOHDRS), so no attributes"};
  }
  PERDURE_TRY_VOID(check_attributes(set_, attributes));
  attributes_ = attributes;
  uuids_[0] = attributes.uuid;
  return write_headers();
}

Result<void> PartSet::note_client(std::uint64_t client, bool again) {
  const pmem::File& first = files_[0];
  struct statx now {};
  constexpr unsigned kWanted = STATX_INO | STATX_BTIME;
  if (::statx(first.descriptor(), "", AT_EMPTY_PATH, kWanted, &now) != 0) {
    return errno_error(first.path() + ": statx", errno);
  }
  // A copy of the file may have the attributes of the original, and its inode where that was
  // removed before, but not when it was made.
  const bool told = (now.stx_mask & STATX_BTIME) != 0;
  const std::array<std::uint64_t, 4> noted{
      client, now.stx_ino, told ? static_cast<std::uint64_t>(now.stx_btime.tv_sec) : 0,
      told ? now.stx_btime.tv_nsec : 0};
  if (again) {
    std::array<std::uint64_t, 4> last{};
    const ssize_t got = ::fgetxattr(first.descriptor(), kClientAttribute, &last, sizeof last);
    if (got < 0 && errno == ENOTSUP) return {};
    if (got == sizeof last && last == noted) return {};
    if (got == sizeof client && last[0] == client) return {};  // as earlier versions noted it
    if (got < 0 && errno != ENODATA && errno != ERANGE) {
      return errno_error(first.path() + ": fgetxattr", errno);
    }
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("{}: another client has had it since, or it is another file than "
                             "before",
                             first.path())};
  }
  if (::fsetxattr(first.descriptor(), kClientAttribute, &noted, sizeof noted, 0) != 0) {
    if (errno == ENOTSUP) return {};
    return errno_error(first.path() + ": fsetxattr", errno);
  }
  if (::fsync(first.descriptor()) == 0) return {};
  return errno_error(first.path() + ": fsync", errno);
}

Result<void> PartSet::remove_files() {
  for (const SetPart& part : set_.parts) {
    if (::unlink(part.path.c_str()) == 0 || errno == ENOENT) continue;
    return errno_error(part.path, errno);
  }
  // Also of a part that was not there: an earlier call may have failed between the two.
  std::set<std::filesystem::path> synced;
  for (const SetPart& part : set_.parts) {
    if (!synced.insert(std::filesystem::path(part.path).parent_path()).second) continue;
    auto durable = pmem::sync_directory_of(part.path);
    if (!durable.ok() && durable.code() != ErrorCode::NotFound) return durable;
  }
  return {};
}

Result<void> PartSet::remove(const SetFile& set, bool force, bool set_too) {
  PartSet removed(set);
  for (const SetPart& part : set.parts) {
    auto file = pmem::open_file(part.path, pmem::OpenMode::ReadWrite);
    if (!file && force && file.code() == ErrorCode::NotFound) continue;
    if (!file) return file.error();
    PERDURE_TRY_VOID(lock_part(*file));
    removed.files_.push_back(std::move(file).value());
  }
  PERDURE_TRY_VOID(removed.remove_files());
  if (!set_too) return {};
  if (::unlink(set.path.c_str()) != 0) return errno_error(set.path, errno);
  return pmem::sync_directory_of(set.path);
}

}  // namespace perdure::rpmem
