// Forwarding to the command that mirrors: see forwarder.h.
#include "interpose/forwarder.h"

#include "interpose/channel.h"
#include "interpose/raw.h"

#include <fcntl.h>
#include <sched.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace perdure::interpose {
namespace {

constexpr int kPolls = 2000;             // before a thread sleeps
constexpr long kLookMilliseconds = 100;  // whether the command is still there

/// What a thread has flushed since its last drain.
struct Pending {
  std::uint32_t generation = 0;
  std::uint32_t count = 0;
  ChannelRange ranges[kRangesOfLane];
};

class Forwarder final : public Backend {
 public:
  bool open(const char* path);

  int attach(int descriptor, const struct ::stat& status) override;
  bool map(const FileRange& range, int descriptor) override;
  void unmap(const FileRange& /*range*/) override {}
  void flush(const FileRange& range) override;
  void drain(Drain drain) override;
  void cut(std::uint64_t device, std::uint64_t inode) override;
  void forked() override {
    ++generation_;
    process_.store(0);
  }

 private:
  int ask_to_map(std::uint32_t number, std::uint64_t end);
  bool is_mirrored(std::uint32_t number, const FileRange& range) const {
    return is_shown(channel_->files[number], range.device, range.inode);
  }
  Pending& pending();
  void add(std::uint32_t file, const FileRange& range);
  void send(Pending& pending);
  ChannelLane& take_lane();
  int ask(ChannelLane& lane);

  ProcessName self();
  bool has_ended(ProcessName process);

  ChannelHeader* channel_ = nullptr;
  std::atomic<std::uint32_t> process_ = 0;  // of which the next one is known; 0: none
  std::atomic<std::uint64_t> name_space_ = 0;
  std::uint32_t generation_ = 1;  // counts forks: what a parent flushed, the parent drains
};

/// A child may be in another PID namespace.
ProcessName Forwarder::self() {
  const auto process = static_cast<std::uint32_t>(::getpid());
  if (process_.load(std::memory_order_acquire) != process) {
    name_space_.store(pid_namespace());
    process_.store(process, std::memory_order_release);
  }
  return name_of(process, name_space_.load());
}

/// Numbers of another PID namespace mean other processes here, or none.
bool Forwarder::has_ended(ProcessName process) {
  if (process == kGivenUp) return true;
  const std::uint64_t name_space = self() >> 32;
  if (name_space == 0 || process >> 32 != name_space) return false;
  return ::kill(static_cast<pid_t>(process & UINT32_MAX), 0) != 0 && errno == ESRCH;
}

bool Forwarder::open(const char* path) {
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  char* const mapping = file < 0 ? static_cast<char*>(MAP_FAILED)
                                 : raw_mmap(nullptr, sizeof(ChannelHeader), PROT_READ | PROT_WRITE,
                                            MAP_SHARED, file, 0);
  if (file >= 0) ::close(file);
  if (failed(mapping)) {
    say("there is no mirroring command at ", path);
    return false;
  }
  channel_ = reinterpret_cast<ChannelHeader*>(mapping);
  if (channel_->magic != kChannelMagic || channel_->version != kChannelVersion) {
    say("this is no channel of this version: ", path);
    return false;
  }
  // Threads of the program that called exec() had these.
  for (ChannelLane& lane : channel_->lanes) {
    ProcessName holder = self();
    lane.process.compare_exchange_strong(holder, kGivenUp);
  }
  return true;
}

int Forwarder::attach(int /*descriptor*/, const struct ::stat& status) {
  for (std::uint32_t number = 0; number < channel_->file_count; ++number) {
    struct ::stat known;
    if (::stat(channel_->paths[number], &known) != 0) continue;
    if (known.st_dev == status.st_dev && known.st_ino == status.st_ino) {
      return static_cast<int>(number);
    }
  }
  return S_ISREG(status.st_mode) ? kNotYet : kNotWanted;
}

/// 0 or an errno.
int Forwarder::ask_to_map(std::uint32_t number, std::uint64_t end) {
  ChannelLane& lane = take_lane();
  lane.ask = Ask::Map;
  lane.count = 1;
  lane.ranges[0] = {number, 0, end};
  const int error = ask(lane);
  lane.process.store(0, std::memory_order_release);
  channel_->maps.fetch_add(1);
  return error;
}

/// What is mapped by a name has been found by it; what grows may have another name meanwhile.
bool Forwarder::map(const FileRange& range, int descriptor) {
  for (std::uint32_t number = 0; number < channel_->file_count; ++number) {
    const bool is_it = descriptor < 0 ? is_mirrored(number, range)
                                      : static_cast<std::uint32_t>(range.file) == number;
    if (!is_it) continue;
    if (const int error = ask_to_map(number, range.offset + range.length); error != 0) {
      errno = error;
      return false;
    }
    if (descriptor < 0 || is_mirrored(number, range)) continue;
    say("a file was renamed or replaced while it was being mapped; map it again: ",
        channel_->paths[number]);
    errno = EAGAIN;
    return false;
  }
  return true;
}

Pending& Forwarder::pending() {
  static thread_local Pending mine;
  if (mine.generation != generation_) {
    mine.generation = generation_;
    mine.count = 0;
  }
  return mine;
}

void Forwarder::flush(const FileRange& range) {
  // The program's stores come before the look at what the command mirrors: see ChannelFile.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  bool counted = false;
  for (std::uint32_t number = 0; number < channel_->file_count; ++number) {
    if (!is_mirrored(number, range)) continue;
    if (!counted) channel_->flushes.fetch_add(1, std::memory_order_relaxed);
    counted = true;
    add(number, range);
  }
}

void Forwarder::add(std::uint32_t file, const FileRange& range) {
  Pending& mine = pending();
  if (mine.count > 0) {
    ChannelRange& last = mine.ranges[mine.count - 1];
    if (last.file == file && last.offset + last.length == range.offset) {
      last.length += range.length;
      return;
    }
  }
  if (mine.count == kRangesOfLane) send(mine);  // durable earlier than it has to be
  mine.ranges[mine.count++] = {file, range.offset, range.length};
}

void Forwarder::drain(Drain /*drain*/) {
  Pending& mine = pending();
  if (mine.count == 0) return;
  channel_->drains.fetch_add(1, std::memory_order_relaxed);
  send(mine);
}

/// The next drain compares the file.
void Forwarder::cut(std::uint64_t device, std::uint64_t inode) {
  for (std::uint32_t number = 0; number < channel_->file_count; ++number) {
    ChannelFile& file = channel_->files[number];
    if (is_shown(file, device, inode)) file.cuts.fetch_add(1);
  }
}

void Forwarder::send(Pending& pending) {
  ChannelLane& lane = take_lane();
  lane.ask = Ask::Drain;
  lane.count = pending.count;
  for (std::uint32_t i = 0; i < pending.count; ++i) lane.ranges[i] = pending.ranges[i];
  pending.count = 0;
  const int error = ask(lane);
  lane.process.store(0, std::memory_order_release);
  if (error == 0) return;
  // pmem_drain() can not fail, and the program would take for safe what is not.
  say("what the program waits for can not be made durable on its replicas: it ends here");
  ::_exit(EXIT_FAILURE);
}

ChannelLane& Forwarder::take_lane() {
  const ProcessName mine = self();
  for (std::size_t turn = 0;; ++turn) {
    ChannelLane& lane = channel_->lanes[turn % kLanes];
    ProcessName holder = lane.process.load(std::memory_order_acquire);
    // Its state counts once the holder can not change it any more.
    const bool left = holder != 0 && holder != mine && turn % (64 * kLanes) >= 63 * kLanes &&
                      has_ended(holder) && state_of(lane) != LaneState::Asked;
    if ((holder == 0 || left) && lane.process.compare_exchange_strong(holder, mine)) return lane;
    if (turn % kLanes == kLanes - 1) ::sched_yield();
  }
}

/// Asks what the lane holds, and waits for the answer: 0 or an errno.
int Forwarder::ask(ChannelLane& lane) {
  set_state(lane, LaneState::Asked);
  constexpr auto kAsked = static_cast<std::uint32_t>(LaneState::Asked);
  for (int poll = 0; state_of(lane) == LaneState::Asked; ++poll) {
    if (poll < kPolls) {
      __builtin_ia32_pause();
      continue;
    }
    futex_wait(lane.state, kAsked, kLookMilliseconds);
    if (state_of(lane) == LaneState::Asked && has_ended(channel_->command)) {
      say("the command that mirrors this program has ended: it ends here");
      ::_exit(EXIT_FAILURE);
    }
  }
  lane.state.store(static_cast<std::uint32_t>(LaneState::Idle), std::memory_order_release);
  return lane.error;
}

}  // namespace

Backend* forward_over(const char* path) {
  static Forwarder forwarder;
  return forwarder.open(path) ? &forwarder : nullptr;
}

}  // namespace perdure::interpose
