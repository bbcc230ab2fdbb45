// Pages under an RNIC: whether those of a pool in the page cache can be pinned, whether a program
// that forks keeps its own, and what follows.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"

namespace perdure::host {
namespace {

/// From then on pages of a mapped file are not pinned for long (commit "mm/gup: disallow
/// FOLL_LONGTERM GUP-nonfast writing to file-backed mappings").
constexpr Release kPinsNoFiles{6, 5};
/// From then on a fork() copies pinned pages at once, for the child: ibv_fork_init(3) does nothing.
constexpr Release kCopiesPinnedPages{5, 12};

/// That the kernel notices what the RNIC writes into pages on demand, nobody but a power cut shows.
void find_belief(const RdmaDevice& device, Check& check) {
  constexpr char kCut[] = "perdure probe --certify PEER";
  check.evidence.push_back(device.name +
                           ": no file says whether what it writes into a page on demand makes the "
                           "page dirty");
  check.find(Verdict::NotKnown,
             fmt::format("{}: dma_dirties = \"yes\" is declared, and is believed if it pages the "
                         "pool on demand: records are then written into the file without this "
                         "processor, and are lost if it is wrong",
                         device.name),
             "keep the declaration only if power cuts, with this RNIC and kernel and each "
             "--primary, lost nothing that was acknowledged",
             {fmt::format("{} --pool SCRATCH --overwrite --power-cut arm --state FILE", kCut),
              fmt::format("{} --power-cut check --state FILE", kCut)});
}

void find_pages(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  const auto release = release_of(inspected, check);
  const std::vector<std::string> ask{"uname -r", fmt::format("ibv_devinfo -v -d {}", device.name)};
  const bool pins = release && *release < kPinsNoFiles;
  if (!pins) {
    if (find_unread_config(inspected, check)) return;
    const bool declared = is_any_declared(inspected, [](const server::PoolSettings& settings) {
      return settings.dma_dirties == DmaDirties::Yes;
    });
    if (declared) return find_belief(device, check);
  }
  if (!release) {
    return check.find(
        Verdict::NotKnown,
        fmt::format("whether this kernel pins pages of a file for {} is not known", device.name),
        "over RDMA records use SEND in any case; see which kernel this is", ask);
  }
  if (pins) {
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

std::optional<Release> release_of(const InspectedHost& inspected, Check& check) {
  const Reading reading = check.keep(inspected.tree.read("/proc/sys/kernel/osrelease"));
  Release release;
  if (std::sscanf(reading.text.c_str(), "%d.%d", &release.major, &release.minor) != 2)
    return std::nullopt;
  return release;
}

Check check_pages_under_rnic(const InspectedHost& inspected) {
  Check check{"pages-under-rnic"};
  if (!inspected.domains().contains(PersistenceDomain::Page)) {
    check.find_nothing("the pool is not kept by the page cache's write-back",
                       inspected.place.medium.evidence.front());
    return check;
  }
  // rxe and siw pin pages as well.
  for (const RdmaDevice& device : rdma_devices(inspected.tree))
    find_pages(inspected, device, check);
  check.find_nothing("no RDMA device: what this processor stores into a file the kernel notices",
                     kNoRdmaDevice);
  return check;
}

Check check_forks(const InspectedHost& inspected) {
  Check check{"forks"};
  if (rdma_devices(inspected.tree).empty()) {
    check.find_nothing("no RDMA device: nobody but this processor reads a program's pages",
                       kNoRdmaDevice);
    return check;
  }
  const auto release = release_of(inspected, check);
  if (!release) {
    check.find(Verdict::NotKnown, "whether a fork() takes registered pages away is not known",
               "see which kernel this is; before 5.12 do as is said for it", {"uname -r"});
  } else if (*release < kCopiesPinnedPages) {
    check.find(Verdict::Advice,
               "this kernel makes registered pages copies at a fork(): a program that registered "
               "memory with an RNIC before it uses Perdure, and forks, is refused the RNIC",
               "set IBV_FORK_SAFE=1 for such programs, or let them call ibv_fork_init() first; "
               "whether one does no file tells",
               {"export IBV_FORK_SAFE=1"});
  } else {
    check.find(Verdict::Ok, "a fork() leaves registered pages to the parent");
  }
  return check;
}

}  // namespace perdure::host
