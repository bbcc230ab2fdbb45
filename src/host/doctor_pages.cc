// A pool in the page cache under an RNIC: whether its pages can be pinned, and what follows.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"

namespace perdure::host {
namespace {

/// The kernel from which pages of a mapped file are not pinned for long (Linux 6.5, commit "mm/gup:
/// disallow FOLL_LONGTERM GUP-nonfast writing to file-backed mappings"). Nothing: it can not be
/// read.
std::optional<bool> refuses_to_pin(const Reading& release) {
  int major = 0;
  int minor = 0;
  if (std::sscanf(release.text.c_str(), "%d.%d", &major, &minor) != 2) return std::nullopt;
  return major > 6 || (major == 6 && minor >= 5);
}

void find_pages(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  const auto refuses =
      refuses_to_pin(check.keep(inspected.tree.read("/proc/sys/kernel/osrelease")));
  const std::vector<std::string> ask{"uname -r", fmt::format("ibv_devinfo -v -d {}", device.name)};
  if (!refuses) {
    return check.find(
        Verdict::NotKnown,
        fmt::format("whether this kernel pins pages of a file for {} is not known", device.name),
        "over RDMA records use SEND in any case; see which kernel this is", ask);
  }
  if (!*refuses) {
    return check.find(
        Verdict::Ok,
        fmt::format("this kernel pins pages of a file for {} and does not notice what it writes "
                    "there: over RDMA only methods by SEND are used, whose data a processor stores",
                    device.name));
  }
  check.find(Verdict::Advice,
             fmt::format("this kernel pins no pages of a file: {} serves the pool only if it pages "
                         "on demand",
                         device.name),
             "look for ODP of RC transport; without it serve this pool over tcp, or put it on a "
             "DAX device",
             ask);
}

}  // namespace

Check check_pages_under_rnic(const InspectedHost& inspected) {
  Check check{"pages-under-rnic"};
  if (inspected.domain() != PersistenceDomain::Page) {
    check.find_nothing("the pool is not kept by the page cache's write-back",
                       inspected.place.medium.evidence.front());
    return check;
  }
  for (const RdmaDevice& device : rdma_devices(inspected.tree))
    find_pages(inspected, device, check);
  check.find_nothing("no RNIC: what this processor stores into a file the kernel notices",
                     kNoRdmaDevice);
  return check;
}

}  // namespace perdure::host
