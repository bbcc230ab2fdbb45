// The RDMA devices of a machine as /sys/class/infiniband describes them.
#include "host/rdma_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace perdure::host {
namespace {

constexpr char kClass[] = "/sys/class/infiniband";

// The descriptions that the two software drivers give themselves (Linux, rxe_verbs.c and
// uapi/rdma/siw-abi.h). An RNIC's description is the host's name, or whatever it was set to.
std::string software_of(const Reading& description) {
  if (description.text == "rxe") return "rxe";
  if (description.text.rfind("Software iWARP", 0) == 0) return "siw";
  return {};
}

// node_type is "1: CA", "4: RNIC" and so on (same documentation).
RdmaKind kind_of(const std::string& driver, const Reading& node_type, const Reading& link_layer) {
  if (driver == "efa") return RdmaKind::Srd;
  if (node_type.text.rfind("4:", 0) == 0) return RdmaKind::Iwarp;
  if (link_layer.text == "InfiniBand") return RdmaKind::InfiniBand;
  if (link_layer.text == "Ethernet") return RdmaKind::Roce;
  return RdmaKind::Unknown;
}

std::string net_device_of(const SystemTree& tree, const std::string& device,
                          const std::string& port) {
  for (const std::string& index : tree.names(port + "/gid_attrs/ndevs")) {
    const Reading name = tree.read(fmt::format("{}/gid_attrs/ndevs/{}", port, index));
    if (name.read() && !name.text.empty()) return name.text;
  }
  const auto beside = tree.names(device + "/device/net");
  return beside.empty() ? std::string() : beside.front();
}

RdmaDevice read_device(const SystemTree& tree, const std::string& name) {
  const std::string path = fmt::format("{}/{}", kClass, name);
  RdmaDevice device;
  device.name = name;
  device.software = software_of(tree.read(path + "/node_desc"));
  // rxe and siw show the function of the network device that they use.
  const bool hardware = device.software.empty();
  if (hardware) device.pci = tree.resolve(path + "/device");
  if (hardware) device.driver = last_name(tree.resolve(path + "/device/driver"));
  device.firmware = tree.read(path + "/fw_ver");
  const Reading node_type = tree.read(path + "/node_type");
  for (const std::string& number : tree.names(path + "/ports")) {
    RdmaPort port;
    port.name = fmt::format("{}/{}", name, number);
    port.path = fmt::format("{}/ports/{}", path, number);
    port.state = tree.read(port.path + "/state");
    port.link_layer = tree.read(port.path + "/link_layer");
    port.kind = kind_of(device.driver, node_type, port.link_layer);
    const bool on_ethernet = port.kind == RdmaKind::Roce || port.kind == RdmaKind::Iwarp;
    if (on_ethernet) port.net_device = net_device_of(tree, path, port.path);
    device.ports.push_back(std::move(port));
  }
  return device;
}

}  // namespace

std::string_view to_string(RdmaKind kind) {
  switch (kind) {
    case RdmaKind::InfiniBand: return "InfiniBand";
    case RdmaKind::Roce: return "RoCE";
    case RdmaKind::Iwarp: return "iWARP";
    case RdmaKind::Srd: return "EFA (SRD)";
    case RdmaKind::Unknown: break;
  }
  return "of an unknown kind";
}

std::vector<RdmaDevice> rdma_devices(const SystemTree& tree) {
  std::vector<RdmaDevice> devices;
  for (const std::string& name : tree.names(kClass)) devices.push_back(read_device(tree, name));
  return devices;
}

std::vector<RdmaPort> ports_of_kind(const std::vector<RdmaDevice>& devices, RdmaKind kind,
                                    bool hardware_only) {
  std::vector<RdmaPort> ports;
  for (const RdmaDevice& device : devices) {
    if (hardware_only && !device.software.empty()) continue;
    std::copy_if(device.ports.begin(), device.ports.end(), std::back_inserter(ports),
                 [kind](const RdmaPort& port) { return port.kind == kind; });
  }
  return ports;
}

std::vector<RdmaDevice> hardware_rnics(const SystemTree& tree) {
  std::vector<RdmaDevice> devices = rdma_devices(tree);
  std::erase_if(devices, [](const RdmaDevice& device) { return !device.software.empty(); });
  return devices;
}

}  // namespace perdure::host
