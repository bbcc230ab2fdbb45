// What RNICs do beside the verbs, and how Perdure uses them: each verdict of each check.
#include "tests/host/machine.h"

namespace perdure::host {
namespace {

using enum Verdict;
using namespace std::string_view_literals;

constexpr char kPersistent[] = "[profile.pool.orders]\nreceive_buffers = \"pm\"\n";

Machine of_driver(const std::string& driver) { return Machine().rdma({.driver = driver}); }
Machine iwarp() { return Machine().rdma({.node_type = "4: RNIC", .driver = "ice"}); }
Machine rxe() { return Machine().rdma({.name = "rxe0", .description = "rxe"}); }
Machine siw() {
  return Machine().rdma(
      {.name = "siw0", .description = "Software iWARP stack", .node_type = "4: RNIC"});
}

std::string evidence_of(Check (*check)(const InspectedHost&), const Machine& machine) {
  std::string all;
  for (const std::string& each : check(machine.inspected()).evidence) all += each + "\n";
  return all;
}

TEST(CqePayload, MattersToMessagesThatAreReplayed) {
  const auto check = check_cqe_payload;
  expect(check, Machine(), NotApplicable, "in their receive buffers");
  expect(check, rxe().config(kPersistent), NotApplicable, "in their receive buffers");
  expect(check, of_driver("mlx5_core"), Ok, "may leave small messages");
  expect(check, of_driver("mlx5_core").config(kPersistent), Ok, "72 at least");
  expect(check, of_driver("mlx5_core").config("[profile]\nreceive_buffers = \"pm\"\n"), Ok,
         "72 at least");
  expect(check, of_driver("bnxt_en"), Ok, "receive buffers are in DRAM");
  expect(check, of_driver("bnxt_en").config(kPersistent), NotKnown, "no file tells");
}

// Where its receive buffers are was decided when the pool was first served.
TEST(CqePayload, APoolKeepsItsReceiveBuffers) {
  PoolThere pool{"orders", std::nullopt, "", false};
  const auto check = check_cqe_payload;
  expect(check, of_driver("bnxt_en").pool(pool), Ok, "receive buffers are in DRAM");
  pool.has_receive_buffers = true;
  expect(check, of_driver("bnxt_en").pool(pool), NotKnown, "no file tells");
  expect(check, of_driver("bnxt_en").pool(pool).config("[profile]\nreceive_buffers = \"dram\"\n"),
         NotKnown, "pool orders has its receive buffers");
  expect(check, of_driver("mlx5_core").pool(pool), Ok, "72 at least");
  const PoolThere closed{"orders", std::nullopt, "orders.pool: denied", true};
  expect(check, of_driver("bnxt_en").pool(closed), NotKnown, "where pool orders has");
  EXPECT_NE(check(of_driver("bnxt_en").pool(closed).inspected()).root_tells, "");
}

// Nothing is concluded from the defaults where a configuration is there and can not be read.
TEST(Rnic, NothingIsKnownWithoutTheConfiguration) {
  constexpr char kConfig[] = "/etc/perdure/perdured.toml";
  Check (*const checks[])(const InspectedHost&) = {check_cqe_payload, check_write_order, check_ddio,
                                                   check_rnic_choice, check_rnic_timeouts};
  for (const auto& check : checks) {
    Machine machine = of_driver("bnxt_en").root_port("0x2030", 0x80, 0);
    EXPECT_NE(check(machine.inspected()).verdict, NotKnown);
    expect(check, machine.config("[profile]\nfoo = 1\n"), NotKnown, "configuration of perdured");
    expect(check, machine.unreadable(kConfig), NotKnown, "configuration of perdured");
    expect(check, Machine().unreadable(kConfig), NotApplicable, "no R");
  }
  const Machine machine = of_driver("bnxt_en");
  InspectedHost closed = machine.inspected();
  closed.config = Error{ErrorCode::PermissionDenied, "perdured.toml: denied"};
  EXPECT_EQ(check_cqe_payload(closed).verdict, NotKnown);
  EXPECT_NE(check_cqe_payload(closed).root_tells, "");
}

TEST(CqePayload, TheDaemonsEnvironmentIsRead) {
  const auto with = [](std::string_view environment) {
    Machine machine = of_driver("mlx5_core").config(kPersistent);
    return machine.file("/proc/41/comm", "perdured\n").file("/proc/41/environ", environment);
  };
  const auto check = check_cqe_payload;
  EXPECT_NE(evidence_of(check, with("A=1\0MLX5_SCATTER_TO_CQE=0\0MLX5_CQE_SIZE=128\0"sv))
                .find("/proc/41/environ: MLX5_SCATTER_TO_CQE is 0, MLX5_CQE_SIZE is 128"),
            std::string::npos);
  EXPECT_NE(evidence_of(check, with("MLX5_SCATTER_TO_CQE=1\0"sv)).find("MLX5_SCATTER_TO_CQE is 1"),
            std::string::npos);
  EXPECT_NE(evidence_of(check, with("NOT_MLX5_SCATTER_TO_CQE=0\0B=2\0"sv))
                .find("MLX5_SCATTER_TO_CQE is not set, MLX5_CQE_SIZE is not set"),
            std::string::npos);
  Machine closed = of_driver("mlx5_core").file("/proc/41/comm", "perdured\n");
  closed.unreadable("/proc/41/environ");
  EXPECT_NE(check(closed.inspected()).root_tells, "");
}

TEST(ImmediateLength, IsKnownOfSomeProviders) {
  const auto check = check_immediate_length;
  expect(check, Machine(), NotApplicable, "Perdure says the length");
  expect(check, rxe(), Ok, "the conformance suite");
  expect(check, siw(), Ok, "stand in for WRITE_WITH_IMM");
  expect(check, iwarp(), Ok, "stand in for WRITE_WITH_IMM");
  expect(check, of_driver("mlx5_core"), Ok, "libmlx5");
  expect(check, of_driver("bnxt_en"), Ok, "libbnxt_re");
  expect(check, of_driver("ice"), Ok, "libirdma");
  expect(check, of_driver("hns3"), NotKnown, "is not known");
}

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

Machine with_pool(Machine machine, std::uint64_t bytes) {
  PoolThere small{"small", std::nullopt, "", false};
  small.data_bytes = 4096;
  PoolThere pool{"orders", std::nullopt, "", false};
  pool.data_bytes = bytes;
  pool.bytes = bytes + 65536;  // what is before the data is in no window
  return machine.pool(small).pool(pool);
}

TEST(Fencing, IsByWindowsOrByDeregistration) {
  const auto check = check_fencing;
  constexpr char kRelease[] = "/proc/sys/kernel/osrelease";
  expect(check, Machine(), NotApplicable, "no RDMA device");
  expect(check, of_driver("mlx5_core"), Ok, "of pools of more than 2147483648 bytes");
  expect(check, with_pool(of_driver("mlx5_core"), 2 * kGiB), Ok, "by its memory window");
  expect(check, with_pool(of_driver("mlx5_core"), 2 * kGiB + 1), Advice,
         "pool orders exports 2147483649 bytes");
  expect(check, rxe().file(kRelease, "6.12.1\n"), Ok, "by its memory window");
  expect(check, with_pool(rxe().file(kRelease, "5.14.0\n"), 64 * kGiB), Ok, "memory window");
  expect(check, rxe().file(kRelease, "5.13.9\n"), Advice, "each session registers its pool");
  expect(check, rxe(), NotKnown, "no file tells");
  expect(check, siw(), Advice, "each session registers its pool");
  expect(check, iwarp(), Advice, "each session registers its pool");
  expect(check, of_driver("bnxt_en"), NotKnown, "no file tells");
}

TEST(RnicChoice, IsTheOneThatIsNamedOrUp) {
  const auto check = check_rnic_choice;
  const auto two = [](const char* second) {
    return Machine().rdma().rdma({.name = "mlx5_1", .state = second});
  };
  const auto named = [](Machine machine, const std::string& name) {
    return machine.config("[data]\ntransports = [\"roce\"]\nrnic = \"" + name +
                          "\"\n[control]\nallow_remote = true\n");
  };
  expect(check, Machine(), NotApplicable, "no RDMA device");
  expect(check, Machine().rdma(), Ok, "mlx5_0 is the one that is up");
  expect(check, two("1: DOWN"), Ok, "mlx5_0 is the one that is up");
  expect(check, two("4: ACTIVE"), Advice, "2 RNICs are up");
  expect(check, Machine().rdma({.state = "1: DOWN"}), Problem, "no RNIC is up");
  expect(check, named(two("4: ACTIVE"), "mlx5_1"), Ok, "is up");
  expect(check, named(two("1: DOWN"), "mlx5_1"), Problem, "is down");
  expect(check, named(two("4: ACTIVE"), "mlx5_7"), Problem, "is not here");
  expect(check, named(two("4: ACTIVE"), "10.0.0.1"), NotKnown, "no file tells");
  expect(check, two("4: ACTIVE").config("[data]\ntransports = [\"tcp\"]\n"), NotApplicable,
         "told to use none");
}

TEST(RnicChoice, IsAmongThoseThatCarryTheTransport) {
  const auto check = check_rnic_choice;
  const auto wanting = [](Machine machine, const std::string& transports,
                          const std::string& rnic = "") {
    return machine.config("[data]\ntransports = [" + transports + "]\nrnic = \"" + rnic +
                          "\"\n[control]\nallow_remote = true\n");
  };
  const auto infiniband = [] {
    return Machine().rdma({.link_layer = "InfiniBand", .net_device = ""});
  };
  const auto efa = [] { return Machine().rdma({.name = "efa_0", .driver = "efa"}); };
  const std::string roce = "\"roce\"";
  expect(check, wanting(Machine().rdma(), roce), Ok, "mlx5_0 is the one that is up");
  expect(check, wanting(infiniband(), roce), Problem, "no RNIC that carries roce is up");
  expect(check, wanting(iwarp(), roce), Problem, "no RNIC that carries roce is up");
  expect(check, wanting(efa(), roce), Problem, "no RNIC that carries roce is up");
  expect(check, efa(), Problem, "no RNIC is up");
  expect(check, wanting(infiniband().rdma({.name = "mlx5_1"}), roce), Ok, "mlx5_1 is the one");
  expect(check, wanting(infiniband(), roce, "mlx5_0"), Problem, "is InfiniBand");
  expect(check, wanting(infiniband(), "\"infiniband\"", "mlx5_0"), Ok, "is up");
  // Of several transports each takes its own.
  const std::string both = "\"roce\", \"infiniband\"";
  expect(check, wanting(infiniband(), both), Problem, "no RNIC that carries roce is up");
  expect(check, wanting(infiniband().rdma({.name = "mlx5_1"}), both), Ok, "is the one that is up");
  // A port of the kind has to be up, not any.
  Machine two_ports = Machine().rdma({.state = "1: DOWN"});
  two_ports.file("/sys/class/infiniband/mlx5_0/ports/2/link_layer", "InfiniBand\n")
      .file("/sys/class/infiniband/mlx5_0/ports/2/state", "4: ACTIVE\n");
  expect(check, wanting(two_ports, roce), Problem, "no RNIC that carries roce is up");
  expect(check, wanting(two_ports, roce, "mlx5_0"), Problem, "is down");
}

TEST(RnicTimeouts, ShowWhatIsInUse) {
  const auto check = check_rnic_timeouts;
  const auto with_tos = [](std::string_view tos) {
    return Machine().rdma().file("/sys/kernel/config/rdma_cm/mlx5_0/ports/1/default_roce_tos", tos);
  };
  expect(check, Machine(), NotApplicable, "no RNIC");
  expect(check, rxe(), NotApplicable, "no RNIC");
  expect(check, with_tos("106\n"), Ok,
         "waits 0.54 s for an answer, and gives a peer up after "
         "about 3.8 s");
  expect(check, with_tos("106\n"), Ok, "traffic class 106");
  expect(check, with_tos("106\n").config("[data]\nrnic_ack_timeout = 20\n"), Ok, "waits 4.3 s");
  expect(check, with_tos("0\n"), Advice, "traffic class 0");
  expect(check, Machine().rdma(), Advice, "not readable");
  expect(check, Machine().rdma({.link_layer = "InfiniBand", .net_device = ""}), Ok,
         "the subnet manager");
  expect(check, iwarp(), Ok, "waits 0.54 s");
}

Machine with_interrupts(std::string_view near, const std::vector<std::string>& affinities) {
  Machine machine = Machine().rdma();
  const std::string function = Machine::kRnicPath;
  machine.file(function + "/local_cpulist", near);
  int number = 100;
  for (const std::string& affinity : affinities) {
    machine.file(function + "/msi_irqs/" + std::to_string(number), "msix\n");
    if (!affinity.empty()) {
      machine.file("/proc/irq/" + std::to_string(number) + "/smp_affinity_list", affinity);
    }
    ++number;
  }
  return machine;
}

TEST(CompletionVectors, AreInterruptsNearTheRnic) {
  const auto check = check_completion_vectors;
  expect(check, Machine(), NotApplicable, "no RNIC");
  expect(check, rxe(), NotApplicable, "no RNIC");
  expect(check, Machine().rdma(), NotKnown, "can not be read");
  expect(check, with_interrupts("0-3\n", {}), NotKnown, "can not be read");
  expect(check, with_interrupts("0-3\n", {"", ""}), NotKnown, "can not be read");
  expect(check, with_interrupts("cheese\n", {"0\n"}), NotKnown, "can not be read");
  expect(check, with_interrupts("0-3,8\n", {"0\n", "8\n", "9\n", ""}), Ok,
         "2 of 3 interrupts come to processors near it");
  expect(check, with_interrupts("0-3\n", {"4\n", "5-7\n"}), Advice, "none of its interrupts");
  expect(check, with_interrupts("0-3\n", {"2\n", "2\n"}), Advice, "come to processor 2");
  expect(check, with_interrupts("2\n", {"2\n", "2\n"}), Ok, "at most 1");
}

// What the kernel made of the wish counts.
TEST(CompletionVectors, TheAffinityInEffectIsReadFirst) {
  Machine machine = with_interrupts("0-3\n", {"0-7\n", "0-7\n"});
  machine.file("/proc/irq/100/effective_affinity_list", "6\n");
  machine.file("/proc/irq/101/effective_affinity_list", "7\n");
  expect(check_completion_vectors, machine, Advice, "none of its interrupts");
}

}  // namespace
}  // namespace perdure::host
