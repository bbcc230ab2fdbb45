// Answering a mirrored program: see mirror_channel.h.
#include "mirror_channel.h"

#include "core/assert.h"
#include "core/errno_error.h"
#include "core/try.h"
#include "output.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <new>

namespace perdure::app {
namespace {

using interpose::Ask;
using interpose::ChannelHeader;
using interpose::ChannelLane;
using interpose::ChannelRange;
using interpose::LaneState;

constexpr long kLookMilliseconds = 200;  // whether it ends

int errno_of(const Error& error) { return error.code == ErrorCode::NoSpace ? EFBIG : EIO; }

}  // namespace

Result<std::unique_ptr<MirrorChannel>> MirrorChannel::create(const std::string& path,
                                                             Files& files) {
  PERDURE_ASSERT(files.size() <= interpose::kMirroredMax);
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return errno_error(path, errno);
  void* mapping = MAP_FAILED;
  const int full = ::posix_fallocate(file, 0, sizeof(ChannelHeader));
  if (full == 0) {
    mapping = ::mmap(nullptr, sizeof(ChannelHeader), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int error = full != 0 ? full : errno;
  ::close(file);
  if (mapping == MAP_FAILED) return errno_error(path, error);
  auto* const header = new (mapping) ChannelHeader;
  header->version = interpose::kChannelVersion;
  header->command =
      interpose::name_of(static_cast<std::uint32_t>(::getpid()), interpose::pid_namespace());
  header->file_count = static_cast<std::uint32_t>(files.size());
  for (std::size_t number = 0; number < files.size(); ++number) {
    const std::string& name = files[number]->path();
    PERDURE_ASSERT(name.size() < interpose::kChannelPathMax);
    std::memcpy(header->paths[number], name.c_str(), name.size() + 1);
    files[number]->show_in(&header->files[number]);
  }
  header->magic = interpose::kChannelMagic;
  return std::unique_ptr<MirrorChannel>(new MirrorChannel(header, files));
}

MirrorChannel::MirrorChannel(ChannelHeader* header, Files& files) : header_(header), files_(files) {
  threads_.reserve(interpose::kLanes);
  for (ChannelLane& lane : header_->lanes) {
    threads_.emplace_back([this, &lane] { serve(lane); });
  }
}

MirrorChannel::~MirrorChannel() {
  ending_ = true;
  for (const auto& file : files_) file->give_up();
  for (ChannelLane& lane : header_->lanes) interpose::futex_wake(lane.state);
  for (std::thread& thread : threads_) thread.join();
  for (const auto& file : files_) file->show_in(nullptr);
  ::munmap(header_, sizeof(ChannelHeader));
}

void MirrorChannel::serve(ChannelLane& lane) {
  while (!ending_) {
    const std::uint32_t state = lane.state.load(std::memory_order_acquire);
    if (static_cast<LaneState>(state) != LaneState::Asked) {
      interpose::futex_wait(lane.state, state, kLookMilliseconds);
      continue;
    }
    const auto outcome = answer(lane);
    if (!outcome.ok()) print_error(outcome.error());
    lane.error = outcome.ok() ? 0 : errno_of(outcome.error());
    interpose::set_state(lane, LaneState::Answered);
  }
}

/// Trusts nothing of the lane: the program may write anything there.
Result<void> MirrorChannel::answer(const ChannelLane& lane) {
  const std::size_t count = std::min<std::size_t>(lane.count, interpose::kRangesOfLane);
  std::array<std::vector<MirrorRange>, interpose::kMirroredMax> ranges;
  for (std::size_t i = 0; i < count; ++i) {
    const ChannelRange range = lane.ranges[i];
    if (range.file >= files_.size()) {
      return Error{ErrorCode::ProtocolError, "the program asks for a file that is not mirrored"};
    }
    if (lane.ask == Ask::Map) return files_[range.file]->follow();
    ranges[range.file].push_back({range.offset, range.length});
  }
  for (std::size_t file = 0; file < files_.size(); ++file) {
    if (ranges[file].empty()) continue;
    PERDURE_TRY_VOID(files_[file]->make_durable(ranges[file]));
  }
  return {};
}

}  // namespace perdure::app
