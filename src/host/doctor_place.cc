// The pool's place: its file system, the drive below it, and what the operator declared of both.
#include <fmt/format.h>

#include <algorithm>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"
#include "pmem/mount_options.h"
#include "pmem/pool_format.h"

namespace perdure::host {
namespace {

using pmem::DriveKind;
using pmem::MediumKind;

void find_page_cache(const InspectedHost& inspected, const Storage& storage, Check& check) {
  const pmem::Medium& medium = storage.medium;
  if (storage.domain == PersistenceDomain::None) {
    return check.find(
        Verdict::Problem, fmt::format("{} does not keep what is synced", medium.file_system),
        "move the pools to a local file system (ext4, xfs) that is mounted with barriers, or "
        "declare domain = \"page\" in [profile] if you know that fsync lasts there",
        {"findmnt --target " + storage.path});
  }
  const auto nvdimm =
      std::find_if(medium.drives.begin(), medium.drives.end(),
                   [](const pmem::Drive& drive) { return drive.kind == DriveKind::Nvdimm; });
  if (nvdimm != medium.drives.end()) {
    const std::string finding =
        fmt::format("{} lies on persistent memory, but behind the page cache", medium.file_system);
    if (!rdma_devices(inspected.tree).empty()) {
      return check.find(
          Verdict::Advice, finding,
          "use device DAX, which every RNIC can register: then a record need not be synced page "
          "by page. Not a file system with DAX, of which the kernel pins no pages for an RNIC. "
          "This destroys what is on the namespace",
          {"umount " + storage.path, "ndctl list -N",
           "ndctl create-namespace -f -e NAMESPACE -m devdax"});
    }
    return check.find(
        Verdict::Advice, finding,
        "mount it with DAX (fsdax namespace, ext4 or xfs), or use device DAX: then a record need "
        "not be synced page by page",
        {"umount " + storage.path,
         fmt::format("mount -o dax=always /dev/{} {}", nvdimm->name, storage.path)});
  }
  // No file of the kernel shows the property (man zfsprops, sync), and disabled makes fsync
  // nothing.
  if (medium.file_system == "zfs") {
    check.evidence.emplace_back("no file tells whether the dataset has sync=disabled");
    return check.find(
        Verdict::Advice,
        "ZFS, of which page is declared: that holds unless its dataset has "
        "sync=disabled, by which fdatasync and msync return at once",
        "see that it is standard or always, and look again after each change of the "
        "dataset, or of one that it inherits from",
        {fmt::format("zfs get sync \"$(findmnt -n -o SOURCE --target {})\"", storage.path)});
  }
  check.find(Verdict::Ok, fmt::format("{} behind the page cache: durable after fdatasync or msync, "
                                      "so every method goes through this processor",
                                      medium.file_system));
}

void find_dram(const Storage& storage, Check& check) {
  const std::string& name = storage.medium.file_system;
  if (storage.domain != PersistenceDomain::None) {
    return check.find(Verdict::Ok,
                      fmt::format("{} is memory, declared to be kept by a battery", name));
  }
  check.find(Verdict::Problem, fmt::format("{} is memory that a power failure empties", name),
             "declare domain = \"wsp\" (or \"dmp\", \"mhp\") in [profile] if a battery keeps this "
             "memory, else move the pools to a disk or to persistent memory",
             {"perdured --pools " + storage.path + " --declare-domain wsp"});
}

void find_dax(const Storage& storage, Check& check) {
  const pmem::Medium& medium = storage.medium;
  if (storage.domain == PersistenceDomain::None && !medium.never_lasts.empty()) {
    return check.find(Verdict::Problem, medium.never_lasts, medium.remedy,
                      {"perdure probe " + storage.path});
  }
  if (storage.domain == PersistenceDomain::None) {
    return check.find(Verdict::Problem,
                      "a DAX device of which nobody says that it survives a power failure",
                      "find out what memory it is, and declare its domain in [profile]",
                      {"ndctl list -RN", "daxctl list -RD"});
  }
  check.find(Verdict::Ok,
             fmt::format("{}: stores reach the memory itself, no page cache between",
                         medium.is_device ? "device DAX" : medium.file_system + " with DAX"));
}

/// A drive without protection may lose the whole unit that it was rewriting. The kernel has an NVMe
/// drive's preferred write granularity (NPWG) there.
void find_unit(const InspectedHost& inspected, const std::string& drive, Check& check) {
  const Reading bytes =
      inspected.tree.read(fmt::format("/sys/block/{}/queue/minimum_io_size", drive));
  if (bytes.number().value_or(0) <= pmem::kDriveUnitBytes) return;
  check.keep(bytes);
  check.find(Verdict::Advice,
             fmt::format("{} writes in units of {} bytes: if it loses the one that it was "
                         "rewriting, both copies of a pool's header and state can be in it ({} "
                         "bytes apart)",
                         drive, bytes.text, pmem::kDriveUnitBytes),
             "keep pools on a drive with power-loss protection, or with smaller units",
             {"nvme id-ns /dev/" + drive});
}

void find_write_cache(const InspectedHost& inspected, const Storage& storage,
                      const pmem::Drive& drive, Check& check) {
  const std::string& name = drive.name;
  check.evidence.push_back(drive.reason);
  if (!drive.swallowed_by.empty()) {
    const std::string& by = drive.swallowed_by;
    check.find(
        Verdict::Problem,
        by + " says \"write through\": the kernel sends no flush to what is volatile below it",
        "let it say \"write back\"",
        {fmt::format("echo 'write back' > /sys/block/{}/queue/write_cache", by)});
  }
  if (drive.kind == DriveKind::Memory) {
    return check.find(Verdict::Problem,
                      name +
                          " is a disk made of memory: it is empty after a "
                          "power failure",
                      "move the pools to a real disk", {"lsblk"});
  }
  if (drive.kind == DriveKind::Unknown) {
    return check.find(Verdict::NotKnown, "what is behind " + name + " can not be seen",
                      "look which drives are below it, and what fsync means there; then declare "
                      "domain = \"page\" in [profile]",
                      {"findmnt --target " + storage.path, "lsblk -o NAME,TYPE,ROTA,MOUNTPOINTS"});
  }
  if (drive.kind == DriveKind::Nvdimm) {
    return check.find(Verdict::Ok, name + " is an NVDIMM, and has no write cache of a drive");
  }
  if (drive.write_cache == "write through") {
    return check.find(Verdict::Ok, name + " reports no volatile write cache");
  }
  if (drive.write_cache == "write back") {
    find_unit(inspected, name, check);
    return check.find(Verdict::Ok,
                      name +
                          " has a volatile write cache, which fdatasync and msync flush: each "
                          "costs what the drive takes for that. Drives with power-loss "
                          "protection take least");
  }
  check.find(Verdict::NotKnown, name + " does not say whether its write cache is volatile",
             "ask the drive", {"hdparm -W /dev/" + name, "nvme get-feature -f 6 /dev/" + name});
  check.root_tells = "hdparm and nvme ask the drive itself, and need root";
}

void find_mount(const Storage& storage, const pmem::MountAbove& mount, Check& check) {
  if (mount.flushes == pmem::Flushes::NotSynced) {
    return check.find(Verdict::Problem,
                      fmt::format("{} is mounted with {}: fdatasync leaves data in memory",
                                  mount.what, mount.option),
                      "mount it without", {"findmnt --target " + storage.path});
  }
  if (mount.flushes == pmem::Flushes::LeftOut) {
    return check.find(
        Verdict::Problem,
        fmt::format("{} is mounted with {}: fdatasync leaves data in {}", mount.what, mount.option,
                    mount.drive.empty() ? "a volatile cache of the devices below it"
                                        : "the volatile cache of " + mount.drive),
        "mount it without", {"mount -o remount,barrier=1 " + storage.path});
  }
  if (mount.flushes == pmem::Flushes::Passed) return;
  check.find(Verdict::NotKnown,
             fmt::format("with which options {} is mounted can not be seen from here", mount.what),
             "look outside of this container or chroot; then declare domain = \"page\" in "
             "[profile] if barriers are on",
             {"findmnt --target " + storage.path});
}

void find_unread_header(const PoolThere& pool, Check& check) {
  check.evidence.push_back(fmt::format("pool {}: {}", pool.name, pool.unreadable));
  if (pool.is_blank) return;
  if (pool.forbidden) check.root_tells = "the headers of pools that only root may read";
  check.find(Verdict::NotKnown,
             fmt::format("as what domain pool {} was served can not be read", pool.name),
             "see pool-header", {"perdure pool list"});
}

/// Pools of which more was relied on than anybody vouches for today: see PoolState::relied_on.
void find_withdrawn(const InspectedHost& inspected, Check& check) {
  for (const PoolThere& pool : inspected.place.pools) {
    if (!pool.unreadable.empty()) {
      find_unread_header(pool, check);
      continue;
    }
    const pmem::Medium& medium = pool.medium ? *pool.medium : inspected.place.medium;
    if (!pool.relied_on || inspected.settings_of(pool.name).declared) continue;
    if (pool.is_unseen || *pool.relied_on <= medium.found) continue;
    const std::string_view once = to_string(*pool.relied_on);
    check.evidence.push_back(fmt::format("pool {}: served as domain = \"{}\"", pool.name, once));
    const bool served = pool.holder && pool.holder->state == pmem::PoolHolder::State::Held;
    check.find(
        served ? Verdict::NotKnown : Verdict::Problem,
        fmt::format(
            "pool {} was relied on as {}, which the configuration does not say{}: as far "
            "as it shows from here it lies on {}, and what was acknowledged in it was for "
            "{}",
            pool.name, once,
            served ? fmt::format(", though {}, which has it, may have been told", pool.holder->who)
                   : std::string(),
            to_string(medium.found), once),
        "if that still keeps this memory, say so in [profile] or [profile.pool.NAME]; if it lies "
        "on more than shows, ask from where perdured runs; else move the pool to what survives",
        {"perdure pool describe --pool " + pool.name, "perdure probe " + inspected.place.path});
  }
}

/// What /sys/class/power_supply has that could keep a machine running.
void keep_power_supplies(const InspectedHost& inspected, Check& check) {
  constexpr char kSupplies[] = "/sys/class/power_supply";
  for (const std::string& name : inspected.tree.names(kSupplies)) {
    const std::string at = fmt::format("{}/{}", kSupplies, name);
    const Reading type = inspected.tree.read(at + "/type");
    if (type.text != "UPS" && type.text != "Battery") continue;
    check.keep(type);
    check.keep(inspected.tree.read(at + "/status"));
  }
}

/// What a section declares of a medium.
struct Declaration {
  std::string of;  // "[profile]", or "[profile], of pool orders"
  PersistenceDomain domain;
  const pmem::Medium& medium;
};

void find_declared(const InspectedHost& inspected, const Declaration& declaration, Check& check) {
  const auto& [of, domain, medium] = declaration;
  const std::string_view declared = to_string(domain);
  check.evidence.push_back(
      fmt::format("{}: {} domain = \"{}\"", inspected.config_file, of, declared));
  if (const auto decided = pmem::decide_domain(medium, domain); !decided.ok()) {
    return check.find(Verdict::Problem, fmt::format("{}: {}", of, decided.error().message),
                      "declare what the machine is; perdured refuses to serve pools otherwise",
                      {"perdure probe " + inspected.place.path,
                       "perdured --config " + inspected.config_file + " --check-config"});
  }
  if (domain <= medium.found) {
    return check.find(Verdict::Ok,
                      fmt::format("{} declares {}, and the evidence says no less", of, declared));
  }
  check.find(
      Verdict::Advice,
      fmt::format("{} declares {}: no file of this machine confirms it", of, declared),
      "test the battery or UPS under load, and with a power cut, before you trust it; and again "
      "each year. perdured believes you",
      {"upower --dump", "upsc -l"});
}

/// What is declared of each pool, and of the place where there is none yet. Those of a section that
/// lie on the same are one.
std::vector<Declaration> declarations(const InspectedHost& inspected) {
  const server::Config& config = *inspected.config;
  std::vector<Declaration> found;
  const auto add = [&](const std::string& of, const std::optional<PersistenceDomain>& declared,
                       const pmem::Medium& medium) {
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const Declaration& each) { return each.of == of; });
    if (declared && !known) found.push_back({of, *declared, medium});
  };
  if (inspected.place.pools.empty())
    add("[profile]", config.service.settings.declared, inspected.place.medium);
  for (const PoolThere& pool : inspected.place.pools) {
    if (pool.is_unseen || config.service.settings_by_pool.contains(pool.name)) continue;
    add(pool.medium ? "[profile], of pool " + pool.name : "[profile]",
        config.service.settings.declared, pool.medium ? *pool.medium : inspected.place.medium);
  }
  for (const auto& [name, settings] : config.service.settings_by_pool) {
    const auto& pools = inspected.place.pools;
    const auto pool = std::find_if(pools.begin(), pools.end(),
                                   [&name = name](const auto& each) { return each.name == name; });
    if (pool != pools.end() && pool->is_unseen) continue;
    const bool elsewhere = pool != pools.end() && pool->medium;
    add("[profile.pool." + name + "]", settings.declared,
        elsewhere ? *pool->medium : inspected.place.medium);
  }
  return found;
}

void find_read_only(const Storage& storage, Check& check) {
  // ext4 leaves the mount "rw" after an error since Linux 6.12, and shows the latter two
  // since 6.15.
  for (const char* option : {"ro", "emergency_ro", "shutdown"}) {
    if (!pmem::has_option(storage.medium.mount_options, option)) continue;
    check.find(Verdict::Problem,
               "the file system is read-only: nothing that is written there lasts. Either it is "
               "mounted so, or the kernel made it so after an error (errors=remount-ro, "
               "emergency_ro, shutdown)",
               "read the kernel's log, see to the drive, check the file system, and mount it again",
               {"journalctl -k", "mount -o remount,rw " + storage.path});
    break;
  }
}

Check file_system_of(const InspectedHost& inspected, const Storage& storage) {
  Check check{"pool-file-system"};
  const pmem::Medium& medium = storage.medium;
  check.evidence = medium.evidence;
  if (storage.domain > medium.found) {
    check.evidence.push_back(
        fmt::format("{}: declares {}", inspected.config_file, to_string(storage.domain)));
  }
  find_read_only(storage, check);
  if (storage.declared == PersistenceDomain::None) {
    check.find(Verdict::Ok, fmt::format("{}: domain none is declared, and nothing is promised of "
                                        "what lies there",
                                        medium.file_system));
    return check;
  }
  switch (medium.kind) {
    case MediumKind::PageCache: find_page_cache(inspected, storage, check); break;
    case MediumKind::Dram: find_dram(storage, check); break;
    case MediumKind::Dax: find_dax(storage, check); break;
  }
  return check;
}

void find_unseen(const InspectedHost& inspected, Check& check) {
  for (const PoolThere& pool : inspected.place.pools) {
    if (!pool.is_unseen) continue;
    check.evidence.push_back(fmt::format("pool {}: {}", pool.name, pool.unreadable));
    if (pool.forbidden) check.root_tells = "what pools lie on that only root may open";
    check.find(Verdict::NotKnown,
               fmt::format("pool {} lies elsewhere, on what can not be examined here", pool.name),
               "ask as a user who may open it",
               {"sudo perdure probe --doctor " + inspected.place.path});
  }
}

Check write_cache_of(const InspectedHost& inspected, const Storage& storage) {
  Check check{"write-cache"};
  const pmem::Medium& medium = storage.medium;
  const bool promises_nothing = storage.declared == PersistenceDomain::None;
  if (medium.kind != MediumKind::PageCache || promises_nothing) {
    check.find_nothing(promises_nothing ? "nothing is promised of what lies there"
                                        : "no disk is between a store and what keeps it",
                       medium.evidence.front());
    return check;
  }
  check.evidence.push_back(fmt::format(
      "mount options: {}", medium.mount_options.empty() ? "not listed" : medium.mount_options));
  for (const pmem::Drive& drive : medium.drives) {
    for (const pmem::MountAbove& mount : pmem::mounts_above(medium, drive))
      find_mount(storage, mount, check);
    find_write_cache(inspected, storage, drive, check);
  }
  if (medium.is_virtual && !medium.drives.empty()) {
    check.evidence.emplace_back(pmem::why_it_counts_as_virtual());
    check.find(
        Verdict::Advice,
        "these are drives of a virtual machine: what a flush of them is worth its host decides",
        "ask whoever runs the host whether it passes flushes on to drives that keep them "
        "(QEMU: any cache= but unsafe), or cut the host's power and look",
        {"perdure probe --certify PEER --pool SCRATCH --overwrite --power-cut arm --state FILE"});
  }
  return check;
}

}  // namespace

Check check_pool_file_system(const InspectedHost& inspected) {
  Check check{"pool-file-system"};
  for (const Storage& storage : inspected.storages())
    check.take(file_system_of(inspected, storage), storage.prefix());
  find_unseen(inspected, check);
  return check;
}

Check check_write_cache(const InspectedHost& inspected) {
  Check check{"write-cache"};
  for (const Storage& storage : inspected.storages())
    check.take(write_cache_of(inspected, storage), storage.prefix());
  find_unseen(inspected, check);
  return check;
}

Check check_declared_domain(const InspectedHost& inspected) {
  Check check{"declared-domain"};
  keep_power_supplies(inspected, check);
  if (!inspected.config.ok()) {
    const Error& error = inspected.config.error();
    check.evidence.push_back(error.message);
    if (error.code == ErrorCode::NotFound) {
      find_withdrawn(inspected, check);
      check.find(Verdict::NotApplicable,
                 "nothing is declared: perdured takes what it can see. A "
                 "battery or UPS is never detected, only declared");
    } else if (error.code == ErrorCode::InvalidArgument) {
      check.find(Verdict::Problem, "perdured refuses its configuration", "repair it",
                 {"perdured --config " + inspected.config_file + " --check-config"});
    } else {
      check.find(Verdict::NotKnown, "the configuration of perdured can not be read here",
                 "ask as a user who may read it",
                 {"sudo perdure probe --doctor --config " + inspected.config_file});
      check.root_tells = "what the configuration declares";
    }
    return check;
  }
  for (const Declaration& each : declarations(inspected)) find_declared(inspected, each, check);
  find_withdrawn(inspected, check);
  if (check.finding.empty()) {
    check.evidence.push_back(inspected.config_file + ": domain = \"auto\"");
    check.find(Verdict::Ok, "nothing beyond the evidence is declared");
  }
  return check;
}

}  // namespace perdure::host
