// Who has a device DAX pool: see owner_lease.h.
#include "pmem/owner_lease.h"

#include <fmt/format.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <climits>
#include <cstring>
#include <functional>
#include <future>
#include <optional>
#include <span>
#include <thread>

#include "core/assert.h"
#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/mutex.h"
#include "core/random.h"
#include "core/try.h"
#include "pmem/owner_process.h"

namespace perdure::pmem {
namespace {

constexpr std::uint64_t kLeaseMagic = 0x5341454C44524550;  // "PERDLEAS" in memory
constexpr std::uint32_t kLeaseVersion = 1;
constexpr std::uint32_t kDeathIsMarked = 1;
constexpr std::uint32_t kTurn = 1;  // of a tag
constexpr int kBeatTries = 8;       // for a claim that the kernel is just marking
constexpr std::size_t kLeaseTagAt = 16;
constexpr std::size_t kBootAt = 24;
constexpr std::size_t kBootBytes = 40;
constexpr std::size_t kOwnerAt = 64;
constexpr std::size_t kOwnerBytes = 128;
constexpr std::size_t kPlaceAt = 192;
constexpr std::size_t kDescriptionChecksumAt = 252;
constexpr std::size_t kDescriptionBytes = 256;
constexpr std::size_t kClaimAt = 256;
constexpr std::size_t kBeatAt = 320;
constexpr std::size_t kFlushedBytes = 320;
static_assert(std::endian::native == std::endian::little);  // the futex is the claim's low half

constexpr Nanoseconds kBeatEvery = std::chrono::milliseconds{500};
constexpr int kLookEveryMs = 50;

std::string this_process() {
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) host[0] = '?';
  return fmt::format("process {} of {}", ::getpid(), host.data());
}

/// The upper 16 bits of a tag.
std::uint32_t mark_of(const std::string& boot_id) {
  return crc32c(std::as_bytes(std::span(boot_id))) & 0xFFFF0000U;
}

struct Description {
  bool death_is_marked = false;
  std::uint32_t tag = 0;
  std::string boot_id;
  std::string owner;
  std::uint64_t place = 0;
};

std::array<std::byte, kDescriptionBytes> encode(const Description& description) {
  std::array<std::byte, kDescriptionBytes> bytes{};
  store(bytes.data(), kLeaseMagic);
  store(bytes.data() + 8, kLeaseVersion);
  store(bytes.data() + 12, description.death_is_marked ? kDeathIsMarked : 0U);
  store(bytes.data() + kLeaseTagAt, description.tag);
  const auto text = [&](std::size_t at, std::size_t bytes_max, const std::string& from) {
    std::memcpy(bytes.data() + at, from.data(), std::min(from.size(), bytes_max - 1));
  };
  text(kBootAt, kBootBytes, description.boot_id);
  text(kOwnerAt, kOwnerBytes, description.owner);
  store(bytes.data() + kPlaceAt, description.place);
  store(bytes.data() + kDescriptionChecksumAt,
        crc32c(std::span(bytes).first(kDescriptionChecksumAt)));
  return bytes;
}

std::optional<Description> decode(std::span<const std::byte> bytes) {
  if (load<std::uint64_t>(bytes.data()) != kLeaseMagic ||
      load<std::uint32_t>(bytes.data() + 8) != kLeaseVersion ||
      load<std::uint32_t>(bytes.data() + kDescriptionChecksumAt) !=
          crc32c(bytes.first(kDescriptionChecksumAt))) {
    return std::nullopt;
  }
  const auto text = [&](std::size_t at, std::size_t bytes_max) {
    const auto* from = reinterpret_cast<const char*>(bytes.data() + at);
    return std::string(from, ::strnlen(from, bytes_max));
  };
  return Description{(load<std::uint32_t>(bytes.data() + 12) & kDeathIsMarked) != 0,
                     load<std::uint32_t>(bytes.data() + kLeaseTagAt), text(kBootAt, kBootBytes),
                     text(kOwnerAt, kOwnerBytes), load<std::uint64_t>(bytes.data() + kPlaceAt)};
}

std::uint64_t load_shared(const std::byte* at) {
  return __atomic_load_n(reinterpret_cast<const std::uint64_t*>(at), __ATOMIC_ACQUIRE);
}

bool exchange(std::byte* at, std::uint64_t expected, std::uint64_t wanted) {
  return __atomic_compare_exchange_n(reinterpret_cast<std::uint64_t*>(at), &expected, wanted, false,
                                     __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

bool is_marked_dead(std::uint64_t claim) { return (claim & FUTEX_OWNER_DIED) != 0; }

/// Whether the beat or the claim changes within `watch`.
bool seen_alive(const std::byte* lease, Nanoseconds watch) {
  const std::uint64_t beat = load_shared(lease + kBeatAt);
  const std::uint64_t claim = load_shared(lease + kClaimAt);
  const Deadline deadline = Deadline::after(watch);
  while (!deadline.passed()) {
    (void)::poll(nullptr, 0, kLookEveryMs);
    if (load_shared(lease + kBeatAt) != beat || load_shared(lease + kClaimAt) != claim) return true;
  }
  return false;
}

/// Where a lease is looked at from.
struct Here {
  std::string boot_id;
  std::uint64_t place = 0;
};

/// Of this boot, and not in a copy of another device.
bool is_of(const Description& owner, const Here& here) {
  const bool says = owner.place != 0 && here.place != 0;
  return owner.boot_id == here.boot_id && (!says || owner.place == here.place);
}

LeaseSeen seen_at(const std::byte* lease, std::uint64_t claim, const Here& here) {
  using enum LeaseSeen::State;
  if (claim == 0) return {};
  const auto tag = static_cast<std::uint32_t>(claim >> 32);
  auto description = decode({lease, kDescriptionBytes});
  if (description && description->tag != (tag | kTurn)) description.reset();
  const bool ours =
      here.boot_id != kUnknownBoot &&
      (description ? is_of(*description, here) : (tag & 0xFFFF0000U) == mark_of(here.boot_id));
  const std::string owner = description ? description->owner : "";
  if (!ours) return {Elsewhere, owner};
  if (is_marked_dead(claim)) return {};
  return {!description || description->death_is_marked ? Held : Unmarked, owner};
}

/// Why the lease with this claim can not be had; nothing: its owner is dead, or there is none.
std::optional<std::string> why_not(const std::byte* lease, std::uint64_t claim, const Here& here,
                                   Nanoseconds watch) {
  const LeaseSeen seen = seen_at(lease, claim, here);
  const std::string owner = seen.owner.empty() ? "an owner that could not be read" : seen.owner;
  if (seen.state == LeaseSeen::State::Free) return std::nullopt;
  if (seen.state == LeaseSeen::State::Held) return owner + ", which has not ended";
  if (seen_alive(lease, watch)) return owner + ", which is alive";
  if (seen.state == LeaseSeen::State::Elsewhere) return std::nullopt;
  return owner + ", which does not move, and of whose end the kernel would not tell";
}

/// A lease that this process has, and the thread with whose end the kernel marks it.
class HeldLease final : public OwnerLease {
 public:
  HeldLease(Region& region, std::uint64_t at, std::uint32_t tag)
      : region_(region), at_(at), lease_(region.bytes().data() + at), tag_(tag) {
    head_.list.next = &head_.list;
  }
  ~HeldLease() override {
    if (!keeper_.joinable()) return;
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    stopped_.notify_all();
    keeper_.join();
    if (!lost_.load()) (void)region_.flush(at_, kFlushedBytes);
  }
  HeldLease(const HeldLease&) = delete;
  HeldLease& operator=(const HeldLease&) = delete;

  /// Whether the claim was still the expected one, and is ours now.
  bool begin(std::uint64_t expected) {
    std::promise<bool> won;
    auto outcome = won.get_future();
    keeper_ = std::thread([this, expected, &won] { keep(expected, won); });
    const bool ours = outcome.get();
    if (!ours) keeper_.join();
    return ours;
  }
  bool death_is_marked() const { return death_is_marked_; }

  Result<void> check() override {
    if (!lost_.load() && is_ours(load_shared(lease_ + kClaimAt))) return {};
    if (!lost_.exchange(true)) region_.give_up();
    return Error{ErrorCode::SystemError,
                 "another owner has taken the device, on an operator's order or because this "
                 "process or its machine stood still; nothing more is made durable there from "
                 "here: use the pool where it is served now"};
  }

 private:
  void keep(std::uint64_t expected, std::promise<bool>& won) {
    const auto thread = static_cast<std::uint32_t>(::syscall(SYS_gettid));
    const std::uint64_t claim = static_cast<std::uint64_t>(tag_) << 32 | thread;
    if (!exchange(lease_ + kClaimAt, expected, claim)) return won.set_value(false);
    // Only now: the kernel marks whatever has this thread's number there, and a thread of another
    // container may have the same one.
    death_is_marked_ = watch_death(true);
    won.set_value(true);
    MutexLock lock(mutex_);
    while (!stopping_ && beat(thread)) lock.wait_for(stopped_, kBeatEvery);
    (void)watch_death(false);
    replace([](std::uint64_t) { return 0; });
  }

  /// Whether it is still ours.
  bool beat(std::uint32_t thread) {
    // An owner that lost it to an operator's take-over ends later than that, and its thread may
    // have the number that ours has in another container: the kernel then marks our claim.
    replace([&](std::uint64_t found) { return ((found >> 32 ^ kTurn) << 32) | thread; });
    if (!check().ok()) return false;
    auto* const count = reinterpret_cast<std::uint64_t*>(lease_ + kBeatAt);
    __atomic_fetch_add(count, 1, __ATOMIC_RELEASE);
    return true;
  }

  bool is_ours(std::uint64_t claim) const { return (claim >> 32 | kTurn) == tag_; }

  /// Puts another claim in the place of ours, as long as it is ours.
  void replace(const std::function<std::uint64_t(std::uint64_t)>& next) {
    for (int tries = 0; tries < kBeatTries; ++tries) {
      const std::uint64_t found = load_shared(lease_ + kClaimAt);
      if (!is_ours(found) || exchange(lease_ + kClaimAt, found, next(found))) return;
    }
  }

  /// The calling thread's list of robust futexes is our one entry, or empty. It uses no robust
  /// mutex of the C library, whose list it was. Whether the kernel has it.
  bool watch_death(bool watched) {
    head_.list.next = watched ? &entry_ : &head_.list;
    entry_.next = &head_.list;
    head_.futex_offset = reinterpret_cast<std::intptr_t>(lease_ + kClaimAt) -
                         reinterpret_cast<std::intptr_t>(&entry_);
    return ::syscall(SYS_set_robust_list, &head_, sizeof head_) == 0;
  }

  Region& region_;
  const std::uint64_t at_;
  std::byte* const lease_;
  const std::uint32_t tag_;
  robust_list_head head_{};
  robust_list entry_{};
  std::atomic<bool> lost_{false};
  bool death_is_marked_ = false;  // set by the thread before begin() returns
  Mutex mutex_;
  std::condition_variable stopped_;
  bool stopping_ PERDURE_GUARDED_BY(mutex_) = false;
  std::thread keeper_;
};

}  // namespace

LeaseSeen look_at_lease(std::span<const std::byte> lease, const std::string& boot_id,
                        std::uint64_t place) {
  PERDURE_ASSERT(lease.size() >= kOwnerLeaseBytes);
  return seen_at(lease.data(), load<std::uint64_t>(lease.data() + kClaimAt), {boot_id, place});
}

Result<std::unique_ptr<OwnerLease>> OwnerLease::take(Region& region, std::uint64_t at,
                                                     const Options& options) {
  PERDURE_ASSERT(at % kCacheLineBytes == 0 && at + kOwnerLeaseBytes <= region.bytes().size());
  std::byte* const lease = region.bytes().data() + at;
  const Here here{options.boot_id.empty() ? this_boot() : options.boot_id, options.place};
  const std::uint64_t claim = load_shared(lease + kClaimAt);
  const auto refusal =
      options.take_over ? std::nullopt : why_not(lease, claim, here, options.watch);
  if (refusal) {
    return Error{
        ErrorCode::Busy,
        fmt::format("the device is held by {}; end that first, or, if it can not write any "
                    "more, start perdured with --take-over-device POOL",
                    *refusal)};
  }
  Description description;
  description.boot_id = here.boot_id;
  description.place = here.place;
  description.owner = options.owner.empty() ? this_process() : options.owner;
  description.tag =
      mark_of(here.boot_id) | static_cast<std::uint32_t>(random_secret() & 0xFFFF) | 1U;
  auto held = std::make_unique<HeldLease>(region, at, description.tag);
  bool won = held->begin(claim);
  for (int tries = 1; !won && options.take_over && tries < kBeatTries; ++tries)
    won = held->begin(load_shared(lease + kClaimAt));
  if (!won) {
    return Error{ErrorCode::Busy,
                 "the device's owner has moved, or somebody else has taken it, at this moment; ask "
                 "again"};
  }
  description.death_is_marked = held->death_is_marked();
  const auto bytes = encode(description);
  std::memcpy(lease, bytes.data(), bytes.size());
  PERDURE_TRY_VOID(region.flush(at, kFlushedBytes));
  return std::unique_ptr<OwnerLease>(std::move(held));
}

}  // namespace perdure::pmem
