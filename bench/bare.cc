// See bare.h: the two loops, and the process that answers.
#include "bench/bare.h"

#include "bench/bare_flush.h"
#include "bench/bare_link.h"
#include "core/bytes.h"
#include "core/try.h"
#include "testing/process.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <new>
#include <system_error>
#include <utility>

namespace perdure::bench {

std::string_view to_string(BareProvider provider) {
  switch (provider) {
    case BareProvider::Tcp: return "tcp";
    case BareProvider::Shm: return "shm";
    case BareProvider::Verbs: return "verbs";
  }
  return "unknown";
}

std::string_view to_string(BareOperation operation) {
  switch (operation) {
    case BareOperation::Message: return "message";
    case BareOperation::WriteMessage: return "write-message";
    case BareOperation::WriteImmediate: return "write-immediate";
    case BareOperation::WriteRead: return "write-read";
    case BareOperation::WriteDelivery: return "write-delivery";
    case BareOperation::WriteCommit: return "write-commit";
  }
  return "unknown";
}

namespace {

// Of the program: those that it forks have it, too.
const pid_t kProgram = ::getpid();
constexpr std::uint64_t kLooksPerCheck = 4096;

/// What both processes see: how far the asking one is. Made before the fork.
struct Shared {
  std::atomic<std::uint32_t> stop{0};
  std::atomic<std::uint64_t> last_stamp{0};  // what the first bytes of the region must be
};

struct Unmap {
  std::size_t length = 0;
  void operator()(void* at) const { ::munmap(at, length); }
};

Result<std::unique_ptr<std::byte, Unmap>> map_bytes(std::size_t length, int flags) {
  void* mapped =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (mapped == MAP_FAILED) return Error{ErrorCode::SystemError, "bare program: out of memory"};
  return std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(mapped), Unmap{length});
}

void pin(int cpu) {
  if (cpu < 0) return;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  (void)::sched_setaffinity(0, sizeof set, &set);
}

bool has_reply(BareOperation operation) {
  return operation == BareOperation::Message || operation == BareOperation::WriteMessage ||
         operation == BareOperation::WriteImmediate;
}

struct Job {
  BareProvider provider;
  BareOperation operation;
  std::size_t bytes;
  bool persist;
  int responder_cpu;
  std::size_t places = 1;
  std::size_t times_persisted = 1;
};

Result<std::unique_ptr<BareLink>> open_link(BareProvider provider, const BareSetup& setup) {
  return provider == BareProvider::Verbs ? open_verbs_link(setup) : open_ofi_link(provider, setup);
}

/// The child: answers until it is told to stop. Returns its exit code.
int respond(const Job& job, int control, Shared& shared) {
  pin(job.responder_cpu);
  const std::size_t region_bytes = std::max<std::size_t>(job.bytes * job.places, kCacheLineBytes);
  auto region = map_bytes(region_bytes, MAP_PRIVATE);
  if (!region.ok()) return 3;
  auto link = open_link(job.provider, {false, control, {region->get(), region_bytes}, job.bytes});
  if (!link.ok()) return link.code() == ErrorCode::Unsupported ? 2 : 3;
  std::byte* const region_begin = region->get();
  const std::array<std::byte, kReplyBytes> reply{};

  std::uint64_t answered = 0;
  std::size_t next_place = 0;
  const OnReceive take = [&](std::span<const std::byte> message) {
    std::byte* const place = region_begin + next_place * job.bytes;
    next_place = (next_place + 1) % job.places;
    for (std::size_t time = 0; time < job.times_persisted; ++time) {
      if (job.operation == BareOperation::Message && (job.persist || message.size() >= 8)) {
        std::memcpy(place, message.data(), job.persist ? message.size() : 8);
      }
      if (job.persist) flush_lines(place, job.bytes);
    }
  };
  for (std::uint64_t looks = 1;; ++looks) {
    const auto looked = (*link)->look(take);
    if (!looked.ok()) break;  // the asking side closed
    for (; answered < (*link)->received() && has_reply(job.operation); ++answered) {
      if (!(*link)->send(reply.data(), reply.size()).ok()) return 3;
    }
    if (looks % kLooksPerCheck == 0 && shared.stop.load(std::memory_order_acquire) != 0) break;
  }
  if (shared.stop.load(std::memory_order_acquire) == 0) return 3;
  return load<std::uint64_t>(region_begin) == shared.last_stamp ? 0 : 4;
}

/// A child process that runs respond(), and its socket.
class BareResponder {
 public:
  static Result<std::unique_ptr<BareResponder>> start(const Job& job) {
    std::unique_ptr<BareResponder> started(new BareResponder);
    PERDURE_TRY(memory, map_bytes(sizeof(Shared), MAP_SHARED));
    started->shared_memory_ = std::move(memory);
    started->shared_ = new (started->shared_memory_.get()) Shared;
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return Error{ErrorCode::SystemError, "bare program: socketpair"};
    }
    if (job.provider != BareProvider::Verbs)
      warm_up_ofi();  // before the fork: a quarter of a second that both then have behind them
    const timeval limit{10, 0};
    for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    auto process = test::ChildProcess::fork([&] {
      ::close(ends[0]);
      return respond(job, ends[1], *started->shared_);
    });
    ::close(ends[1]);
    started->control_ = ends[0];
    if (!process.ok()) return process.error();
    started->process_ = std::move(process).value();
    return started;
  }

  ~BareResponder() {
    process_.kill();
    ::close(control_);
  }

  int control() const { return control_; }

  /// Tells it to stop and hears whether it found the last bytes in their place.
  Result<void> finish(std::uint64_t last_stamp) {
    shared_->last_stamp = last_stamp;
    shared_->stop.store(1, std::memory_order_release);
    if (!process_.wait(Deadline::after(kBarePatience))) {
      return Error{ErrorCode::TimedOut, "bare program: it does not end"};
    }
    const int code = process_.end()->status;
    if (code == 0) return {};
    return Error{code == 4 ? ErrorCode::Corrupt : ErrorCode::Disconnected,
                 fmt::format("bare program: the answering process ended with {}", code)};
  }

 private:
  BareResponder() = default;
  std::unique_ptr<std::byte, Unmap> shared_memory_;
  Shared* shared_ = nullptr;
  test::ChildProcess process_;
  int control_ = -1;
};

const OnReceive kIgnore = [](std::span<const std::byte>) {};

/// Looks until `reached`.
template <typename Reached>
Result<void> await(BareLink& link, Reached&& reached) {
  const Deadline deadline = Deadline::after(kBarePatience);
  for (std::uint64_t looks = 1; !reached(); ++looks) {
    PERDURE_TRY_VOID(link.look(kIgnore));
    if (looks % kLooksPerCheck == 0 && deadline.passed()) {
      return Error{ErrorCode::TimedOut, "bare program: no answer"};
    }
  }
  return {};
}

/// One round, as bare.h describes it.
Result<void> run_round(BareLink& link, BareOperation operation, std::span<std::byte> data,
                       std::span<std::byte> landing) {
  const std::uint64_t received = link.received();
  const std::uint64_t completed = link.requests_completed();
  switch (operation) {
    case BareOperation::Message: PERDURE_TRY_VOID(link.send(data.data(), data.size())); break;
    case BareOperation::WriteMessage:
      PERDURE_TRY_VOID(link.write(data.data(), data.size(), 0, BareEnding::Silent));
      PERDURE_TRY_VOID(link.send(landing.data(), kReplyBytes));
      break;
    case BareOperation::WriteImmediate:
      PERDURE_TRY_VOID(link.write(data.data(), data.size(), 0, BareEnding::Immediate));
      break;
    case BareOperation::WriteRead:
      PERDURE_TRY_VOID(link.write_and_read(data.data(), data.size(), landing.data()));
      break;
    case BareOperation::WriteDelivery:
      PERDURE_TRY_VOID(link.write(data.data(), data.size(), 0, BareEnding::Delivered));
      break;
    case BareOperation::WriteCommit:
      PERDURE_TRY_VOID(link.write(data.data(), data.size(), 0, BareEnding::Committed));
      break;
  }
  if (has_reply(operation)) {
    return await(link, [&] { return link.received() > received; });
  }
  return await(link, [&] { return link.requests_completed() > completed; });
}

Result<void> check(const BareOptions& options) {
  if (options.bytes < 8) {
    return Error{ErrorCode::InvalidArgument, "bare program: at least 8 bytes"};
  }
  if (options.operation == BareOperation::WriteCommit && options.provider != BareProvider::Tcp) {
    return Error{ErrorCode::Unsupported, "bare program: only tcp takes FI_COMMIT_COMPLETE"};
  }
  if (options.persist && (!has_reply(options.operation) || !can_flush_lines())) {
    return Error{ErrorCode::Unsupported,
                 "bare program: persist needs a reply, and CLWB or CLFLUSHOPT"};
  }
  return {};
}

}  // namespace

std::string bare_shm_prefix() { return fmt::format("perdure-bare-{}-", kProgram); }

void remove_bare_leftovers() {
  std::error_code failed;
  std::filesystem::directory_iterator each("/dev/shm", failed);
  std::vector<std::filesystem::path> left;
  for (; !failed && each != std::filesystem::directory_iterator(); each.increment(failed)) {
    if (each->path().filename().string().starts_with(bare_shm_prefix())) {
      left.push_back(each->path());
    }
  }
  for (const auto& path : left) std::filesystem::remove(path, failed);
}

Result<std::vector<std::uint64_t>> bare_latencies(const BareOptions& options) {
  PERDURE_TRY_VOID(check(options));
  const std::size_t data_bytes = options.bytes + kCacheLineBytes;
  PERDURE_TRY(buffer, map_bytes(data_bytes, MAP_PRIVATE));
  PERDURE_TRY(responder, BareResponder::start(Job{
                             options.provider, options.operation, options.bytes, options.persist,
                             options.responder_cpu, 1, options.times_persisted}));
  pin(options.requester_cpu);
  const std::span<std::byte> data(buffer.get(), options.bytes);
  const std::span<std::byte> landing(buffer.get() + options.bytes, kCacheLineBytes);
  PERDURE_TRY(link,
              open_link(options.provider,
                        {true, responder->control(), {buffer.get(), data_bytes}, kReplyBytes}));

  const Clock& clock = Clock::monotonic();
  std::vector<std::uint64_t> samples;
  samples.reserve(options.rounds);
  const std::size_t rounds = options.warm_up + options.rounds;
  for (std::uint64_t round = 0; round < rounds; ++round) {
    store(data.data(), round);
    const Nanoseconds begun = clock.now();
    if (auto ran = run_round(*link, options.operation, data, landing); !ran.ok()) {
      link->remove_leftover();
      return ran.error();
    }
    const Nanoseconds took = clock.now() - begun;
    if (round >= options.warm_up) samples.push_back(static_cast<std::uint64_t>(took.count()));
  }
  PERDURE_TRY_VOID(responder->finish(rounds - 1));
  return samples;
}

void produce(std::span<std::byte> room, std::uint64_t number) {
  constexpr std::size_t kWord = sizeof(std::uint64_t);
  std::size_t at = 0;
  for (; at + kWord <= room.size(); at += kWord) {
    store(room.data() + at, (number << 32) + at);
  }
  for (; at < room.size(); ++at) room[at] = static_cast<std::byte>(number);
}

Result<double> bare_bandwidth(const BareBandwidthOptions& options) {
  const BareOperation operation =
      options.persist ? BareOperation::WriteImmediate : BareOperation::WriteDelivery;
  BareOptions checked;
  checked.provider = options.provider;
  checked.operation = operation;
  checked.bytes = options.bytes;
  checked.persist = options.persist;
  PERDURE_TRY_VOID(check(checked));
  const std::size_t data_bytes = options.window * options.bytes;
  PERDURE_TRY(buffer, map_bytes(data_bytes, MAP_PRIVATE));
  PERDURE_TRY(responder,
              BareResponder::start(Job{options.provider, operation, options.bytes, options.persist,
                                       options.responder_cpu, options.places}));
  pin(options.requester_cpu);
  PERDURE_TRY(link,
              open_link(options.provider,
                        {true, responder->control(), {buffer.get(), data_bytes}, kReplyBytes}));

  const std::uint64_t writes =
      std::max<std::uint64_t>(options.total_bytes / options.bytes, options.window);
  const auto ended = [&] {
    return options.persist ? link->received() : link->requests_completed();
  };
  const BareEnding each = options.persist ? BareEnding::Immediate : BareEnding::Completed;
  const BareEnding last = options.persist ? BareEnding::Immediate : BareEnding::Delivered;
  const Clock& clock = Clock::monotonic();
  const std::uint64_t all = options.warm_up + writes;
  Nanoseconds begun = clock.now();
  const auto write_all = [&]() -> Result<void> {
    for (std::uint64_t i = 0; i < all; ++i) {
      const std::uint64_t in_flight = i == options.warm_up ? 1 : options.window;
      PERDURE_TRY_VOID(await(*link, [&] { return i - ended() < in_flight; }));
      if (i == options.warm_up) begun = clock.now();
      const bool is_last = i + 1 == all;
      std::byte* const data = buffer.get() + i % options.window * options.bytes;
      if (options.produce) produce({data, options.bytes}, i);
      if (is_last) store(data, all);
      const std::size_t place = is_last ? 0 : i % options.places;
      PERDURE_TRY_VOID(
          link->write(data, options.bytes, place * options.bytes, is_last ? last : each));
    }
    return await(*link, [&] { return ended() == all; });
  };
  if (auto written = write_all(); !written.ok()) {
    link->remove_leftover();
    return written.error();
  }
  const double seconds = to_seconds(clock.now() - begun);
  PERDURE_TRY_VOID(responder->finish(all));
  return static_cast<double>(writes * options.bytes) / seconds;
}

}  // namespace perdure::bench
