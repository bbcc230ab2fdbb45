// The RDMA devices of a machine as /sys/class/infiniband describes them (kernel documentation,
// ABI/stable/sysfs-class-infiniband).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host/system_tree.h"

namespace perdure::host {

/// The evidence where there is no device.
inline constexpr char kNoRdmaDevice[] = "/sys/class/infiniband: has no RNIC, or is not there";

enum class RdmaKind { Unknown, InfiniBand, Roce, Iwarp, Srd };

std::string_view to_string(RdmaKind kind);

struct RdmaPort {
  std::string name;  // "mlx5_0/1"
  std::string path;  // /sys/class/infiniband/mlx5_0/ports/1
  Reading state;     // "4: ACTIVE"
  Reading link_layer;
  RdmaKind kind = RdmaKind::Unknown;
  std::string net_device;  // of RoCE and iWARP; empty if none is named
};

struct RdmaDevice {
  std::string name;
  std::string software;  // "rxe" or "siw" if the processor does the work, else empty
  std::string driver;    // of its function; empty for software
  std::string pci;       // /sys/devices/pci...: its PCI function; empty for software
  Reading firmware;
  std::vector<RdmaPort> ports;
};

std::vector<RdmaDevice> rdma_devices(const SystemTree& tree);

/// The ports of that kind, without those of software if `hardware_only`.
std::vector<RdmaPort> ports_of_kind(const std::vector<RdmaDevice>& devices, RdmaKind kind,
                                    bool hardware_only);

/// Those that no processor plays.
std::vector<RdmaDevice> hardware_rnics(const SystemTree& tree);

}  // namespace perdure::host
