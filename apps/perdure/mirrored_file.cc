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
#include "testing/process.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <vector>

namespace perdure::app {
namespace {

constexpr std::uint64_t kPage = 4096;
constexpr std::chrono::milliseconds kSlice{500};  // whether waiting has been given up
constexpr std::chrono::milliseconds kCatchUpLook{10};
constexpr int kChangesMax = 1000;               // that one drain follows
constexpr std::chrono::seconds kTimesGrain{3};  // of a file: some keep whole seconds only

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

/// Of opening a mirror: replicas were not heard.
bool may_be_heard_later(ErrorCode code) {
  return code == ErrorCode::QuorumLost || code == ErrorCode::TimedOut ||
         code == ErrorCode::Disconnected;
}

/// From then on the first store to any page changes the file's time of change: a page that is not
/// written back yet takes more of them without. False: not so, as where stores of mapped memory
/// leave no time (tmpfs) or other machines write (network file systems).
bool clean_pages(int file) {
  struct ::statfs system = {};
  if (::fstatfs(file, &system) != 0) return false;
  const auto type = static_cast<unsigned long>(system.f_type);
  if (type != EXT4_SUPER_MAGIC && type != XFS_SUPER_MAGIC && type != BTRFS_SUPER_MAGIC) {
    return false;
  }
  return ::fsync(file) == 0;
}

/// Not so short ago that a second write could get the same time.
bool is_long_ago(const struct ::stat& status) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return now - std::chrono::seconds(status.st_ctim.tv_sec) > kTimesGrain;
}

}  // namespace

Result<std::unique_ptr<MirroredFile>> MirroredFile::open(std::string path, MirrorOptions options) {
  std::unique_ptr<MirroredFile> file(new MirroredFile(std::move(path), std::move(options)));
  PERDURE_TRY_VOID(file->reserve());
  PERDURE_TRY(found, file->look());
  if (found) {
    PERDURE_TRY(opened, file->open_found(*found));
    PERDURE_TRY_VOID(file->overlay(*found, opened));
  }
  PERDURE_TRY_VOID(file->open_mirror());
  file->warn_of_minority();
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

/// The file at the path, if there is one.
Result<std::optional<struct ::stat>> MirroredFile::look() const {
  struct ::stat status = {};
  if (::stat(path_.c_str(), &status) != 0) {
    if (errno == ENOENT) return std::optional<struct ::stat>{};
    return errno_error(path_, errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return Error{ErrorCode::Unsupported,
                 fmt::format("'{}' is no regular file: only such can be mirrored", path_)};
  }
  PERDURE_TRY_VOID(check_room(status));
  return std::optional(status);
}

/// The file that is mapped here, if there is one, whatever its name is by now.
Result<std::optional<struct ::stat>> MirroredFile::look_here() const {
  if (file_ < 0) return std::optional<struct ::stat>{};
  struct ::stat status = {};
  if (::fstat(file_, &status) != 0) return errno_error(path_, errno);
  PERDURE_TRY_VOID(check_room(status));
  return std::optional(status);
}

Result<void> MirroredFile::check_room(const struct ::stat& status) const {
  const auto size = static_cast<std::uint64_t>(status.st_size);
  if (size <= bytes_) return {};
  return Error{ErrorCode::NoSpace,
               fmt::format("'{}' has {} B, and pool '{}' has room for {}: make larger pools and a "
                           "new mirror in them",
                           path_, size, options_.pool, bytes_)};
}

bool MirroredFile::is_mapped_here(const struct ::stat& found) const {
  return found.st_ino == inode_ && found.st_dev == device_;
}

/// Whether the program has made zeros of parts of it, by no store that a drain tells of.
bool MirroredFile::was_cut() const {
  return shown_ != nullptr && shown_->cuts.load() != cuts_compared_;
}

/// Whether this is the file as it was compared. A drain tells of all that has changed since; what
/// is mapped anew may have been written in other ways.
bool MirroredFile::is_as_compared(const struct ::stat& found, bool mapped_anew) const {
  const bool same = is_mapped_here(found) && static_cast<std::uint64_t>(found.st_size) == seen_;
  if (!same || was_cut()) return false;
  if (!mapped_anew) return true;
  return times_tell_ && found.st_ctim.tv_sec == changed_at_.tv_sec &&
         found.st_ctim.tv_nsec == changed_at_.tv_nsec;
}

/// The one at the path, unless it is the one that is open here. To be closed by the caller.
Result<int> MirroredFile::open_found(const struct ::stat& found) const {
  const int file = file_ >= 0 && is_mapped_here(found) ? ::fcntl(file_, F_DUPFD_CLOEXEC, 0)
                                                       : ::open(path_.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return errno_error(path_, errno);
  if (is_other(file, found)) {
    ::close(file);
    return was_replaced();
  }
  return file;
}

bool MirroredFile::is_other(int file, const struct ::stat& found) {
  struct ::stat status = {};
  return ::fstat(file, &status) != 0 || status.st_ino != found.st_ino ||
         status.st_dev != found.st_dev || status.st_size < found.st_size;
}

Error MirroredFile::was_replaced() const {
  return {ErrorCode::SystemError,
          fmt::format("'{}' was replaced or made shorter while it was being mapped: map it again",
                      path_)};
}

/// Maps the file over the zeros. Keeps `file`, or closes it.
Result<void> MirroredFile::overlay(const struct ::stat& found, int file) {
  const std::uint64_t cuts = shown_ != nullptr ? shown_->cuts.load() : 0;
  const bool cleaned = clean_pages(file);
  struct ::stat status = {};
  if (is_other(file, found) || ::fstat(file, &status) != 0) {
    ::close(file);
    return was_replaced();
  }
  const bool times_tell = cleaned && is_long_ago(status);
  const auto size = static_cast<std::uint64_t>(found.st_size);
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
  changed_at_ = status.st_ctim;
  times_tell_ = times_tell;
  seen_ = size;
  cuts_compared_ = cuts;
  if (shown_ != nullptr) interpose::show(*shown_, device_, inode_);
  return {};
}

void MirroredFile::show_in(interpose::ChannelFile* shown) {
  shown_ = shown;
  if (shown_ != nullptr) interpose::show(*shown_, device_, inode_);
}

/// Whether the mirror could be opened with it, by what is kept beside the file.
Result<void> MirroredFile::check_state(const struct ::stat& found) const {
  const mirror::LocalStateFile state(path_, static_cast<std::uint64_t>(found.st_size));
  PERDURE_TRY_VOID(state.check_whole());
  return state.check_writable();
}

Result<void> MirroredFile::open_mirror() {
  auto memory = MirrorMemory::State::guarded(mirror::LocalStateFile(path_, seen_),
                                             {memory_, bytes_}, *guard_);
  PERDURE_TRY(mirror, Mirror::open(std::move(memory), options_));
  mirror_.emplace(std::move(mirror));
  options_.take_over = false;  // once: who has taken over since is not fenced in turn
  return {};
}

/// Each comparison opens the mirror anew, which may take more replicas than the quorum.
void MirroredFile::warn_of_minority() {
  const MirrorStatus now = status();
  const std::size_t needed = mirror::needed(now.replicas.size(), now.quorum);
  if (needed <= now.quorum || options_.without_missing) return;
  print_warning(fmt::format(
      "'{}' has a quorum of {} of {} replicas: it goes on with {}, but where it grows or is mapped "
      "again the program waits until {} are there; --without-missing opens it with fewer, where "
      "those that are away have nothing newer",
      path_, now.quorum, now.replicas.size(), now.quorum, needed));
}

/// The same once the mirror was open: as long as it takes, or until waiting is given up. A peer may
/// not have noticed yet that the session before this one has ended.
Result<void> MirroredFile::open_mirror_again() {
  std::optional<Deadline> busy;
  for (;;) {
    auto opened = open_mirror();
    if (opened.ok()) {
      if (waiting_said_.exchange(false)) say_back();
      return opened;
    }
    if (opened.code() != ErrorCode::Busy) busy.reset();
    if (opened.code() == ErrorCode::Busy && !busy) {
      busy = Deadline::after(2 * options_.peer_timeout);
    }
    const bool may_come = busy ? !busy->passed() : may_be_heard_later(opened.code());
    if (!may_come || giving_up_) return opened;
    if (!waiting_said_.exchange(true)) say_waiting(opened.error());
    test::pause_for(kSlice);
  }
}

Result<void> MirroredFile::follow(bool mapped_anew) {
  const std::scoped_lock turn(turn_);
  const std::unique_lock alone(mutex_);
  was_mapped_ = true;
  if (guard_->failed()) return check_whole();
  std::optional<struct ::stat> found;
  if (mapped_anew) {
    PERDURE_TRY(named, look());
    found = named;
  }
  if (!found) {
    PERDURE_TRY(here, look_here());
    found = here;
  }
  if (mirror_ && (!found || is_as_compared(*found, mapped_anew))) return {};
  // What may be refused is asked for while the mirror is open: it goes on then.
  int file = -1;
  if (found) {
    if (mirror_) PERDURE_TRY_VOID(check_state(*found));
    PERDURE_TRY(opened, open_found(*found));
    file = opened;
  }
  // Opening compares all pages, so it does not matter how the new ones came to be what they are.
  if (mirror_) {
    auto closed = mirror_->close();
    if (!closed.ok() && closed.code() == ErrorCode::Fenced) {
      if (file >= 0) ::close(file);
      return closed;
    }
    mirror_.reset();
  }
  auto opened = found ? overlay(*found, file) : Result<void>();
  if (opened.ok()) opened = open_mirror_again();
  if (!opened.ok()) why_not_open_ = opened.error();
  return opened;
}

Error MirroredFile::not_open() const {
  const std::string why = why_not_open_ ? ": " + why_not_open_->message : std::string();
  return {why_not_open_ ? why_not_open_->code : ErrorCode::Disconnected,
          fmt::format("the mirror of '{}' is not open, and what the program made of the file since "
                      "is on no replica{}",
                      path_, why)};
}

/// Whether bytes of the file lie in these ranges that it did not have when it was mapped here, or
/// parts of it were cut since.
Result<bool> MirroredFile::has_changed(std::span<const MirrorRange> ranges) const {
  std::uint64_t end = 0;
  for (const MirrorRange& range : ranges) end = std::max(end, range.at + range.length);
  if (end <= seen_ && !was_cut()) return false;
  const std::shared_lock shared(mutex_);
  PERDURE_TRY_VOID(check_whole());
  if (was_cut()) return true;
  struct ::stat status = {};
  if (file_ < 0) return false;
  if (::fstat(file_, &status) != 0) return errno_error(path_, errno);
  return std::min(end, static_cast<std::uint64_t>(status.st_size)) > seen_;
}

Result<void> MirroredFile::follow_changes(std::span<const MirrorRange> ranges) {
  for (int changes = 0; changes < kChangesMax; ++changes) {
    PERDURE_TRY(changed, has_changed(ranges));
    if (!changed) return {};
    PERDURE_TRY_VOID(follow(false));
  }
  return Error{
      ErrorCode::SystemError,
      fmt::format("'{}' is cut or grows faster than it can be compared with its replicas", path_)};
}

/// Without what lies behind the mirror's end: a page goes on behind a mirror that is not as long as
/// whole pages, and the file ends before.
std::vector<MirrorRange> MirroredFile::inside(std::span<const MirrorRange> ranges) const {
  std::vector<MirrorRange> parts;
  parts.reserve(ranges.size());
  for (const MirrorRange& range : ranges) {
    if (range.at >= bytes_ || range.length == 0) continue;
    parts.push_back({range.at, std::min(range.length, bytes_ - range.at)});
  }
  return parts;
}

Result<void> MirroredFile::make_durable(std::span<const MirrorRange> wanted) {
  PERDURE_TRY_VOID(follow_changes(wanted));  // which refuses a file that is longer than the mirror
  const std::vector<MirrorRange> ranges = inside(wanted);
  if (ranges.empty()) return {};
  {
    const std::scoped_lock turn(turn_);  // of who waits to have it alone
  }
  const std::shared_lock shared(mutex_);
  PERDURE_TRY_VOID(check_whole());
  if (!mirror_) return not_open();
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
      if (waiting_said_.exchange(false)) say_back();
      return {};
    }
    const bool may_come =
        outcome.code() == ErrorCode::TimedOut || outcome.code() == ErrorCode::QuorumLost;
    if (!may_come || giving_up_) return outcome;
    waited += kSlice;
    if (waited >= options_.peer_timeout && !waiting_said_.exchange(true)) {
      say_waiting(outcome.error());
    }
  }
}

void MirroredFile::say_waiting(const Error& why) const {
  print_warning(fmt::format("'{}' waits for its replicas: {}", path_, why.message));
}

void MirroredFile::say_back() const { print_warning("the replicas of '" + path_ + "' are back"); }

/// Errors: SystemError: the file at the path is not the one that was mirrored, or only in part.
Result<void> MirroredFile::check_mirrored() const {
  PERDURE_TRY(found, look());
  if (!found) return {};
  if (is_mapped_here(*found) && static_cast<std::uint64_t>(found->st_size) != seen_) {
    return Error{ErrorCode::SystemError,
                 fmt::format("'{}' has {} B, and had {} when it was mirrored last: it was neither "
                             "mapped again nor synced there since, and its replicas have zeros "
                             "there; a run that begins with it mirrors it",
                             path_, found->st_size, seen_.load())};
  }
  if (is_mapped_here(*found) && was_cut()) {
    return Error{
        ErrorCode::SystemError,
        fmt::format("'{}' was cut (truncate, fallocate), and nothing of it was synced since: "
                    "its replicas have what was there before; a run that begins with it "
                    "mirrors it",
                    path_)};
  }
  if (is_mapped_here(*found)) return {};
  return Error{ErrorCode::SystemError,
               fmt::format("'{}' is not the file that was mirrored: another one was given its name "
                           "(rename), or was made and not mapped; its replicas have the one of "
                           "before; a run that begins with this one mirrors it",
                           path_)};
}

void MirroredFile::let_replicas_catch_up() {
  const Deadline deadline = Deadline::after(options_.peer_timeout);
  const auto is_catching_up = [](const MirrorReplicaStatus& replica) {
    return replica.state != MirrorReplicaState::Lost && replica.state != MirrorReplicaState::InSync;
  };
  while (!deadline.passed()) {
    const MirrorStatus now = status();
    if (std::none_of(now.replicas.begin(), now.replicas.end(), is_catching_up)) return;
    test::pause_for(kCatchUpLook);
  }
}

Result<void> MirroredFile::close() {
  const std::unique_lock alone(mutex_);
  if (!mirror_) return not_open();
  auto closed = mirror_->close();
  PERDURE_TRY_VOID(check_whole());
  PERDURE_TRY_VOID(check_mirrored());
  return closed;
}

MirrorStatus MirroredFile::status() {
  const std::shared_lock shared(mutex_);
  return mirror_ ? mirror_->status() : MirrorStatus{};
}

}  // namespace perdure::app
