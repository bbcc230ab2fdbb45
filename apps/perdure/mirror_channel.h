// MirrorChannel: the command's side of the channel to a mirrored program
// (src/interpose/channel.h): a thread for each lane, which answers when what was asked is so.
#pragma once

#include "interpose/channel.h"
#include "mirrored_file.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace perdure::app {

class MirrorChannel {
 public:
  using Files = std::vector<std::unique_ptr<MirroredFile>>;

  /// A new one in a file. Requires  `files` outlives it; at most kMirroredMax, with paths shorter
  /// than kChannelPathMax. Errors: SystemError, NoSpace.
  static Result<std::unique_ptr<MirrorChannel>> create(const std::string& path, Files& files);
  /// Ends what is waited for.
  ~MirrorChannel();
  MirrorChannel(const MirrorChannel&) = delete;
  MirrorChannel& operator=(const MirrorChannel&) = delete;

  std::uint64_t flushes() const { return header_->flushes; }
  std::uint64_t drains() const { return header_->drains; }

 private:
  MirrorChannel(interpose::ChannelHeader* header, Files& files);
  void serve(interpose::ChannelLane& lane);
  Result<void> answer(const interpose::ChannelLane& lane);

  interpose::ChannelHeader* header_;
  Files& files_;
  std::atomic<bool> ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace perdure::app
