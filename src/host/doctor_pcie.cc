// The way from the RNIC to memory: where inbound DMA lands (DDIO), the IOMMU, the NUMA nodes.
#include <fmt/format.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <optional>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"

namespace perdure::host {
namespace {

// perfctrlsts of a PCIe root port of Skylake-SP and Cascade Lake (Intel Xeon datasheets, volume 2;
// the reading is that of librpma's tools/ddio.sh): inbound writes do not allocate in the cache if
// perfctrlsts_0 has bit 7 (Use_Allocating_Flow_Wr) clear and bit 3 (NoSnoopOpWrEn) clear and
// perfctrlsts_1 has bit 9 (TPHDIS) set. Ice Lake has these bits at the same place and ignores them.
constexpr std::size_t kPerfctrlsts0 = 0x180;
constexpr std::size_t kPerfctrlsts1 = 0x184;
constexpr unsigned kUseAllocatingFlowWr = 1U << 7;
constexpr unsigned kNoSnoopOpWrEn = 1U << 3;
constexpr unsigned kTphDisByte1 = 1U << 1;  // bit 9 of the register is bit 1 of its second byte
constexpr std::array<std::string_view, 4> kPortsWithTheRegister{"0x2030", "0x2031", "0x2032",
                                                                "0x2033"};

enum class DdioFound { Unreadable, OtherPort, On, Unclear, Off };

/// The first PCI function below the host bridge: /sys/devices/pci0000:17/0000:17:00.0.
std::string root_port_of(const std::string& pci) {
  const std::size_t bridge = pci.find("/pci");
  if (bridge == std::string::npos) return {};
  const std::size_t port = pci.find('/', bridge + 1);
  if (port == std::string::npos) return {};
  return pci.substr(0, pci.find('/', port + 1));
}

unsigned byte_of(const Reading& config, std::size_t at) {
  return static_cast<unsigned char>(config.text[at]);
}

DdioFound read_ddio(const SystemTree& tree, const std::string& port, Check& check) {
  const Reading device = check.keep(tree.read(port + "/device"));
  const std::string vendor = tree.read(port + "/vendor").text;
  const bool known =
      vendor == "0x8086" && std::find(kPortsWithTheRegister.begin(), kPortsWithTheRegister.end(),
                                      device.text) != kPortsWithTheRegister.end();
  if (!known) return DdioFound::OtherPort;
  const Reading config = tree.read_bytes(port + "/config");
  if (!config.read() || config.text.size() < kPerfctrlsts1 + 4) {
    check.evidence.push_back(
        fmt::format("{}/config: {} bytes can be read, the register is at {:#x}", port,
                    config.text.size(), kPerfctrlsts0));
    return DdioFound::Unreadable;
  }
  const unsigned low = byte_of(config, kPerfctrlsts0);
  const unsigned high = byte_of(config, kPerfctrlsts1 + 1);
  check.evidence.push_back(
      fmt::format("{}/config: 180.b is {:02x}, 185.b is {:02x}", port, low, high));
  if ((low & kUseAllocatingFlowWr) != 0) return DdioFound::On;
  const bool off = (low & kNoSnoopOpWrEn) == 0 && (high & kTphDisByte1) != 0;
  return off ? DdioFound::Off : DdioFound::Unclear;
}

/// Whether the configuration says so, for all pools or for one.
bool is_ddio_declared_off(const InspectedHost& inspected) {
  const server::Config config = inspected.settings();
  return config.service.settings.ddio == Ddio::Off ||
         std::any_of(config.service.settings_by_pool.begin(), config.service.settings_by_pool.end(),
                     [](const auto& pool) { return pool.second.ddio == Ddio::Off; });
}

void find_unknown_ddio(const InspectedHost& inspected, const std::string& device, Check& check) {
  const bool declared_off = is_ddio_declared_off(inspected);
  check.find(Verdict::NotKnown,
             fmt::format("{}: whether DDIO is on can not be read, which counts as on{}", device,
                         declared_off ? "; yet ddio = \"off\" is declared, and is believed" : ""),
             "ask the firmware's set-up or the vendor. Declare ddio = \"off\" in [profile] only "
             "when you know it",
             {"lspci -vt", "sudo setpci -s ROOT_PORT 180.b"});
}

void find_ddio(const InspectedHost& inspected, const RdmaDevice& device, const std::string& port,
               Check& check) {
  const DdioFound found = read_ddio(inspected.tree, port, check);
  const std::string name = last_name(port);
  const bool declared_off = is_ddio_declared_off(inspected);
  if (found == DdioFound::Unreadable) {
    check.root_tells = "the register of the root port, which only root may read";
  }
  if (found != DdioFound::On && found != DdioFound::Off) {
    return find_unknown_ddio(inspected, device.name, check);
  }
  if (found == DdioFound::On && declared_off) {
    return check.find(
        Verdict::Problem,
        fmt::format("ddio = \"off\" is declared, but {} of {} has it on: data that is reported "
                    "durable can be lost",
                    name, device.name),
        "declare ddio = \"on\", or switch it off at that port; the register is back at every boot",
        {fmt::format("setpci -s {} 180.b=00:88", name),
         fmt::format("setpci -s {} 184.w=0200:0200", name)});
  }
  if (found == DdioFound::Off) {
    return check.find(Verdict::Ok, fmt::format("{}: off at {}{}", device.name, name,
                                               declared_off ? ", as declared"
                                                            : "; you may declare ddio = \"off\""));
  }
  if (inspected.domains().contains(PersistenceDomain::Dmp)) {
    return check.find(Verdict::Advice,
                      fmt::format("{}: on at {}, and the domain is dmp: one-sided methods are not "
                                  "durable, so every record goes through this processor",
                                  device.name, name),
                      "measure whether that costs you anything before you switch it off",
                      {"perdure plan --domain dmp --ddio on --transport roce",
                       "perdure plan --domain dmp --ddio off --transport roce"});
  }
  check.find(Verdict::Ok, fmt::format("{}: on at {}, which does not matter to the domain {}",
                                      device.name, name, domain_words(inspected)));
}

void find_iommu(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  const std::vector<std::string> ask{"cat /proc/cmdline", "dmesg | grep -i iommu"};
  if (device.pci.empty()) {
    check.evidence.push_back(device.name + ": its PCI function is not in /sys");
    return check.find(Verdict::NotKnown, device.name + ": its IOMMU can not be found",
                      "look what the kernel was told and said", ask);
  }
  const Reading type = check.keep(inspected.tree.read(device.pci + "/iommu_group/type"));
  if (type.text == "identity") {
    return check.find(Verdict::Ok, device.name + ": addresses are passed through (identity)");
  }
  if (type.text == "DMA" || type.text == "DMA-FQ") {
    return check.find(
        Verdict::Advice,
        fmt::format("{}: the IOMMU translates every address ({})", device.name, type.text),
        "measure with the kernel option iommu=pt. It gives up the protection from "
        "that device",
        {"cat " + device.pci + "/iommu_group/type", "perdure bench limits"});
  }
  if (type.absent() && !inspected.tree.exists(device.pci + "/iommu_group")) {
    return check.find(Verdict::Ok, device.name + ": no IOMMU is between it and memory");
  }
  check.find(Verdict::NotKnown, device.name + ": the mode of its IOMMU can not be read",
             "look what the kernel was told and said", ask);
}

/// The nearest answer on the way from a device up to the bus it hangs on; "-1" is none.
std::optional<std::string> node_of(const SystemTree& tree, std::string device, Check& check) {
  constexpr int kLevelsMax = 32;
  for (int level = 0; level < kLevelsMax && device.size() > 1; ++level) {
    const Reading node = tree.read(device + "/numa_node");
    if (node.number()) return check.keep(node).text;
    const std::size_t up = device.rfind('/');
    if (up == std::string::npos) break;
    device.erase(up);
  }
  return std::nullopt;
}

std::string pool_device(const InspectedHost& inspected, const Storage& storage) {
  const char* kind = storage.medium.is_device ? "char" : "block";
  return inspected.tree.resolve(
      fmt::format("/sys/dev/{}/{}:{}", kind, major(storage.device), minor(storage.device)));
}

void find_numa(const InspectedHost& inspected, const RdmaDevice& device, const Storage& storage,
               Check& check) {
  const auto pool = node_of(inspected.tree, pool_device(inspected, storage), check);
  const auto rnic = node_of(inspected.tree, device.pci, check);
  if (!pool || !rnic) {
    return check.find(
        Verdict::NotKnown,
        fmt::format("the kernel names no NUMA node for {}", pool ? device.name : "the pool"),
        "find the slots in the machine's manual, and bind perdured to the RNIC's node",
        {"lstopo-no-graphics", "numactl --hardware"});
  }
  if (*pool != *rnic) {
    return check.find(
        Verdict::Advice,
        fmt::format("{} is on node {}, the pool on node {}: every record crosses between the "
                    "sockets",
                    device.name, *rnic, *pool),
        "use memory and RNIC of one socket, and bind perdured there",
        {fmt::format("numactl --cpunodebind={} perdured --pools {}", *rnic, inspected.place.path)});
  }
  check.find(Verdict::Ok, fmt::format("{} and the pool are on node {}", device.name, *rnic));
}

}  // namespace

Check check_ddio(const InspectedHost& inspected) {
  Check check{"ddio"};
  const auto devices = hardware_rnics(inspected.tree);
  if (!devices.empty() && find_unread_config(inspected, check)) return check;
  for (const RdmaDevice& device : devices) {
    const std::string port = root_port_of(device.pci);
    if (port.empty()) {
      check.evidence.push_back(device.name + ": its PCIe root port is not in /sys");
      find_unknown_ddio(inspected, device.name, check);
    } else {
      find_ddio(inspected, device, port, check);
    }
  }
  if (!devices.empty() && is_ddio_declared_off(inspected)) {
    check.evidence.emplace_back(
        "read fencing: a READ has to push out the writes before it, which firmware can switch off; "
        "no file tells: ask the machine's vendor, and cut its power (perdure probe --certify "
        "--power-cut)");
  }
  check.find_nothing("no RNIC: over tcp and shm this processor stores the bytes", kNoRdmaDevice);
  return check;
}

Check check_iommu(const InspectedHost& inspected) {
  Check check{"iommu"};
  for (const RdmaDevice& device : hardware_rnics(inspected.tree))
    find_iommu(inspected, device, check);
  check.find_nothing("no RNIC", kNoRdmaDevice);
  return check;
}

Check check_numa(const InspectedHost& inspected) {
  Check check{"numa"};
  const Reading online = check.keep(inspected.tree.read("/sys/devices/system/node/online"));
  if (online.absent() || online.text == "0") {
    check.find(Verdict::NotApplicable, "one NUMA node");
    return check;
  }
  for (const RdmaDevice& device : hardware_rnics(inspected.tree)) {
    for (const Storage& storage : inspected.storages()) {
      Check part{check.name};
      find_numa(inspected, device, storage, part);
      check.take(part, storage.prefix());
    }
  }
  check.find_nothing("no RNIC", kNoRdmaDevice);
  return check;
}

}  // namespace perdure::host
