// probe: what this machine is as a responder, axis by axis, each with the reasons for it.
#include "pmem/probe.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>

#include "core/bytes.h"
#include "core/try.h"
#include "pmem/cache_flush.h"
#include "pmem/file.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace perdure::pmem {
namespace {

namespace fs = std::filesystem;

// CPUID leaf 0 spells the vendor in EBX, EDX, ECX.
std::string processor_vendor() {
#if defined(__x86_64__)
  unsigned a = 0;
  std::array<unsigned, 3> text{};
  if (__get_cpuid(0, &a, &text[0], &text[2], &text[1]) != 0)
    return {reinterpret_cast<const char*>(text.data()), sizeof text};
#endif
  return "not an x86 processor";
}

// The medium below a directory: that of a file in it, as far as one can be opened there.
Result<Medium> examine_directory(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (descriptor >= 0) return examine_medium(File(descriptor, path, false));
  const int reason = errno;
  PERDURE_TRY(medium, examine_file_system(path));
  if (medium.kind == MediumKind::PageCache)
    medium.evidence.push_back(fmt::format(
        "whether it is DAX could not be tried ({}): taken for a page cache",
        reason == EACCES || reason == EROFS ? "no permission to write" : "no unnamed files here"));
  return medium;
}

Result<Medium> examine(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) return examine_directory(path);
  PERDURE_TRY(file, open_file(path, OpenMode::ReadOnly));
  return examine_medium(file);
}

ProbedAxis granularity_axis(const Medium& medium) {
  if (medium.kind == MediumKind::PageCache)
    return {"granularity", "page", {"made durable page by page, with msync or fdatasync"}};
  if (medium.platform == PlatformDomain::CpuCache)
    return {"granularity", "byte", {"caches are inside the platform's persistence domain"}};
  return {"granularity",
          "cache line",
          {fmt::format("stores reach the memory itself, in lines of {} bytes", kCacheLineBytes)}};
}

ProbedAxis ddio_axis() {
  const std::string vendor = processor_vendor();
  ProbedAxis axis{"ddio", std::string(to_string(Ddio::On)), {}};
  axis.evidence.emplace_back(
      "not known, and unknown counts as on: it is set per PCIe root port, in registers that have "
      "no common interface");
  if (vendor == "GenuineIntel")
    axis.evidence.emplace_back(
        "GenuineIntel: inbound DMA goes to the last-level cache by default on Xeon processors");
  else
    axis.evidence.push_back(fmt::format("processor: {}", vendor));
  axis.evidence.emplace_back("remedy: declare ddio = \"off\" if the firmware has it switched off");
  return axis;
}

std::string first_line_of(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// The nearest answer on the way from a device up to the bus it hangs on.
std::string numa_node_of(dev_t device, bool is_character_device) {
  constexpr int kLevelsMax = 32;
  std::error_code ignored;
  fs::path at =
      fs::canonical(fmt::format("/sys/dev/{}/{}:{}", is_character_device ? "char" : "block",
                                major(device), minor(device)),
                    ignored);
  for (int level = 0; level < kLevelsMax && at.has_relative_path(); ++level) {
    std::string node = first_line_of(at / "numa_node");
    if (!node.empty() && node != "-1") return node;
    at = at.parent_path();
  }
  return {};
}

ProbedAxis numa_axis(const struct stat& status) {
  const std::string online = first_line_of("/sys/devices/system/node/online");
  const bool is_device = S_ISCHR(status.st_mode);
  const std::string node = numa_node_of(is_device ? status.st_rdev : status.st_dev, is_device);
  ProbedAxis axis{"numa", node.empty() ? "unknown" : "node " + node, {}};
  if (node.empty() && online == "0") axis.value = "node 0";
  axis.evidence.push_back(fmt::format("nodes of this machine: {}", online.empty() ? "?" : online));
  if (node.empty()) axis.evidence.emplace_back("the kernel names no node for this device");
  return axis;
}

ProbedAxis space_axis(const std::string& path, const struct stat& status) {
  struct statvfs space {};
  if (S_ISCHR(status.st_mode) || ::statvfs(path.c_str(), &space) != 0)
    return {"free space", "unknown", {"not a file system"}};
  const std::uint64_t bytes = std::uint64_t{space.f_bavail} * space.f_frsize;
  return {"free space", fmt::format("{} MiB", bytes >> 20), {"statvfs, for this user"}};
}

}  // namespace

ProbedAxis domain_axis(const Medium& medium) {
  ProbedAxis axis{"persistence domain", std::string(to_string(medium.found)), medium.evidence};
  if (medium.is_virtual && medium.kind == MediumKind::PageCache)
    axis.evidence.push_back(std::string(why_it_counts_as_virtual()) +
                            ": what its medium survives is decided by the host");
  if (medium.kind == MediumKind::Dram)
    axis.evidence.emplace_back("remedy: declare dmp, mhp or wsp if a battery keeps this memory");
  if (medium.found == PersistenceDomain::None && !medium.never_lasts.empty()) {
    axis.evidence.push_back(medium.never_lasts);
    axis.evidence.push_back("remedy: " + medium.remedy);
    return axis;
  }
  if (medium.kind == MediumKind::PageCache && medium.found == PersistenceDomain::None)
    axis.evidence.emplace_back("remedy: declare page if you know that fsync lasts there");
  if (medium.kind == MediumKind::Dax && medium.found == PersistenceDomain::None)
    axis.evidence.emplace_back("remedy: declare dmp, mhp or wsp as the machine's manual says");
  return axis;
}

ProbedAxis flush_axis(FlushInstruction best) {
  ProbedAxis axis{"flush instruction", std::string(to_string(best)), {}};
  if (best == FlushInstruction::None) {
    axis.evidence.emplace_back("without one, dmp is not possible; page, mhp, wsp and none are");
  } else {
    axis.evidence.emplace_back("the best that CPUID reports");
  }
  return axis;
}

const ProbedAxis* ProbeReport::find(std::string_view axis) const {
  const auto found = std::find_if(axes.begin(), axes.end(),
                                  [&](const ProbedAxis& each) { return each.axis == axis; });
  return found == axes.end() ? nullptr : &*found;
}

Result<ProbeReport> probe(const std::string& path) {
  PERDURE_TRY(medium, examine(path));
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0)
    return Error{ErrorCode::NotFound, fmt::format("{}: is gone", path)};

  ProbeReport report;
  report.domain = medium.found;
  report.axes.push_back(domain_axis(medium));
  report.axes.push_back({"file system", medium.file_system, {"statfs"}});
  report.axes.push_back(granularity_axis(medium));
  report.axes.push_back(flush_axis(best_flush_instruction()));
  report.axes.push_back(ddio_axis());
  report.axes.push_back(numa_axis(status));
  report.axes.push_back(space_axis(path, status));
  report.medium = std::move(medium);
  return report;
}

}  // namespace perdure::pmem
