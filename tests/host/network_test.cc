// RDMA devices and the Ethernet below them: each verdict of each check.
#include "tests/host/machine.h"

namespace perdure::host {
namespace {

using enum Verdict;

constexpr char kPort[] = "/sys/class/infiniband/mlx5_0/ports/1";

Machine rnic() { return Machine().rdma(); }

Machine infiniband() { return Machine().rdma({.link_layer = "InfiniBand", .net_device = ""}); }

Machine soft_roce() { return Machine().rdma({.name = "rxe0", .description = "rxe"}); }

TEST(RdmaDevices, AreActiveAndNotSoftware) {
  const auto check = check_rdma_devices;
  expect(check, Machine(), NotApplicable, "tcp and shm");
  expect(check, rnic(), Ok, "RoCE and active");
  expect(check, infiniband(), Ok, "InfiniBand and active");
  expect(check, Machine().rdma({.node_type = "4: RNIC"}), Ok, "iWARP and active");
  expect(check, soft_roce(), Advice, "software (rxe)");
  expect(check, Machine().rdma({.description = "Software iWARP stack", .node_type = "4: RNIC"}),
         Advice, "software (siw)");
  expect(check, Machine().rdma({.name = "efa_0", .driver = "efa"}), Advice, "EFA");
  expect(check, Machine().rdma({.state = "1: DOWN"}), Problem, "not active");
  expect(check, Machine().rdma({.state = "2: INIT"}), Problem, "not active (2: INIT)");
  expect(check, rnic().remove(kPort), Problem, "has no ports");
  expect(check, rnic().unreadable(std::string(kPort) + "/state"), NotKnown, "can not be read");
  expect(check, Machine().rdma({.link_layer = "Telegraph"}), NotKnown, "can not be read");
}

TEST(RdmaDevices, OneDeadPortAmongLivingOnesIsTold) {
  Machine machine = rnic();
  machine.rdma({.name = "mlx5_1", .state = "1: DOWN"}).rdma({.name = "mlx5_2"});
  expect(check_rdma_devices, machine, Problem, "mlx5_1/1");
}

Machine with_mtu(std::string_view mtu) { return rnic().file("/sys/class/net/eth2/mtu", mtu); }

TEST(RdmaMtu, FitsPacketsOfFourKibibytesAndTheirHeaders) {
  const auto check = check_rdma_mtu;
  expect(check, Machine(), NotApplicable, "no RoCE port");
  expect(check, infiniband(), NotApplicable, "no RoCE port");
  expect(check, with_mtu("9000\n"), Ok, "packets of 4096");
  expect(check, with_mtu("4200\n"), Ok, "packets of 4096");
  expect(check, with_mtu("4192\n"), Ok, "packets of 4096");      // 4096 and 96 of headers
  expect(check, with_mtu("4191\n"), Advice, "packets of 2048");  // one byte less
  expect(check, with_mtu("1500\n"), Advice, "packets of 1024");
  expect(check, with_mtu("60\n"), Advice, "packets of 0");
  expect(check, with_mtu("wide\n"), NotKnown, "MTU can not be read");
  expect(check, rnic(), NotKnown, "MTU can not be read");
  expect(check, rnic().unreadable("/sys/class/net/eth2/mtu"), NotKnown, "MTU can not be read");
  expect(check, Machine().rdma({.net_device = ""}), NotKnown, "names no network device");
}

Machine with_gid(std::string_view type, std::string_view gid) {
  return rnic()
      .unreadable(std::string(kPort) + "/gid_attrs/types/0")  // an entry that is not in use
      .file(std::string(kPort) + "/gid_attrs/types/1", type)
      .file(std::string(kPort) + "/gids/1", gid);
}

TEST(RoceGid, OfVersion2IsNeeded) {
  const auto check = check_roce_gid;
  constexpr char kGid[] = "0000:0000:0000:0000:0000:ffff:c0a8:0001\n";
  constexpr char kZero[] = "0000:0000:0000:0000:0000:0000:0000:0000\n";
  expect(check, Machine(), NotApplicable, "no RoCE port");
  expect(check, infiniband(), NotApplicable, "no RoCE port");
  expect(check, with_gid("RoCE v2\n", kGid), Ok, "GID 1");
  expect(check, with_gid("IB/RoCE v1\n", kGid), Problem, "no RoCE v2 GID");
  expect(check, with_gid("RoCE v2\n", kZero), Problem, "no RoCE v2 GID");
  expect(check, with_gid("cheese\n", kGid), Problem, "no RoCE v2 GID");
  expect(check, rnic(), NotKnown, "GID table can not be read");
}

Machine with_ecn(std::string_view answers, std::string_view slows) {
  return rnic()
      .file("/sys/class/net/eth2/ecn/roce_np/enable/0", "0\n")
      .file("/sys/class/net/eth2/ecn/roce_np/enable/3", answers)
      .file("/sys/class/net/eth2/ecn/roce_rp/enable/3", slows);
}

TEST(CongestionControl, IsOnAtBothEnds) {
  const auto check = check_congestion_control;
  expect(check, Machine(), NotApplicable, "no RoCE port of an RNIC");
  expect(check, soft_roce(), NotApplicable, "no RoCE port of an RNIC");
  expect(check, infiniband(), NotApplicable, "no RoCE port of an RNIC");
  expect(check, with_ecn("1\n", "1\n"), Ok, "ECN is on");
  expect(check, with_ecn("0\n", "0\n"), Advice, "ECN is off");
  expect(check, with_ecn("1\n", "0\n"), Advice, "ECN is off");
  expect(check, with_ecn("1\n", "cheese\n"), NotKnown, "no file says");
  expect(check, with_ecn("1\n", "1\n").unreadable("/sys/class/net/eth2/ecn/roce_rp/enable/3"),
         NotKnown, "no file says");
  expect(check, rnic(), NotKnown, "no file says");
  EXPECT_NE(check(rnic().inspected()).root_tells, "");
}

}  // namespace
}  // namespace perdure::host
