// Memory that survives: NVDIMM regions, namespaces and modules (kernel documentation, driver-api/
// nvdimm and ABI/testing/sysfs-bus-nfit), and CXL memory (ABI/testing/sysfs-bus-cxl).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"
#include "pmem/bad_blocks.h"
#include "pmem/medium.h"

namespace perdure::host {
namespace {

constexpr char kNvdimmBus[] = "/sys/bus/nd/devices";
constexpr char kCxlBus[] = "/sys/bus/cxl/devices";

std::string nothing_at(const char* bus) {
  return fmt::format("{}: has none, or is not there", bus);
}

/// The devices of a bus whose name is `kind` and a digit.
std::vector<std::string> devices_of(const InspectedHost& inspected, const char* bus,
                                    std::string_view kind) {
  std::vector<std::string> found;
  for (const std::string& name : inspected.tree.names(bus)) {
    const bool matches = name.size() > kind.size() && name.compare(0, kind.size(), kind) == 0 &&
                         name[kind.size()] >= '0' && name[kind.size()] <= '9';
    if (matches) found.push_back(name);
  }
  return found;
}

void find_domain(const std::string& region, const Reading& word, Check& check) {
  if (word.text == "cpu_cache") {
    return check.find(Verdict::Ok, region + ": caches are flushed at power failure (mhp)");
  }
  if (word.text == "memory_controller") {
    return check.find(Verdict::Ok, region +
                                       ": the memory controller is flushed at power failure "
                                       "(dmp), caches are not");
  }
  check.find(Verdict::NotKnown,
             region + ": the platform does not say what it flushes at power failure",
             "find it in the machine's manual, or in the ACPI table NFIT (platform capabilities), "
             "and declare domain = \"dmp\" or \"mhp\" in [profile]",
             {"ndctl list -R", "acpidump -n NFIT -b && iasl -d nfit.dat"});
}

void find_namespace(const std::string& name, const Reading& mode, bool has_rnics, Check& check) {
  const std::string repair = fmt::format("ndctl create-namespace -f -e {} -m devdax", name);
  if (mode.text == "dax") return check.find(Verdict::Ok, name + " is device DAX");
  if (mode.text == "memory" && has_rnics) {
    return check.find(Verdict::Advice,
                      name +
                          " is file system DAX (fsdax): an RNIC serves a pool there only if it "
                          "pages on demand",
                      "for pools under an RNIC make it devdax, which destroys what is on it; or "
                      "serve them over tcp",
                      {repair});
  }
  if (mode.text == "memory") {
    return check.find(Verdict::Ok, name + " is file system DAX (fsdax)");
  }
  if (mode.text == "raw" || mode.text == "safe") {
    return check.find(Verdict::Advice,
                      fmt::format("{} is {}: it can not be mapped with DAX", name,
                                  mode.text == "raw" ? "raw" : "a sector namespace"),
                      "make it devdax, or fsdax for a file system. This destroys what is on it",
                      {repair});
  }
  check.find(Verdict::NotKnown, name + " does not say its mode", "ask ndctl", {"ndctl list -N"});
}

/// The flags of an NVDIMM that mean that data was or will be lost (ACPI 6.2, section 5.2.25.3).
/// "smart_notify" only says that events can be had.
void find_flags(const std::string& name, const Reading& flags, Check& check) {
  constexpr std::array<std::string_view, 5> kBad{"save_fail", "restore_fail", "flush_fail",
                                                 "not_armed", "map_fail"};
  for (const std::string& flag : words_of(flags.text)) {
    if (std::find(kBad.begin(), kBad.end(), flag) != kBad.end()) {
      check.find(Verdict::Problem,
                 fmt::format("{} reports {}: its content was not or will not be kept", name, flag),
                 "take its pools out of service, verify them against other replicas, and replace "
                 "the module or its energy source",
                 {"ndctl list -DH -d " + name, "perdure log verify --help"});
    } else if (flag == "smart_event") {
      check.find(Verdict::Advice, name + " reports a health event", "read it",
                 {"ndctl list -DH -d " + name});
    }
  }
  check.find(Verdict::Ok, "no module reports that it lost or will lose data");
}

void find_dirty_shutdowns(const std::string& name, const Reading& count, Check& check) {
  check.keep(count);
  if (!count.number()) {
    return check.find(Verdict::NotKnown, name + ": its count of dirty shutdowns makes no sense",
                      "ask ndctl", {"ndctl list -DH -d " + name});
  }
  if (*count.number() == 0) return;
  check.find(Verdict::Advice,
             fmt::format("{} counts {} power failures at which it may not have kept everything",
                         name, *count.number()),
             "remember the number; if it grew with the last power failure, verify the pools before "
             "they are used",
             {"perdure log verify --help", "ndctl list -DH -d " + name});
}

void find_module(const InspectedHost& inspected, const std::string& name, Check& check) {
  const std::string at = fmt::format("{}/{}", kNvdimmBus, name);
  bool says_anything = false;
  for (const char* family : {"/nfit", "/papr"}) {
    const Reading flags = inspected.tree.read(at + family + "/flags");
    if (flags.absent()) continue;
    says_anything = true;
    check.keep(flags);
    if (flags.read()) {
      find_flags(name, flags, check);
    } else {
      check.find(Verdict::NotKnown, name + ": its flags can not be read", "ask ndctl",
                 {"ndctl list -DH -d " + name});
    }
  }
  for (const char* family : {"/nfit", "/cxl"}) {
    const Reading count = inspected.tree.read(at + family + "/dirty_shutdown");
    if (count.absent()) continue;
    says_anything = true;
    find_dirty_shutdowns(name, count, check);
  }
  if (says_anything) return check.find(Verdict::Ok, "no module reports that it lost data");
  check.evidence.push_back(at + ": has neither flags nor a count of dirty shutdowns");
  check.find(Verdict::NotKnown, name + " says nothing of its health", "ask ndctl, or its vendor",
             {"ndctl list -DH -d " + name});
}

/// The kernel from which CXL devices are armed for GPF (Linux 6.15, merge cxl-for-6.15).
bool kernel_knows_gpf(const Reading& release) {
  int major = 0;
  int minor = 0;
  if (std::sscanf(release.text.c_str(), "%d.%d", &major, &minor) != 2) return false;
  return major > 6 || (major == 6 && minor >= 15);
}

/// Sizes of CXL memory are hexadecimal, "0x0" when there is none.
std::optional<bool> has_capacity(const Reading& size) {
  if (!size.read() || size.text.rfind("0x", 0) != 0) return std::nullopt;
  return size.text.find_first_not_of('0', 2) != std::string::npos;
}

/// A serial number: memX/serial has it in hexadecimal, nmemX/cxl/id in decimal, which some kernels
/// print with a sign (ABI/testing/sysfs-bus-cxl and sysfs-bus-nvdimm). 0: the device has none.
std::optional<std::uint64_t> serial_in(const Reading& reading) {
  if (!reading.read()) return std::nullopt;
  std::string_view digits = reading.text;
  const bool hexadecimal = digits.substr(0, 2) == "0x";
  const bool negative = !hexadecimal && digits.substr(0, 1) == "-";
  digits.remove_prefix(hexadecimal ? 2 : (negative ? 1 : 0));
  std::uint64_t serial = 0;
  const char* const end = digits.data() + digits.size();
  const auto parsed = std::from_chars(digits.data(), end, serial, hexadecimal ? 16 : 10);
  if (parsed.ec != std::errc{} || parsed.ptr != end || serial == 0) return std::nullopt;
  return negative ? ~serial + 1 : serial;
}

/// The files that have the same serial number as `wanted`, one in each device of a kind.
std::vector<std::string> with_serial(const InspectedHost& inspected, const char* bus,
                                     std::string_view kind, const char* file,
                                     std::uint64_t wanted) {
  std::vector<std::string> found;
  for (const std::string& name : devices_of(inspected, bus, kind)) {
    const std::string path = fmt::format("{}/{}/{}", bus, name, file);
    if (serial_in(inspected.tree.read(path)) == wanted) found.push_back(path);
  }
  return found;
}

/// Whether the NVDIMM of this very CXL device counts dirty shutdowns. The kernel shows the count
/// only for a device with the GPF capability (commit "cxl/pmem: Export dirty shutdown count via
/// sysfs"). No, where it is not certain which NVDIMM that is.
bool counts_dirty_shutdowns(const InspectedHost& inspected, const std::string& name, Check& check) {
  const auto serial =
      serial_in(check.keep(inspected.tree.read(fmt::format("{}/{}/serial", kCxlBus, name))));
  if (!serial) return false;
  const auto ids = with_serial(inspected, kNvdimmBus, "nmem", "cxl/id", *serial);
  const bool certain =
      ids.size() == 1 && with_serial(inspected, kCxlBus, "mem", "serial", *serial).size() == 1;
  if (!certain) return false;
  check.keep(inspected.tree.read(ids.front()));
  const std::string group = ids.front().substr(0, ids.front().rfind('/'));
  return !check.keep(inspected.tree.read(group + "/dirty_shutdown")).absent();
}

void find_cxl_device(const InspectedHost& inspected, const std::string& name, bool gpf,
                     Check& check) {
  const std::string at = fmt::format("{}/{}", kCxlBus, name);
  const auto persistent = has_capacity(check.keep(inspected.tree.read(at + "/pmem/size")));
  check.keep(inspected.tree.read(at + "/ram/size"));
  const std::vector<std::string> ask{"cxl list -M -H -m " + name};
  if (!persistent) {
    return check.find(Verdict::NotKnown, name + " does not say how much of it is persistent",
                      "ask cxl-cli", ask);
  }
  if (!*persistent) {
    return check.find(Verdict::Ok, name + " is volatile: to Perdure it is like other memory");
  }
  if (gpf) {
    return check.find(Verdict::Ok,
                      name +
                          " is persistent and takes part in global persistent flush; whether "
                          "the platform flushes its caches first is in its manual (mhp) or not "
                          "(dmp)");
  }
  check.find(Verdict::Advice,
             name +
                 " is persistent, but no file says that it takes part in global persistent "
                 "flush (GPF)",
             "use Linux 6.15 or later, which arms GPF and counts dirty shutdowns; declare mhp only "
             "if the platform's manual promises GPF, dmp otherwise",
             ask);
}

}  // namespace

Check check_persistence_domain(const InspectedHost& inspected) {
  Check check{"persistence-domain"};
  std::vector<std::string> words;
  for (const std::string& region : devices_of(inspected, kNvdimmBus, "region")) {
    const Reading word = check.keep(
        inspected.tree.read(fmt::format("{}/{}/persistence_domain", kNvdimmBus, region)));
    const Reading type = inspected.tree.read(fmt::format("{}/{}/devtype", kNvdimmBus, region));
    if (type.text == "nd_volatile") {
      check.keep(type);
      check.find(Verdict::Advice,
                 region + " is volatile memory, whatever it says of its persistence domain",
                 "make no pool there: a power failure empties it", {"ndctl list -R -r " + region});
      continue;
    }
    words.push_back(word.text);
    find_domain(region, word, check);
  }
  if (check.evidence.empty()) {
    check.find_nothing("no NVDIMM region", nothing_at(kNvdimmBus));
  } else if (std::adjacent_find(words.begin(), words.end(), std::not_equal_to<>()) != words.end()) {
    check.find(Verdict::Advice,
               "the regions differ: what a pool survives is decided by the region that it lies on, "
               "the weakest where one file system has drives on several",
               "see on which region each pool lies, and move those that need the stronger one",
               {"ndctl list -RN", "perdure probe " + inspected.place.path});
  }
  if (inspected.place.medium.is_virtual && !words.empty()) {
    check.evidence.emplace_back(pmem::why_it_counts_as_virtual());
    check.find(Verdict::Advice,
               "these are NVDIMMs of a virtual machine: what they survive is what their hypervisor "
               "was told, and Perdure takes them for none until it is declared",
               "ask whoever runs the host what is behind them, and declare that in [profile]",
               {"ndctl list -R"});
  }
  return check;
}

Check check_deep_flush(const InspectedHost& inspected) {
  Check check{"deep-flush"};
  for (const std::string& region : devices_of(inspected, kNvdimmBus, "region")) {
    const Reading word =
        check.keep(inspected.tree.read(fmt::format("{}/{}/deep_flush", kNvdimmBus, region)));
    if (word.text == "1") {
      check.find(Verdict::Ok, region + ": write-pending queues can be flushed on demand");
    } else if (word.text == "0") {
      check.find(Verdict::Advice,
                 region +
                     ": write-pending queues can not be flushed on demand; durability rests "
                     "on what the platform flushes by itself",
                 "nothing can be set; let a power cut test show that the platform keeps its word",
                 {"ndctl list -R -r " + region});
    } else {
      check.find(Verdict::NotKnown, region + ": does not say whether it can be flushed on demand",
                 "ask ndctl", {"ndctl list -R -r " + region});
    }
  }
  check.find_nothing("no NVDIMM region", nothing_at(kNvdimmBus));
  return check;
}

Check check_namespaces(const InspectedHost& inspected) {
  Check check{"namespaces"};
  const bool has_rnics = !rdma_devices(inspected.tree).empty();
  for (const std::string& name : devices_of(inspected, kNvdimmBus, "namespace")) {
    const std::string at = fmt::format("{}/{}", kNvdimmBus, name);
    if (inspected.tree.read(at + "/size").text == "0") continue;  // a seed for the next one
    find_namespace(name, check.keep(inspected.tree.read(at + "/mode")), has_rnics, check);
  }
  check.find_nothing("no namespace", nothing_at(kNvdimmBus));
  return check;
}

Check check_nvdimm_health(const InspectedHost& inspected) {
  Check check{"nvdimm-health"};
  for (const std::string& name : devices_of(inspected, kNvdimmBus, "nmem")) {
    find_module(inspected, name, check);
  }
  check.find_nothing("no NVDIMM", nothing_at(kNvdimmBus));
  return check;
}

Check check_bad_blocks(const InspectedHost& inspected) {
  Check check{"bad-blocks"};
  for (const std::string& region : devices_of(inspected, kNvdimmBus, "region")) {
    const Reading list =
        check.keep(inspected.tree.read(fmt::format("{}/{}/badblocks", kNvdimmBus, region)));
    if (!list.read()) {
      check.find(Verdict::NotKnown, region + " does not say which of its blocks are bad",
                 "ask ndctl", {"ndctl list -R -M"});
      continue;
    }
    std::uint64_t bytes = 0;
    for (const pmem::Range& bad : pmem::parse_bad_blocks(list.text)) bytes += bad.length;
    if (bytes == 0) {
      check.find(Verdict::Ok, "no region has lost bytes that the kernel knows of");
      continue;
    }
    check.find(
        Verdict::Problem,
        fmt::format("{} has lost {} bytes; a pool that has some of them is not opened", region,
                    bytes),
        "find the pool that has them, clear them, which empties them, make the pool anew, and "
        "repair it from another replica",
        {"ndctl list -R -M", "ndctl clear-errors NAMESPACE", "perdure log repair --help"});
  }
  if (check.evidence.empty()) check.find_nothing("no NVDIMM region", nothing_at(kNvdimmBus));
  return check;
}

Check check_cxl_memory(const InspectedHost& inspected) {
  Check check{"cxl-memory"};
  const auto devices = devices_of(inspected, kCxlBus, "mem");
  if (devices.empty()) {
    check.find_nothing("no CXL memory", nothing_at(kCxlBus));
    return check;
  }
  const bool kernel =
      kernel_knows_gpf(check.keep(inspected.tree.read("/proc/sys/kernel/osrelease")));
  for (const std::string& name : devices) {
    const bool gpf = counts_dirty_shutdowns(inspected, name, check) && kernel;
    find_cxl_device(inspected, name, gpf, check);
  }
  return check;
}

}  // namespace perdure::host
