// Whether a medium still promises what it did: see medium_watch.h.
#include "pmem/medium_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>

#include "core/try.h"

namespace perdure::pmem {
namespace {

constexpr int kDoubtsMax = 2;

/// Whether an examination can open what it has to: some files, and a directory for each device.
bool has_descriptors() {
  constexpr std::size_t kNeeded = 16;
  std::array<int, kNeeded> opened{};
  for (int& each : opened) each = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  for (const int each : opened) {
    if (each >= 0) ::close(each);
  }
  return std::all_of(opened.begin(), opened.end(), [](int each) { return each >= 0; });
}

/// Whether what speaks against the medium was seen. A drive whose write_cache could not be read may
/// be one without a volatile cache, over which a mount without barriers keeps what is synced.
bool is_certain(const Medium& medium) {
  return !medium.never_lasts.empty() &&
         std::none_of(medium.drives.begin(), medium.drives.end(),
                      [](const Drive& drive) { return drive.write_cache.empty(); });
}

Error less_than_promised(const File& file, PersistenceDomain promised, const Medium& now) {
  const bool certain = !now.never_lasts.empty();
  return {ErrorCode::SystemError,
          fmt::format(
              "{}: it was opened as {}, and what is below it has changed since: {}; what "
              "was acknowledged meanwhile may be lost at a power failure: {}, and open the "
              "pool again",
              file.path(), to_string(promised), certain ? now.never_lasts : join_evidence(now),
              certain ? now.remedy : "see to its mount and its drives, or declare what they keep")};
}

}  // namespace

Result<void> MediumWatch::look(const File& file, PersistenceDomain promised, const Decide& decide) {
  const Nanoseconds::rep now = Clock::monotonic().now().count();
  Nanoseconds::rep last = examined_ns_.load();
  if (now - last < options_.every.count()) return {};
  if (!examined_ns_.compare_exchange_strong(last, now)) return {};  // another thread looks
  PERDURE_TRY(medium, options_.examine(file));
  const auto domain = decide(medium);
  if (domain.ok() && *domain >= promised) {
    doubts_.store(0);
    return {};
  }
  // Without descriptors not everything can be seen, and what can not says nothing of the medium.
  if (!is_certain(medium) && !has_descriptors()) return {};
  if (medium.never_lasts.empty() && doubts_.fetch_add(1) + 1 < kDoubtsMax) return {};
  return less_than_promised(file, promised, medium);
}

}  // namespace perdure::pmem
