// See io_ring.h; io_uring_setup(2), io_uring_enter(2).
#include "bench/io_ring.h"

#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "core/errno_error.h"

namespace perdure::bench {
namespace {

unsigned& word_at(std::byte* ring, unsigned offset) {
  return *reinterpret_cast<unsigned*>(ring + offset);
}

std::byte* map_ring(int ring, std::size_t bytes, off_t which) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, which);
  return at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
}

}  // namespace

Result<std::unique_ptr<IoRing>> IoRing::open(unsigned entries) {
  std::unique_ptr<IoRing> made(new IoRing());
  io_uring_params& parameters = made->parameters_;
  made->ring_ = static_cast<int>(::syscall(SYS_io_uring_setup, entries, &parameters));
  if (made->ring_ < 0) {
    return Error{ErrorCode::Unsupported, errno_error("io_uring_setup", errno).message};
  }
  made->submissions_bytes_ = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
  made->completions_bytes_ = parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe);
  made->entries_bytes_ = parameters.sq_entries * sizeof(io_uring_sqe);
  made->submissions_ = map_ring(made->ring_, made->submissions_bytes_, IORING_OFF_SQ_RING);
  made->completions_ = map_ring(made->ring_, made->completions_bytes_, IORING_OFF_CQ_RING);
  auto* at = map_ring(made->ring_, made->entries_bytes_, IORING_OFF_SQES);
  made->entries_ = reinterpret_cast<io_uring_sqe*>(at);
  if (made->submissions_ == nullptr || made->completions_ == nullptr || at == nullptr) {
    return Error{ErrorCode::Unsupported, errno_error("mmap of io_uring", errno).message};
  }
  return made;
}

IoRing::~IoRing() {
  if (submissions_ != nullptr) ::munmap(submissions_, submissions_bytes_);
  if (completions_ != nullptr) ::munmap(completions_, completions_bytes_);
  if (entries_ != nullptr) ::munmap(entries_, entries_bytes_);
  if (ring_ >= 0) ::close(ring_);
}

Result<void> IoRing::write(int descriptor, std::span<const std::byte> data, std::uint64_t at,
                           std::uint64_t context) {
  unsigned& tail = word_at(submissions_, parameters_.sq_off.tail);
  const unsigned index = tail & word_at(submissions_, parameters_.sq_off.ring_mask);
  io_uring_sqe& entry = entries_[index];
  entry = io_uring_sqe{};
  entry.opcode = IORING_OP_WRITE;
  entry.fd = descriptor;
  entry.off = at;
  entry.addr = reinterpret_cast<std::uintptr_t>(data.data());
  entry.len = static_cast<std::uint32_t>(data.size());
  entry.rw_flags = RWF_DSYNC;
  entry.user_data = context;
  word_at(submissions_, parameters_.sq_off.array + index * unsigned{sizeof(unsigned)}) = index;
  std::atomic_ref<unsigned>(tail).store(tail + 1, std::memory_order_release);
  if (::syscall(SYS_io_uring_enter, ring_, 1, 0, 0, nullptr, 0) == 1) return {};
  return errno_error("io_uring_enter", errno);
}

Result<std::uint64_t> IoRing::wait() {
  unsigned& head = word_at(completions_, parameters_.cq_off.head);
  const std::atomic_ref<unsigned> tail(word_at(completions_, parameters_.cq_off.tail));
  while (tail.load(std::memory_order_acquire) == head) {
    const long entered =
        ::syscall(SYS_io_uring_enter, ring_, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    if (entered < 0 && errno != EINTR) return errno_error("io_uring_enter", errno);
  }
  const auto* entries =
      reinterpret_cast<const io_uring_cqe*>(completions_ + parameters_.cq_off.cqes);
  const io_uring_cqe done = entries[head & word_at(completions_, parameters_.cq_off.ring_mask)];
  std::atomic_ref<unsigned>(head).store(head + 1, std::memory_order_release);
  if (done.res < 0) return errno_error("write through io_uring", -done.res);
  return done.user_data;
}

}  // namespace perdure::bench
