// Whether WRITEs of one connection are placed in the order of posting: what the bus allows, and
// what nobody but the network's operator knows.
#include <fmt/format.h>

#include <optional>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"

namespace perdure::host {
namespace {

// PCI Express base specification: the list of capabilities begins at the byte that 34h names; of
// each the first byte is its number and the second the place of the next one (section 7.5.1.1.11).
// Number 10h is PCI Express itself, with Device Control at 8h; its bit 4, Enable Relaxed Ordering,
// permits the function to send writes that may pass others (7.5.3.4).
constexpr std::size_t kCapabilitiesPointer = 0x34;
constexpr std::size_t kFirstCapability = 0x40;
constexpr unsigned kPciExpress = 0x10;
constexpr std::size_t kDeviceControl = 8;
constexpr unsigned kEnableRelaxedOrdering = 1U << 4;
constexpr int kCapabilitiesMax = 48;  // of 4 bytes, in 192

/// Whether the function may send relaxed writes; nothing where that can not be read.
std::optional<bool> may_relax(const std::string& config) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(config[at]); };
  if (config.size() <= kCapabilitiesPointer) return std::nullopt;
  std::size_t at = byte(kCapabilitiesPointer) & ~std::size_t{3};
  for (int steps = 0; steps < kCapabilitiesMax; ++steps) {
    if (at < kFirstCapability || at + kDeviceControl + 2 > config.size()) return std::nullopt;
    if (byte(at) == kPciExpress) return (byte(at + kDeviceControl) & kEnableRelaxedOrdering) != 0;
    at = byte(at + 1) & ~std::size_t{3};
  }
  return std::nullopt;
}

bool is_declared_ordered(const InspectedHost& inspected) {
  return is_any_declared(inspected, [](const server::PoolSettings& settings) {
    return settings.write_order == WriteOrder::Ordered;
  });
}

std::string bus_words(const std::optional<bool>& relaxes) {
  if (!relaxes) return "whether the PCIe bus keeps it can not be read";
  return *relaxes ? "the PCIe bus may relax it" : "the PCIe bus keeps it";
}

void find_order(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  std::optional<bool> relaxes;
  // A virtual function reads 0 there whatever the physical one does (RsvdP in VFs: Linux,
  // pci_configure_relaxed_ordering); and a guest may have been given one, or a device made up.
  const std::string physical = device.pci + "/physfn";
  const std::string function = inspected.tree.exists(physical) ? physical : device.pci;
  if (!device.pci.empty()) {
    const Reading config = inspected.tree.read_bytes(function + "/config");
    if (config.read()) relaxes = may_relax(config.text);
    const bool guest =
        inspected.tree.read("/proc/cpuinfo").text.find(" hypervisor") != std::string::npos;
    if (guest && relaxes == false) relaxes.reset();
    if (!relaxes) check.root_tells = "Device Control of the RNIC, which only root may read";
  }
  check.evidence.push_back(fmt::format("{}: Enable Relaxed Ordering in Device Control is {}",
                                       device.name,
                                       relaxes ? (*relaxes ? "1" : "0") : "not readable"));
  check.evidence.push_back(device.name +
                           ": no file says whether switches route adaptively or RNICs repeat "
                           "selectively");
  if (!is_declared_ordered(inspected)) {
    return check.find(Verdict::Ok,
                      fmt::format("{}: {}, and nothing is known of the network: methods count on "
                                  "no order of WRITEs",
                                  device.name, bus_words(relaxes)));
  }
  check.find(Verdict::NotKnown,
             fmt::format("{}: write_order = \"ordered\" is declared, and is believed; {}",
                         device.name, bus_words(relaxes)),
             "keep the declaration only if no switch on the way routes adaptively, and the RNIC is "
             "not set to relax what it is not asked to (mlx5: PCI_WR_ORDERING must be per_mkey)",
             {fmt::format("sudo mlxconfig -d {} query PCI_WR_ORDERING",
                          device.pci.empty() ? "DEVICE" : last_name(device.pci)),
              fmt::format("sudo setpci -s {} CAP_EXP+8.w",
                          device.pci.empty() ? "DEVICE" : last_name(device.pci))});
}

}  // namespace

Check check_write_order(const InspectedHost& inspected) {
  Check check{"write-order"};
  const auto devices = hardware_rnics(inspected.tree);
  if (!devices.empty() && find_unread_config(inspected, check)) return check;
  for (const RdmaDevice& device : devices) find_order(inspected, device, check);
  check.find_nothing("no RNIC: over tcp and shm this processor stores the bytes, in order",
                     kNoRdmaDevice);
  return check;
}

}  // namespace perdure::host
