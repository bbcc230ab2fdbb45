// The shared memory of one connection, and the two streams in it that each side writes.
//
//   offset        size   what
//   0             64     magic, version, bytes of a stream
//   64            64     what side 0 publishes: see Published
//   128           64     what side 1 publishes
//   192, 256      64     whether side 0, side 1 sleeps
//   320           ...    the streams: side 0 requests, side 1 requests (kRequestBytes each),
//                        side 0 answers, side 1 answers (kAnswerBytes each)
//
// Side 0 is the one that connected. A crash of a process can leave a frame half written: the
// survivor executes what is whole and sees the end of the socket.
#pragma once

#include <perdure/result.h>

#include "core/bytes.h"
#include "core/descriptor.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

namespace perdure::fabric::shm {

/// Holds more than a record of 1 MiB, so that one crosses while the next is made.
inline constexpr std::uint64_t kRequestBytes = 2 * 1024 * 1024;
inline constexpr std::uint64_t kAnswerBytes = 256 * 1024;
/// Where little waits to be read, a stream of requests begins again at its start from here on: it
/// stays in the cache then, and most of its pages are never touched.
inline constexpr std::uint64_t kRewindFrom = 256 * 1024;
inline constexpr std::uint64_t kRewindUnread = 32 * 1024;

/// Positions in streams are bytes since the connection began. Written by one side, read by the
/// other: a single cache line tells everything that is new.
struct alignas(kCacheLineBytes) Published {
  std::atomic<std::uint64_t> requests_written;
  std::atomic<std::uint64_t> requests_read;  // of the peer's stream of requests
  std::atomic<std::uint64_t> answers_written;
  std::atomic<std::uint64_t> answers_read;
  std::atomic<std::uint64_t> executed;  // how many of the peer's requests
  std::atomic<std::uint64_t> refused;   // 1 when the request after those was refused
};
static_assert(sizeof(Published) == kCacheLineBytes);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

struct alignas(kCacheLineBytes) Sleeper {
  std::atomic<std::uint32_t> sleeping;
};

struct alignas(kCacheLineBytes) SharedHead {
  std::uint64_t magic;
  std::uint64_t version;
  std::uint64_t request_bytes;
};

struct SharedMemory {
  SharedHead head;
  std::array<Published, 2> published;
  std::array<Sleeper, 2> sleepers;
  std::array<std::array<std::byte, kRequestBytes>, 2> requests;
  std::array<std::array<std::byte, kAnswerBytes>, 2> answers;
};
static_assert(offsetof(SharedMemory, requests) == 320);

struct Unmap {
  void operator()(SharedMemory* memory) const;
};
using Mapping = std::unique_ptr<SharedMemory, Unmap>;

/// Makes the shared memory of a new connection; sealed, so that neither side can take pages away
/// from under the other.
struct NewRings {
  Descriptor descriptor;
  Mapping mapping;
};
Result<NewRings> create_rings();

/// Maps what a peer handed over. Errors: ProtocolError when it is not sealed memory of our form.
Result<Mapping> map_rings(const Descriptor& descriptor);

/// The writing end of a stream, whose size is a power of two. Bytes are put, then published.
class StreamWriter {
 public:
  StreamWriter(std::span<std::byte> stream, std::atomic<std::uint64_t>& written,
               const std::atomic<std::uint64_t>& read)
      : bytes_(stream.data()), size_(stream.size()), written_(written), read_(read) {}

  /// Bytes that fit now.
  std::uint64_t room() {
    if (put_ - freed_ >= size_ / 2) freed_ = read_.load(std::memory_order_acquire);
    // A peer that says nonsense gets a full stream: then nothing moves, and nothing breaks.
    return put_ - freed_ <= size_ ? size_ - (put_ - freed_) : 0;
  }
  /// Whether to go on at the start: see kRewindFrom.
  bool far_from_start() {
    if ((put_ & (size_ - 1)) < kRewindFrom) return false;
    freed_ = read_.load(std::memory_order_acquire);
    return put_ - freed_ <= kRewindUnread;
  }
  /// Leaves out what is left before the end.
  void rewind() { align(size_); }
  /// Requires data.size() <= room().
  void put(std::span<const std::byte> data) {
    const std::uint64_t at = put_ & (size_ - 1);
    const std::size_t first = std::min<std::size_t>(data.size(), size_ - at);
    std::memcpy(bytes_ + at, data.data(), first);
    if (first < data.size()) std::memcpy(bytes_, data.data() + first, data.size() - first);
    put_ += data.size();
  }
  /// Leaves bytes out, so that the next frame begins at a multiple of `alignment`.
  void align(std::uint64_t alignment) { put_ = round_up(put_, alignment); }
  void publish() {
    if (!cut()) written_.store(put_, std::memory_order_release);
  }
  std::uint64_t position() const { return put_; }
  /// Once `cut` is set, nothing more is published. Looked at after the bytes were read that are to
  /// be published: whoever sets it before they become worthless is in time.
  void obey(const std::atomic<bool>& cut) { cut_ = &cut; }
  bool cut() const { return cut_ != nullptr && cut_->load(std::memory_order_seq_cst); }

 private:
  const std::atomic<bool>* cut_ = nullptr;
  std::byte* bytes_;
  std::uint64_t size_;
  std::atomic<std::uint64_t>& written_;
  const std::atomic<std::uint64_t>& read_;
  std::uint64_t put_ = 0;
  std::uint64_t freed_ = 0;
};

/// The reading end of a stream.
class StreamReader {
 public:
  StreamReader(std::span<const std::byte> stream, const std::atomic<std::uint64_t>& written,
               std::atomic<std::uint64_t>& read)
      : bytes_(stream.data()), size_(stream.size()), written_(written), read_(read) {}

  /// Whether the peer has published anything that was not taken.
  bool anything() const { return written_.load(std::memory_order_acquire) != taken_; }
  /// Bytes that can be taken now. More than size(): the peer says nonsense.
  std::uint64_t available() {
    if (seen_ == taken_) seen_ = written_.load(std::memory_order_acquire);
    return seen_ - taken_;
  }
  std::uint64_t refresh() {
    seen_ = written_.load(std::memory_order_acquire);
    return seen_ - taken_;
  }
  /// Requires to.size() <= available().
  void take(std::span<std::byte> to) {
    const std::uint64_t at = taken_ & (size_ - 1);
    const std::size_t first = std::min<std::size_t>(to.size(), size_ - at);
    std::memcpy(to.data(), bytes_ + at, first);
    if (first < to.size()) std::memcpy(to.data() + first, bytes_, to.size() - first);
    taken_ += to.size();
  }
  void align(std::uint64_t alignment) { taken_ = round_up(taken_, alignment); }
  void rewind() { align(size_); }
  std::uint64_t size() const { return size_; }
  /// Gives the room of what was taken back to the writer.
  void release() { read_.store(taken_, std::memory_order_release); }
  std::uint64_t position() const { return taken_; }

 private:
  const std::byte* bytes_;
  std::uint64_t size_;
  const std::atomic<std::uint64_t>& written_;
  std::atomic<std::uint64_t>& read_;
  std::uint64_t taken_ = 0;
  std::uint64_t seen_ = 0;
};

}  // namespace perdure::fabric::shm
