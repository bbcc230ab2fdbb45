// A file of another program and its mirror: see mirrored_file.h.
#include "mirrored_file.h"

#include "client/dial.h"
#include "core/byte_text.h"
#include "core/errno_error.h"
#include "core/try.h"
#include "mirror/mirror_format.h"
#include "mirror/mirror_memory.h"
#include "mirror/mirror_survey.h"
#include "output.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>

namespace perdure::app {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::chrono::milliseconds kSlice{500};  // whether waiting has been given up

/// The size of the mirror, where a replica tells it; else the smallest of the pools, without what
/// the mirror keeps before its bytes.
Result<std::uint64_t> size_of_mirror(const MirrorOptions& options) {
  client::Dialer dialer;
  PERDURE_TRY_VOID(dialer.use_rnic(options.rnic));
  PERDURE_TRY(peers, dialer.dial_replicas(options.peers, options.transport));
  const auto survey = mirror::survey(peers, options.pool, options.peer_timeout, Clock::monotonic());
  if (survey.header) return survey.header->bytes;
  std::optional<std::uint64_t> room;
  std::optional<Error> why;
  for (const mirror::SurveyedReplica& replica : survey.replicas) {
    if (replica.error && !why) {
      why = Error{replica.error->code, fmt::format("pool '{}' on {}: {}", options.pool,
                                                   replica.peer, replica.error->message)};
    }
    if (replica.bytes == nullptr || replica.bytes->size() <= mirror::kDataAt) continue;
    room = std::min(room.value_or(UINT64_MAX), replica.bytes->size() - mirror::kDataAt);
  }
  if (room) return *room / kPage * kPage;
  return why.value_or(Error{ErrorCode::InvalidArgument,
                            fmt::format("pool '{}' has no room for a mirror", options.pool)});
}

}  // namespace

Result<std::unique_ptr<MirroredFile>> MirroredFile::open(std::string path, MirrorOptions options) {
  std::unique_ptr<MirroredFile> file(new MirroredFile(std::move(path), std::move(options)));
  PERDURE_TRY_VOID(file->reserve());
  struct ::stat status = {};
  PERDURE_TRY(there, file->changed(status));
  if (there) PERDURE_TRY_VOID(file->overlay(status));
  PERDURE_TRY_VOID(file->open_mirror());
  return file;
}

MirroredFile::~MirroredFile() {
  mirror_.reset();
  guard_.reset();
  if (memory_ != nullptr) ::munmap(memory_, bytes_);
  if (file_ >= 0) ::close(file_);
}

Result<void> MirroredFile::reserve() {
  PERDURE_TRY(size, size_of_mirror(options_));
  bytes_ = size;
  void* const memory = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return errno_error(fmt::format("addresses for {} of '{}'", format_bytes(bytes_), path_), errno);
  }
  memory_ = static_cast<std::byte*>(memory);
  guard_ = std::make_unique<pmem::MappingGuard>(std::span(memory_, bytes_));
  return {};
}

/// A page behind the end of a file that was made shorter reads as zeros here, once, and is the
/// file's no more: nothing that is read afterwards is to be mirrored.
Result<void> MirroredFile::check_whole() const {
  struct ::stat status = {};
  const bool shorter = file_ >= 0 && ::fstat(file_, &status) == 0 &&
                       static_cast<std::uint64_t>(status.st_size) < seen_;
  if (!shorter && !guard_->failed()) return {};
  return Error{ErrorCode::SystemError,
               fmt::format("'{}' was made shorter while it was mirrored, or its medium failed: "
                           "nothing more of it is mirrored, and its replicas have what was "
                           "persisted before; `perdure mirror restore` brings that back",
                           path_)};
}

/// Whether the file at the path has something that is not mapped here. No file has nothing.
Result<bool> MirroredFile::changed(struct ::stat& status) const {
  if (::stat(path_.c_str(), &status) != 0) {
    if (errno == ENOENT) return false;
    return errno_error(path_, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("'{}' is no regular file: only such can be mirrored", path_)};
  }
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size > bytes_) {
    return Error{ErrorCode::NoSpace,
                 fmt::format("'{}' has {} B, and pool '{}' has room for {}: make larger pools and "
                             "a new mirror in them",
                             path_, size, options_.pool, bytes_)};
  }
  return status.st_ino != inode_ || status.st_dev != device_ || size != seen_;
}

/// Maps the file over the zeros.
Result<void> MirroredFile::overlay(const struct ::stat& status) {
  const int file = ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return errno_error(path_, errno);
  const auto size = static_cast<std::uint64_t>(status.st_size);
  const std::uint64_t pages = (size + kPage - 1) / kPage * kPage;
  const void* mapped = ::mmap(memory_, bytes_, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  if (mapped != MAP_FAILED && pages > 0) {
    mapped = ::mmap(memory_, pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
  }
  const int error = errno;
  if (mapped == MAP_FAILED) {
    ::close(file);
    return errno_error(path_, error);
  }
  if (file_ >= 0) ::close(file_);
  file_ = file;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  seen_ = size;
  return {};
}

Result<void> MirroredFile::open_mirror() {
  auto memory =
      MirrorMemory::State::guarded(path_, {memory_, bytes_}, PersistenceDomain::None, *guard_);
  PERDURE_TRY(mirror, Mirror::open(std::move(memory), options_));
  mirror_.emplace(std::move(mirror));
  return {};
}

Result<void> MirroredFile::follow() {
  const std::unique_lock alone(mutex_);
  was_mapped_ = true;
  if (guard_->failed()) return check_whole();
  struct ::stat status = {};
  PERDURE_TRY(has_changed, changed(status));
  if (!has_changed) return {};
  // Opening compares all pages, so it does not matter how the new ones came to be what they are.
  if (mirror_) {
    auto closed = mirror_->close();
    if (!closed.ok() && closed.code() == ErrorCode::Fenced) return closed;
    mirror_.reset();
  }
  PERDURE_TRY_VOID(overlay(status));
  return open_mirror();
}

Result<void> MirroredFile::make_durable(std::span<const MirrorRange> ranges) {
  const auto behind = [this](const MirrorRange& range) { return range.at + range.length > seen_; };
  if (std::any_of(ranges.begin(), ranges.end(), behind)) PERDURE_TRY_VOID(follow());
  const std::shared_lock shared(mutex_);
  PERDURE_TRY_VOID(check_whole());
  if (!mirror_) {
    return Error{ErrorCode::Disconnected, fmt::format("the mirror of '{}' is not open", path_)};
  }
  const MirrorEpoch epoch(ranges);
  PERDURE_TRY(ticket, mirror_->flush_ordered({&epoch, 1}));
  PERDURE_TRY_VOID(wait(*mirror_, ticket));
  return check_whole();
}

Result<void> MirroredFile::wait(Mirror& mirror, const MirrorTicket& ticket) {
  std::chrono::milliseconds waited{0};
  for (;;) {
    auto outcome = mirror.wait(ticket, kSlice);
    if (outcome.ok()) {
      if (waiting_said_.exchange(false)) print_warning("the replicas of '" + path_ + "' are back");
      return {};
    }
    const bool may_come =
        outcome.code() == ErrorCode::TimedOut || outcome.code() == ErrorCode::QuorumLost;
    if (!may_come || giving_up_) return outcome;
    waited += kSlice;
    if (waited >= options_.peer_timeout && !waiting_said_.exchange(true)) {
      print_warning(fmt::format("'{}' waits for its replicas: {}", path_, outcome.error().message));
    }
  }
}

Result<void> MirroredFile::close() {
  const std::unique_lock alone(mutex_);
  if (!mirror_) return {};
  auto closed = mirror_->close();
  const auto whole = check_whole();
  return whole.ok() ? closed : whole;
}

MirrorStatus MirroredFile::status() {
  const std::shared_lock shared(mutex_);
  return mirror_ ? mirror_->status() : MirrorStatus{};
}

}  // namespace perdure::app
