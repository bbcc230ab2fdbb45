// Pages under an RNIC: whether those of a pool in the page cache can be pinned, whether a program
// that forks keeps its own, and what follows.
#include <fmt/format.h>

#include <algorithm>
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

std::optional<Release> release_in(const std::string& text) {
  Release release;
  if (std::sscanf(text.c_str(), "%d.%d", &release.major, &release.minor) != 2) return std::nullopt;
  return release;
}

std::vector<std::string> pages_asked(const RdmaDevice& device) {
  return {"uname -r", fmt::format("ibv_devinfo -v -d {}", device.name)};
}

/// Whether it carries a transport that the configuration tells perdured to offer.
bool is_offered(const InspectedHost& inspected, const RdmaDevice& device) {
  if (!inspected.config.ok() || inspected.config->fabric == server::Fabric::Emulated) return false;
  const auto& wanted = inspected.config->transports;
  const std::string& named = inspected.config->rnic;
  const auto all = rdma_devices(inspected.tree);
  const bool another = named != device.name &&
                       std::any_of(all.begin(), all.end(),
                                   [&](const RdmaDevice& each) { return each.name == named; });
  if (another) return false;
  return std::any_of(device.ports.begin(), device.ports.end(), [&](const RdmaPort& port) {
    const bool carries = port.kind == RdmaKind::InfiniBand || port.kind == RdmaKind::Roce ||
                         port.kind == RdmaKind::Iwarp;
    const Transport transport = port.kind == RdmaKind::Roce    ? Transport::Roce
                                : port.kind == RdmaKind::Iwarp ? Transport::Iwarp
                                                               : Transport::InfiniBand;
    return carries && std::find(wanted.begin(), wanted.end(), transport) != wanted.end();
  });
}

/// Of the kernel's drivers these two page on demand, mlx5 since ConnectX-4, rxe in new kernels.
bool may_page_on_demand(const RdmaDevice& device) {
  return device.software == "rxe" || device.driver.starts_with("mlx5_core");
}

/// What can not be pinned, `why`, only an RNIC that pages on demand serves.
void find_unpinned(const InspectedHost& inspected, const RdmaDevice& device, const std::string& why,
                   Check& check) {
  if (find_unread_config(inspected, check)) return;
  const char* const remedy =
      "look for ODP of RC transport; without it serve this pool over tcp, or put it on device DAX";
  const bool offered = is_offered(inspected, device);
  if (offered && !may_page_on_demand(device)) {
    return check.find(Verdict::Problem,
                      fmt::format("{}, and {} does not page on demand: the pool can not be served "
                                  "over the configured RDMA transport",
                                  why, device.name),
                      remedy, pages_asked(device));
  }
  check.find(offered ? Verdict::NotKnown : Verdict::Advice,
             fmt::format("{}: {} serves the pool only if it pages on demand{}", why, device.name,
                         offered ? ", and is to serve it" : ""),
             remedy, pages_asked(device));
}

void find_pages(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  const auto release = release_of(inspected, check);
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
        "over RDMA records use SEND in any case; see which kernel this is", pages_asked(device));
  }
  if (pins) {
    return check.find(
        Verdict::Ok,
        fmt::format("this kernel pins pages of a file for {} and does not notice what it writes "
                    "there: over RDMA only methods by SEND are used, whose data a processor stores",
                    device.name));
  }
  find_unpinned(inspected, device, "this kernel pins no pages of a file", check);
}

bool is_dax_file(const Storage& storage) {
  return storage.medium.kind == pmem::MediumKind::Dax && !storage.medium.is_device;
}

}  // namespace

std::optional<Release> release_of(const InspectedHost& inspected, Check& check) {
  return release_in(check.keep(inspected.tree.read("/proc/sys/kernel/osrelease")).text);
}

std::string why_not_pinned(const pmem::Medium& medium, const std::string& kernel_release) {
  if (medium.kind == pmem::MediumKind::Dax && !medium.is_device) {
    return "no kernel pins pages of a file on DAX for an RNIC";
  }
  if (medium.kind != pmem::MediumKind::PageCache) return "";
  const auto release = release_in(kernel_release);
  if (release && *release < kPinsNoFiles) return "";
  return release ? "this kernel pins no pages of a file for an RNIC"
                 : "kernels since 6.5 pin no pages of a file for an RNIC, and which this is is not "
                   "known";
}

Check check_pages_under_rnic(const InspectedHost& inspected) {
  Check check{"pages-under-rnic"};
  const auto storages = inspected.storages();
  const auto dax_file = std::find_if(storages.begin(), storages.end(), is_dax_file);
  const bool page = inspected.domains().contains(PersistenceDomain::Page);
  if (!page && dax_file == storages.end()) {
    check.find_nothing("the pool is neither kept by the page cache's write-back nor a file on DAX",
                       inspected.place.medium.evidence.front());
    return check;
  }
  if (dax_file != storages.end()) check.evidence.push_back(dax_file->medium.evidence.front());
  // rxe and siw pin pages as well.
  for (const RdmaDevice& device : rdma_devices(inspected.tree)) {
    if (page) find_pages(inspected, device, check);
    if (dax_file == storages.end()) continue;
    find_unpinned(inspected, device, dax_file->prefix() + why_not_pinned(dax_file->medium, ""),
                  check);
  }
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
