// MirroredFile: a file that another program maps and writes, and its mirror. The mirror is as large
// as its pools, and the file as large as it is at the time: what is behind its end are zeros here.
#pragma once

#include <perdure/mirror.h>

#include "interpose/channel.h"
#include "pmem/mapping_guard.h"

#include <sys/stat.h>

#include <atomic>
#include <ctime>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <span>
#include <string>
#include <vector>

namespace perdure::app {

/// Threads: any.
class MirroredFile {
 public:
  /// Opens the mirror, with the file if it is there and with zeros if it is not. Of `options` the
  /// pool, peers and the rest as they are; start is Local.
  /// Errors: those of Mirror::open; of the file: PermissionDenied, SystemError; NoSpace: it is
  /// larger than the pools.
  static Result<std::unique_ptr<MirroredFile>> open(std::string path, MirrorOptions options);
  ~MirroredFile();
  MirroredFile(const MirroredFile&) = delete;
  MirroredFile& operator=(const MirroredFile&) = delete;

  /// The program maps what is now at the path. It is compared with the replicas as a whole, and
  /// meanwhile nothing is made durable; but not if nobody can have written to it since it was, by
  /// its time of change. Waits for a quorum as long as it takes, or until `give_up`.
  /// Errors: as for open; Fenced. Where the file can not be had, or what is kept beside it can not
  /// be written, the mirror goes on as it was.
  Result<void> follow() { return follow(true); }
  /// Returns when all ranges are durable on the replicas that are in sync; waits for a quorum as
  /// long as it takes, or until `give_up`. Errors: Fenced, and those of follow(); SystemError: the
  /// file was made shorter, from then on.
  Result<void> make_durable(std::span<const MirrorRange> wanted);
  void give_up() { giving_up_ = true; }
  /// Tells the program there, from now on, which file this is. Null: no more. Requires: nobody is
  /// in one of the others.
  void show_in(interpose::ChannelFile* shown);
  /// Waits for replicas that are just being compared or copied to, as long as a peer may be silent.
  void let_replicas_catch_up();
  /// Drains. Errors: those of Mirror::close; SystemError: the file was made shorter, or another one
  /// has its name; why its mirror could not be opened again.
  Result<void> close();

  const std::string& path() const { return path_; }
  const std::string& pool() const { return options_.pool; }
  MirrorStatus status();
  bool was_mapped() const { return was_mapped_; }

 private:
  MirroredFile(std::string path, MirrorOptions options)
      : path_(std::move(path)), options_(std::move(options)) {}
  Result<void> reserve();
  Result<std::optional<struct ::stat>> look() const;
  Result<std::optional<struct ::stat>> look_here() const;
  Result<void> check_room(const struct ::stat& status) const;
  bool is_mapped_here(const struct ::stat& found) const;
  bool was_cut() const;
  bool is_as_compared(const struct ::stat& found, bool mapped_anew) const;
  Result<void> check_whole() const;
  Result<void> check_mirrored() const;
  Result<int> open_found(const struct ::stat& found) const;
  static bool is_other(int file, const struct ::stat& found);
  Error was_replaced() const;
  Result<void> overlay(const struct ::stat& found, int file);
  Result<void> check_state(const struct ::stat& found) const;
  Result<void> open_mirror();
  void warn_of_minority();
  Result<void> open_mirror_again();
  Result<void> follow(bool mapped_anew);
  std::vector<MirrorRange> inside(std::span<const MirrorRange> ranges) const;
  Result<bool> has_changed(std::span<const MirrorRange> ranges) const;
  Result<void> follow_changes(std::span<const MirrorRange> ranges);
  Error not_open() const;
  void say_waiting(const Error& why) const;
  void say_back() const;
  Result<void> wait(Mirror& mirror, const MirrorTicket& ticket);

  const std::string path_;
  MirrorOptions options_;
  std::mutex turn_;                  // goes before mutex_: drains do not keep an exchange waiting
  mutable std::shared_mutex mutex_;  // held alone while the file and its mirror are exchanged
  std::byte* memory_ = nullptr;
  std::unique_ptr<pmem::MappingGuard> guard_;
  std::uint64_t bytes_ = 0;              // of the mirror
  std::atomic<std::uint64_t> seen_ = 0;  // of the file, that is mapped here
  int file_ = -1;                        // that one
  interpose::ChannelFile* shown_ = nullptr;
  std::atomic<std::uint64_t> cuts_compared_ = 0;  // how often it had been cut before that
  std::uint64_t device_ = 0;
  std::uint64_t inode_ = 0;
  struct ::timespec changed_at_ = {};  // its time of change, before it was compared
  bool times_tell_ = false;            // and any write since has another one
  std::optional<Mirror> mirror_;
  std::optional<Error> why_not_open_;
  std::atomic<bool> giving_up_ = false;
  std::atomic<bool> was_mapped_ = false;
  std::atomic<bool> waiting_said_ = false;
};

}  // namespace perdure::app
