// RDMA devices and the Ethernet below them.
#include <fmt/format.h>

#include <algorithm>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"

namespace perdure::host {
namespace {

// The kernel takes the largest RDMA packet that fits into the device's MTU without its own headers:
// GRH 40, UDP 8, BTH 12, XRC 4, atomic 28, ICRC 4 (Linux, include/rdma/ib_addr.h, iboe_get_mtu).
constexpr std::uint64_t kRoceHeaderBytes = 96;
constexpr std::uint64_t kPathMtuMax = 4096;
constexpr std::uint64_t kPathMtuMin = 256;
constexpr std::uint64_t kNetMtuWanted = 4200;  // 4096 and its headers, rounded up

std::uint64_t path_mtu(std::uint64_t net_mtu) {
  std::uint64_t size = kPathMtuMax;
  while (size >= kPathMtuMin && size + kRoceHeaderBytes > net_mtu) size /= 2;
  return size >= kPathMtuMin ? size : 0;
}

void find_port(const RdmaPort& port, Check& check) {
  check.keep(port.state);
  check.keep(port.link_layer);
  if (!port.state.read() || port.kind == RdmaKind::Unknown) {
    return check.find(Verdict::NotKnown, port.name + ": its state or its kind can not be read",
                      "ask the verbs library", {"ibv_devinfo -v", "rdma link"});
  }
  if (port.state.text != "4: ACTIVE") {
    const std::string link =
        port.net_device.empty() ? "rdma link" : "ip link set dev " + port.net_device + " up";
    return check.find(Verdict::Problem,
                      fmt::format("{} is not active ({})", port.name, port.state.text),
                      "connect the cable, bring the network device up; InfiniBand also needs a "
                      "subnet manager",
                      {link, "ibv_devinfo"});
  }
  if (port.kind == RdmaKind::Srd) {
    check.find(Verdict::Advice,
               port.name + " is an EFA: it has no reliable connections, and delivers out of order",
               "use it through libfabric only; methods that rely on the order of one connection "
               "are wrong on it",
               {"fi_info -p efa"});
  }
}

void find_device(const RdmaDevice& device, Check& check) {
  if (!device.firmware.text.empty()) check.keep(device.firmware);
  for (const RdmaPort& port : device.ports) find_port(port, check);
  if (device.ports.empty()) {
    check.find(Verdict::Problem, device.name + " has no ports", "look what its driver says",
               {"dmesg | grep -i " + device.name});
  }
  if (!device.software.empty()) {
    return check.find(Verdict::Advice,
                      fmt::format("{} is software ({}): the processor does the work of the RNIC",
                                  device.name, device.software),
                      "use it to try and to test; for speed, and for a persistence domain that a "
                      "RNIC writes into, buy an RNIC",
                      {"rdma link"});
  }
  const std::string kind(device.ports.empty() ? "" : to_string(device.ports.front().kind));
  check.find(Verdict::Ok, fmt::format("{} is {} and active", device.name, kind));
}

void find_mtu(const InspectedHost& inspected, const RdmaPort& port, Check& check) {
  if (port.net_device.empty()) {
    check.evidence.push_back(port.path + "/gid_attrs/ndevs: names no device");
    return check.find(Verdict::NotKnown, port.name + " names no network device",
                      "give its network device an address", {"rdma link", "ip address"});
  }
  const Reading mtu =
      check.keep(inspected.tree.read(fmt::format("/sys/class/net/{}/mtu", port.net_device)));
  if (!mtu.number()) {
    return check.find(Verdict::NotKnown, port.net_device + ": its MTU can not be read",
                      "ask the verbs library for active_mtu", {"ibv_devinfo | grep mtu"});
  }
  const std::uint64_t path = path_mtu(*mtu.number());
  if (path == kPathMtuMax) {
    return check.find(Verdict::Ok, fmt::format("{}: packets of {} bytes", port.name, path));
  }
  check.find(Verdict::Advice,
             fmt::format("{}: packets of {} bytes, since {} has MTU {}", port.name, path,
                         port.net_device, *mtu.number()),
             fmt::format("set {} or more on both machines and on every switch between them",
                         kNetMtuWanted),
             {fmt::format("ip link set dev {} mtu {}", port.net_device, kNetMtuWanted)});
}

constexpr std::string_view kNoGid = "0000:0000:0000:0000:0000:0000:0000:0000";

void find_gid(const InspectedHost& inspected, const RdmaPort& port, Check& check) {
  const std::string types = port.path + "/gid_attrs/types";
  const auto indices = inspected.tree.names(types);
  for (const std::string& index : indices) {
    // An entry that is not in use can not be read: that is no finding.
    const Reading type = inspected.tree.read(fmt::format("{}/{}", types, index));
    const Reading gid = inspected.tree.read(port.path + "/gids/" + index);
    if (type.text != "RoCE v2" || !gid.read() || gid.text == kNoGid) continue;
    check.keep(type);
    check.keep(gid);
    return check.find(Verdict::Ok, fmt::format("{}: GID {} is RoCE v2", port.name, index));
  }
  if (indices.empty()) {
    check.evidence.push_back(types + ": is empty or not there");
    return check.find(Verdict::NotKnown, port.name + ": its GID table can not be read",
                      "ask the verbs library", {"ibv_devinfo -v | grep GID"});
  }
  check.evidence.push_back(
      fmt::format("{}: {} entries, none of them RoCE v2", types, indices.size()));
  check.find(Verdict::Problem, port.name + " has no RoCE v2 GID: nobody can connect to it over IP",
             "bring its network device up and give it an address",
             {"ip address add ADDRESS/24 dev " +
              (port.net_device.empty() ? std::string("DEVICE") : port.net_device)});
}

/// For how many of the eight priorities a side of ECN is on. The driver of NVIDIA's own package
/// shows it: /sys/class/net/DEVICE/ecn/roce_np (answers to marks) and roce_rp (slows down).
struct EcnSide {
  bool is_readable = false;
  bool is_on = false;
};

EcnSide read_ecn(const InspectedHost& inspected, const std::string& side, Check& check) {
  EcnSide answer;
  for (const std::string& priority : inspected.tree.names(side + "/enable")) {
    const Reading on = inspected.tree.read(fmt::format("{}/enable/{}", side, priority));
    if (on.text != "0" && on.text != "1") continue;
    answer.is_readable = true;
    if (on.text == "1") {
      check.keep(on);
      answer.is_on = true;
    }
  }
  if (!answer.is_on) {
    check.evidence.push_back(
        side + "/enable: " + (answer.is_readable ? "0 for every priority" : "can not be read"));
  }
  return answer;
}

void find_congestion(const InspectedHost& inspected, const RdmaPort& port, Check& check) {
  const std::string net =
      "/sys/class/net/" + (port.net_device.empty() ? std::string("?") : port.net_device);
  const EcnSide answers = read_ecn(inspected, net + "/ecn/roce_np", check);
  const EcnSide slows = read_ecn(inspected, net + "/ecn/roce_rp", check);
  const std::string device = port.net_device.empty() ? "DEVICE" : port.net_device;
  const std::vector<std::string> ask{"dcb pfc show dev " + device, "dcb app show dev " + device,
                                     "mlnx_qos -i " + device};
  if (!answers.is_readable || !slows.is_readable) {
    check.find(Verdict::NotKnown,
               port.name +
                   ": no file says whether PFC or ECN is on; packets that a switch drops "
                   "are sent again, at worst after a time-out",
               "ask the RNIC, and see that the switches agree with it", ask);
    check.root_tells = "NVIDIA RNICs show ECN parameters in /sys/kernel/debug/mlx5";
    return;
  }
  if (answers.is_on && slows.is_on) {
    return check.find(Verdict::Ok,
                      port.name + ": ECN is on at both ends of the RNIC; the switches must mark");
  }
  check.find(
      Verdict::Advice, port.name + ": ECN is off",
      "switch it on for the priority of RoCE, here and in the switches, or use PFC",
      {"echo 1 > " + net + "/ecn/roce_np/enable/3", "echo 1 > " + net + "/ecn/roce_rp/enable/3"});
}

}  // namespace

Check check_rdma_devices(const InspectedHost& inspected) {
  Check check{"rdma-devices"};
  for (const RdmaDevice& device : rdma_devices(inspected.tree)) find_device(device, check);
  check.find_nothing("no RDMA device: sessions run over tcp and shm", kNoRdmaDevice);
  return check;
}

Check check_rdma_mtu(const InspectedHost& inspected) {
  Check check{"rdma-mtu"};
  for (const auto& port : ports_of_kind(rdma_devices(inspected.tree), RdmaKind::Roce, false)) {
    find_mtu(inspected, port, check);
  }
  check.find_nothing("no RoCE port", "/sys/class/infiniband: has no port of RoCE");
  return check;
}

Check check_roce_gid(const InspectedHost& inspected) {
  Check check{"roce-gid"};
  for (const auto& port : ports_of_kind(rdma_devices(inspected.tree), RdmaKind::Roce, false)) {
    find_gid(inspected, port, check);
  }
  check.find_nothing("no RoCE port", "/sys/class/infiniband: has no port of RoCE");
  return check;
}

Check check_congestion_control(const InspectedHost& inspected) {
  Check check{"congestion-control"};
  for (const auto& port : ports_of_kind(rdma_devices(inspected.tree), RdmaKind::Roce, true)) {
    find_congestion(inspected, port, check);
  }
  check.find_nothing("no RoCE port of an RNIC",
                     "/sys/class/infiniband: has no RoCE port of an RNIC");
  return check;
}

}  // namespace perdure::host
