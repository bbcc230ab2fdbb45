// See file_sync.h.
#include "bench/file_sync.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <span>

#include "bench/io_ring.h"
#include "core/bytes.h"
#include "core/clock.h"
#include "core/distribution.h"
#include "core/errno_error.h"
#include "core/json.h"
#include "core/try.h"
#include "pmem/page_sync.h"
#include "testing/process.h"

namespace perdure::bench {
namespace {

constexpr std::uint64_t kBlockBytes = 4096;
constexpr std::array<std::uint64_t, 4> kSizes{64, 4096, 64 << 10, 1 << 20};
constexpr std::array<FileSync, 5> kWays{FileSync::Msync, FileSync::WriteDsync, FileSync::WriteOnly,
                                        FileSync::Direct, FileSync::DirectQueue};
constexpr unsigned kFineBits = 6;

/// What the drive below a file has been sent so far, by anybody.
struct DeviceWrites {
  std::uint64_t requests = 0;
  std::uint64_t bytes = 0;
};

/// Documentation/block/stat: fields 5 and 7 are requests and sectors of 512 bytes, 16 flushes.
DeviceWrites writes_of(dev_t device) {
  std::ifstream in(fmt::format("/sys/dev/block/{}:{}/stat", major(device), minor(device)));
  DeviceWrites writes;
  std::uint64_t value = 0;
  for (int field = 1; in >> value; ++field) {
    if (field == 5 || field == 16) writes.requests += value;
    if (field == 7) writes.bytes = value * 512;
  }
  return writes;
}

/// A new file, mapped, in memory and written on its drive; removed at the end, and not before:
/// file systems need not write what has no name any more (btrfs does not).
class Target {
 public:
  static Result<std::unique_ptr<Target>> open(const FileSyncOptions& options) {
    auto target = std::make_unique<Target>();
    target->path_ = options.directory + "/.perdure-file-sync.XXXXXX";
    target->file_ = ::mkstemp(target->path_.data());
    if (target->file_ < 0) return errno_error(options.directory, errno);
    target->bytes_ = round_up(options.file_bytes, kSizes.back());
    const std::vector<char> zeros(kSizes.back());
    for (std::uint64_t at = 0; at < target->bytes_; at += zeros.size()) {
      PERDURE_TRY_VOID(test::InterruptGuard::check());
      const auto written =
          ::pwrite(target->file_, zeros.data(), zeros.size(), static_cast<off_t>(at));
      if (written != static_cast<ssize_t>(zeros.size())) return errno_error(target->path_, errno);
    }
    if (::fsync(target->file_) != 0) return errno_error(target->path_, errno);
    // As a new pool does: what write() leaves in the cache lies in folios of many pages.
    (void)::posix_fadvise(target->file_, 0, 0, POSIX_FADV_DONTNEED);
    target->direct_ = ::open(target->path_.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
    void* at =
        ::mmap(nullptr, target->bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, target->file_, 0);
    if (at == MAP_FAILED) return errno_error(target->path_ + ": mmap", errno);
    target->mapping_ = static_cast<std::byte*>(at);
    if (options.single_pages) pmem::keep_pages_small({target->mapping_, target->bytes_});
    (void)::madvise(at, target->bytes_, MADV_POPULATE_READ);
    target->block_.reset(static_cast<std::byte*>(std::aligned_alloc(kBlockBytes, kSizes.back())));
    if (!target->block_) return Error{ErrorCode::SystemError, "out of memory"};
    std::memset(target->block_.get(), 0x5a, kSizes.back());
    struct stat status {};
    if (::fstat(target->file_, &status) == 0) target->device_ = status.st_dev;
    return target;
  }
  Target() = default;
  ~Target() {
    if (mapping_ != nullptr) ::munmap(mapping_, bytes_);
    if (direct_ >= 0) ::close(direct_);
    if (file_ >= 0) ::close(file_);
    if (file_ >= 0) ::unlink(path_.c_str());
  }
  Target(const Target&) = delete;
  Target& operator=(const Target&) = delete;

  /// Where the next record of so many bytes goes.
  std::uint64_t next(std::uint64_t bytes) {
    if (at_ + bytes > bytes_) at_ = 0;
    const std::uint64_t at = round_up(at_, std::min(bytes, kBlockBytes));
    at_ = at + bytes;
    return at + bytes > bytes_ ? 0 : at;
  }
  DeviceWrites writes() const { return writes_of(device_); }

  Result<void> write(FileSync way, std::uint64_t at, std::uint64_t bytes) {
    const std::uint64_t begin = round_down(at, kBlockBytes);
    const std::uint64_t length = round_up(at + bytes, kBlockBytes) - begin;
    if (way == FileSync::Direct) {
      return put(direct_, {block_.get(), length}, begin);
    }
    if (way == FileSync::WriteOnly) return put(file_, {block_.get(), bytes}, at);
    std::memset(mapping_ + at, ++stamp_, bytes);
    if (way == FileSync::WriteDsync) return put(file_, {mapping_ + at, bytes}, at);
    if (::msync(mapping_ + begin, length, MS_SYNC) == 0) return {};
    return errno_error("msync", errno);
  }
  Result<void> begin(IoRing& ring, std::uint64_t at, std::uint64_t bytes, std::uint64_t context) {
    const std::uint64_t begin = round_down(at, kBlockBytes);
    const std::uint64_t length = round_up(at + bytes, kBlockBytes) - begin;
    return ring.write(direct_, {block_.get(), length}, begin, context);
  }
  bool has_direct() const { return direct_ >= 0; }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  static Result<void> put(int file, std::span<std::byte> data, std::uint64_t at) {
    const iovec part{data.data(), data.size()};
    const ssize_t written = ::pwritev2(file, &part, 1, static_cast<off_t>(at), RWF_DSYNC);
    if (written == static_cast<ssize_t>(data.size())) return {};
    return errno_error("pwritev2", written < 0 ? errno : ENOSPC);
  }

  std::string path_;
  int file_ = -1;
  int direct_ = -1;
  std::uint64_t bytes_ = 0;
  std::byte* mapping_ = nullptr;
  std::unique_ptr<std::byte, Free> block_;
  dev_t device_ = 0;
  std::uint64_t at_ = 0;
  int stamp_ = 0;
};

/// All rounds of one way and size.
struct Sum {
  Distribution<kFineBits> latency_ns;
  Nanoseconds time{0};
  DeviceWrites device;
  std::string failure;
};

std::uint64_t since(Nanoseconds begin) {
  return static_cast<std::uint64_t>((Clock::monotonic().now() - begin).count());
}

Result<void> one_by_one(Target& target, FileSync way, std::uint64_t bytes, std::uint64_t samples,
                        Sum& sum) {
  for (std::uint64_t i = 0; i < samples; ++i) {
    PERDURE_TRY_VOID(test::InterruptGuard::check());
    const std::uint64_t at = target.next(bytes);
    const Nanoseconds begin = Clock::monotonic().now();
    PERDURE_TRY_VOID(target.write(way, at, bytes));
    sum.latency_ns.add(since(begin));
  }
  return {};
}

Result<void> several(Target& target, std::uint64_t bytes, std::uint64_t samples, Sum& sum) {
  PERDURE_TRY(ring, IoRing::open(kQueued));
  std::array<Nanoseconds, kQueued> begun{};
  std::uint64_t started = 0;
  const auto start = [&](std::uint64_t slot) -> Result<void> {
    ++started;
    begun[slot] = Clock::monotonic().now();
    return target.begin(*ring, target.next(bytes), bytes, slot);
  };
  while (started < std::min<std::uint64_t>(samples, kQueued)) PERDURE_TRY_VOID(start(started));
  for (std::uint64_t ended = 0; ended < started; ++ended) {
    PERDURE_TRY(slot, ring->wait());
    sum.latency_ns.add(since(begun[slot]));
    // What is in flight is waited for.
    if (started == samples || test::InterruptGuard::interrupted()) continue;
    PERDURE_TRY_VOID(start(slot));
  }
  return {};
}

void run_round(Target& target, FileSync way, std::uint64_t bytes, std::uint64_t samples, Sum& sum) {
  if (!sum.failure.empty()) return;
  const bool direct = way == FileSync::Direct || way == FileSync::DirectQueue;
  if (direct && !target.has_direct()) {
    sum.failure = "the file system has no O_DIRECT";
    return;
  }
  const DeviceWrites before = target.writes();
  const Nanoseconds begin = Clock::monotonic().now();
  const auto ran = way == FileSync::DirectQueue ? several(target, bytes, samples, sum)
                                                : one_by_one(target, way, bytes, samples, sum);
  sum.time += Clock::monotonic().now() - begin;
  const DeviceWrites after = target.writes();
  sum.device.bytes += after.bytes - before.bytes;
  sum.device.requests += after.requests - before.requests;
  if (!ran.ok()) sum.failure = ran.error().message;
}

}  // namespace

std::string_view to_string(FileSync way) {
  switch (way) {
    case FileSync::Msync: return "msync";
    case FileSync::WriteDsync: return "pwritev2-dsync";
    case FileSync::WriteOnly: return "pwritev2-dsync-copy";
    case FileSync::Direct: return "direct";
    case FileSync::DirectQueue: return "direct-io-uring-4";
  }
  return "?";
}

Result<std::vector<FileSyncFinding>> measure_file_sync(const FileSyncOptions& options,
                                                       const FileSyncProgress& progress) {
  // Each has a file of its own: a write that passes the cache by throws pages out of it.
  std::array<std::unique_ptr<Target>, kWays.size()> targets;
  for (auto& target : targets) {
    PERDURE_TRY(opened, Target::open(options));
    target = std::move(opened);
  }
  std::array<std::array<Sum, kWays.size()>, kSizes.size()> sums;
  const auto samples_of = [&](std::uint64_t bytes) {  // a round of one way writes 16 MiB at most
    return std::clamp<std::uint64_t>((std::uint64_t{16} << 20) / bytes, 1, options.samples);
  };
  for (std::size_t round = 0; round < options.rounds; ++round) {
    for (std::size_t size = 0; size < kSizes.size(); ++size) {
      for (std::size_t i = 0; i < kWays.size(); ++i) {
        const std::size_t way = (i + round) % kWays.size();
        progress((round * kSizes.size() + size) * kWays.size() + i,
                 options.rounds * kSizes.size() * kWays.size(),
                 fmt::format("{} of {} bytes", to_string(kWays[way]), kSizes[size]));
        run_round(*targets[way], kWays[way], kSizes[size], samples_of(kSizes[size]),
                  sums[size][way]);
        PERDURE_TRY_VOID(test::InterruptGuard::check());
      }
    }
  }
  std::vector<FileSyncFinding> findings;
  for (std::size_t size = 0; size < kSizes.size(); ++size) {
    for (std::size_t way = 0; way < kWays.size(); ++way) {
      const Sum& sum = sums[size][way];
      FileSyncFinding finding;
      finding.way = kWays[way];
      finding.bytes = kSizes[size];
      finding.samples = sum.latency_ns.count();
      finding.failure = sum.failure;
      if (finding.samples != 0 && finding.failure.empty()) {
        const auto count = static_cast<double>(finding.samples);
        finding.p50_ns = sum.latency_ns.quantile(0.5);
        finding.p99_ns = sum.latency_ns.quantile(0.99);
        finding.each_ns = static_cast<double>(sum.time.count()) / count;
        finding.device_bytes = static_cast<double>(sum.device.bytes) / count;
        finding.device_requests = static_cast<double>(sum.device.requests) / count;
      }
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

std::string file_sync_text(const std::vector<FileSyncFinding>& findings) {
  report::Table table{{{"bytes"},
                       {"way", false},
                       {"p50, us"},
                       {"p99, us"},
                       {"us a record"},
                       {"device, B a record"},
                       {"requests"},
                       {"n"},
                       {"", false}},
                      {}};
  const auto us = [](double ns) { return report::figure(ns / 1000); };
  for (const FileSyncFinding& each : findings) {
    table.rows.push_back({report::grouped(each.bytes), std::string(to_string(each.way)),
                          us(static_cast<double>(each.p50_ns)),
                          us(static_cast<double>(each.p99_ns)), us(each.each_ns),
                          report::figure(each.device_bytes), report::figure(each.device_requests),
                          report::grouped(each.samples), each.failure});
  }
  return "Making records of a file durable, whose pages are in memory [measured]\n\n" +
         table.text();
}

std::string file_sync_json(const std::vector<FileSyncFinding>& findings,
                           const report::Setup& setup) {
  nlohmann::json out = {{"format", 1}};  // docs/file-sync.schema.json
  for (const auto& [name, value] : setup.rows) out["setup"][name] = value;
  out["origin"] = "measured";
  for (const FileSyncFinding& each : findings) {
    out["findings"].push_back({{"way", to_string(each.way)},
                               {"bytes", each.bytes},
                               {"samples", each.samples},
                               {"p50_ns", each.p50_ns},
                               {"p99_ns", each.p99_ns},
                               {"each_ns", each.each_ns},
                               {"device_bytes", each.device_bytes},
                               {"device_requests", each.device_requests},
                               {"failure", each.failure},
                               {"hash", report::configuration_hash(fmt::format(
                                            "file-sync/{}/{}", to_string(each.way), each.bytes))}});
  }
  return json_text(out, 1) + "\n";
}

}  // namespace perdure::bench
