// See io_ring.h.
#include "bench/io_ring.h"

#ifdef PERDURE_WITH_LIBURING

#include <liburing.h>
#include <linux/fs.h>

#include <cerrno>

#include "core/errno_error.h"

namespace perdure::bench {

IoRing::IoRing() : ring_(std::make_unique<io_uring>()) {}

Result<std::unique_ptr<IoRing>> IoRing::open(unsigned entries) {
  std::unique_ptr<IoRing> made(new IoRing());
  const int opened = ::io_uring_queue_init(entries, made->ring_.get(), 0);
  if (opened < 0) {
    return Error{ErrorCode::Unsupported, errno_error("io_uring_setup", -opened).message};
  }
  made->open_ = true;
  return made;
}

IoRing::~IoRing() {
  if (open_) ::io_uring_queue_exit(ring_.get());
}

Result<void> IoRing::write(int descriptor, std::span<const std::byte> data, std::uint64_t at,
                           std::uint64_t context) {
  io_uring_sqe* entry = ::io_uring_get_sqe(ring_.get());
  if (entry == nullptr) return Error{ErrorCode::SystemError, "io_uring: no entry is free"};
  ::io_uring_prep_write(entry, descriptor, data.data(), static_cast<unsigned>(data.size()), at);
  entry->rw_flags = RWF_DSYNC;
  ::io_uring_sqe_set_data64(entry, context);
  const int submitted = ::io_uring_submit(ring_.get());
  if (submitted == 1) return {};
  return errno_error("io_uring_submit", submitted < 0 ? -submitted : EBUSY);
}

Result<std::uint64_t> IoRing::wait() {
  io_uring_cqe* completion = nullptr;
  int waited = -EINTR;
  while (waited == -EINTR) waited = ::io_uring_wait_cqe(ring_.get(), &completion);
  if (waited < 0) return errno_error("io_uring_wait_cqe", -waited);
  const int written = completion->res;
  const std::uint64_t context = ::io_uring_cqe_get_data64(completion);
  ::io_uring_cqe_seen(ring_.get(), completion);
  if (written < 0) return errno_error("write through io_uring", -written);
  return context;
}

}  // namespace perdure::bench

#else

struct io_uring {};

namespace perdure::bench {

IoRing::IoRing() = default;
IoRing::~IoRing() = default;

Result<std::unique_ptr<IoRing>> IoRing::open(unsigned) {
  return Error{ErrorCode::Unsupported, "this build has no io_uring: install liburing-dev"};
}

Result<void> IoRing::write(int, std::span<const std::byte>, std::uint64_t, std::uint64_t) {
  return Error{ErrorCode::Unsupported, "this build has no io_uring: install liburing-dev"};
}

Result<std::uint64_t> IoRing::wait() {
  return Error{ErrorCode::Unsupported, "this build has no io_uring: install liburing-dev"};
}

}  // namespace perdure::bench

#endif
