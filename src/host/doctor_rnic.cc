// What RNICs do beside the verbs, and how Perdure uses them: payloads in completions, lengths, keys
// that are taken away, time-outs, interrupts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "fabric/fabric.h"
#include "fabric/window_limit.h"
#include "host/doctor_checks.h"
#include "host/rdma_devices.h"

namespace perdure::host {
namespace {

constexpr char kCertify[] = "perdure probe --certify PEER --pool SCRATCH --overwrite";

bool is_iwarp(const RdmaDevice& device) {
  return device.software == "siw" ||
         (!device.ports.empty() && device.ports.front().kind == RdmaKind::Iwarp);
}

/// Whether a pool that is made or first served from now on would have its receive buffers in it.
bool is_pm_declared(const InspectedHost& inspected) {
  return is_any_declared(inspected, [](const server::PoolSettings& settings) {
    return settings.receive_buffers == ReceiveBuffers::Pm;
  });
}

/// Why messages may be read where receive buffers are, by recovery: of a pool that has them, of one
/// of which that is not known, or of what is declared. Empty: they are not.
std::string why_replayed(const InspectedHost& inspected) {
  const auto& pools = inspected.place.pools;
  const auto has = std::find_if(pools.begin(), pools.end(),
                                [](const PoolThere& pool) { return pool.has_receive_buffers; });
  if (has != pools.end()) return fmt::format("pool {} has its receive buffers in it", has->name);
  if (is_pm_declared(inspected)) return "receive_buffers = \"pm\" is declared";
  const auto closed = std::find_if(pools.begin(), pools.end(),
                                   [](const PoolThere& pool) { return pool.forbidden; });
  if (closed == pools.end()) return {};
  return fmt::format("where pool {} has its receive buffers can not be read", closed->name);
}

bool is_any_forbidden(const InspectedHost& inspected) {
  const auto& pools = inspected.place.pools;
  return std::any_of(pools.begin(), pools.end(),
                     [](const PoolThere& pool) { return pool.forbidden; });
}

/// What the environment of a process says of a name: "NAME is not set".
std::string variable_in(const Reading& environment, const std::string& name) {
  const std::string text = '\0' + environment.text;
  const std::string wanted = '\0' + name + "=";
  const std::size_t at = text.find(wanted);
  if (at == std::string::npos) return name + " is not set";
  const std::size_t value = at + wanted.size();
  return fmt::format("{} is {}", name, text.substr(value, text.find('\0', value) - value));
}

/// libmlx5 asks the environment of its process when a queue pair is made (rdma-core,
/// providers/mlx5/verbs.c: MLX5_SCATTER_TO_CQE, where 0 switches it off, and MLX5_CQE_SIZE).
void keep_environments(const InspectedHost& inspected, Check& check) {
  for (const std::string& process : processes_of_interest(inspected)) {
    const Reading environment = inspected.tree.read(process + "/environ");
    if (!environment.read()) {
      check.keep(environment);
      check.root_tells = "the environment of perdured: MLX5_SCATTER_TO_CQE, MLX5_CQE_SIZE";
      continue;
    }
    check.evidence.push_back(fmt::format("{}: {}, {}", environment.path,
                                         variable_in(environment, "MLX5_SCATTER_TO_CQE"),
                                         variable_in(environment, "MLX5_CQE_SIZE")));
  }
}

void find_payload(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  const bool mlx5 = device.driver.starts_with("mlx5_core");
  check.evidence.push_back(fmt::format("{}: its driver is {}", device.name,
                                       device.driver.empty() ? "not in /sys" : device.driver));
  if (mlx5) keep_environments(inspected, check);
  const std::string why = why_replayed(inspected);
  if (is_any_forbidden(inspected)) check.root_tells = "where pools have their receive buffers";
  if (why.empty()) {
    return check.find(
        Verdict::Ok,
        fmt::format("{}: receive buffers are in DRAM, and nothing is replayed from them{}",
                    device.name,
                    mlx5 ? "; so it may leave small messages in its completions" : ""));
  }
  if (mlx5) {
    return check.find(
        Verdict::Ok,
        fmt::format("{} leaves messages of up to 64 bytes in its completions (32 unless "
                    "MLX5_CQE_SIZE is 128); what is replayed has {} at least, so Perdure does not "
                    "switch that off, and MLX5_SCATTER_TO_CQE=0 is not needed",
                    device.name, persist::kReplayableBytesMin));
  }
  check.find(Verdict::NotKnown,
             fmt::format("whether {} leaves messages of {} bytes and more in its completions, in "
                         "DRAM, no file tells, and {}",
                         device.name, persist::kReplayableBytesMin, why),
             "certify it (cqe-payload), or use pools that were made with receive_buffers = "
             "\"dram\", of which nothing is replayed",
             {kCertify});
}

/// Where the length in the completion of a WRITE_WITH_IMM comes from. Of the function's driver, as
/// /sys names it: irdma and bnxt_re show that of the network function.
struct LengthSource {
  std::string_view driver;
  std::string_view words;
};
constexpr std::array<LengthSource, 4> kLengthSources{{
    {"mlx5_core", "libmlx5 takes it from the completion (handle_responder)"},
    {"ice", "libirdma takes it from the completion (bytes_xfered)"},
    {"i40e", "libirdma takes it from the completion (bytes_xfered)"},
    {"bnxt_en", "libbnxt_re takes it from the completion (rcqe->length)"},
}};

void find_length(const RdmaDevice& device, Check& check) {
  if (is_iwarp(device)) {
    check.evidence.push_back(device.name + ": is iWARP");
    return check.find(Verdict::Ok, fmt::format("{}: over iWARP a WRITE and a word beside it, which "
                                               "says the length, stand in for WRITE_WITH_IMM",
                                               device.name));
  }
  if (device.software == "rxe") {
    check.evidence.push_back(device.name + ": is rxe");
    return check.find(Verdict::Ok,
                      fmt::format("{}: rxe says how much was written, as the conformance suite has "
                                  "seen",
                                  device.name));
  }
  check.evidence.push_back(fmt::format("{}: its driver is {}", device.name,
                                       device.driver.empty() ? "not in /sys" : device.driver));
  const auto* const known = std::find_if(
      kLengthSources.begin(), kLengthSources.end(),
      [&](const LengthSource& each) { return device.driver.starts_with(each.driver); });
  if (known != kLengthSources.end()) {
    return check.find(
        Verdict::Ok,
        fmt::format("{}: {}. Were that 0 or too little, the session would end, with nothing of it "
                    "reported durable",
                    device.name, known->words));
  }
  check.find(Verdict::NotKnown,
             fmt::format("{}: whether completions of WRITE_WITH_IMM say how much was written is "
                         "not known. If not, sessions end with a protocol error",
                         device.name),
             "certify it (immediate-length), and use --primary write or send if it fails",
             {kCertify});
}

constexpr Release kRxeBindsWindows{5, 14};

/// What takes a writer's rights away.
enum class TakenAwayBy { Windows, Deregistration, NotKnown };

TakenAwayBy taken_away_by(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  if (is_iwarp(device)) return TakenAwayBy::Deregistration;
  if (device.driver.starts_with("mlx5_core")) return TakenAwayBy::Windows;
  if (device.software != "rxe") return TakenAwayBy::NotKnown;
  const auto release = release_of(inspected, check);
  if (!release) return TakenAwayBy::NotKnown;
  return *release < kRxeBindsWindows ? TakenAwayBy::Deregistration : TakenAwayBy::Windows;
}

/// The pool here that exports most; a made-up one of no bytes where there is none.
PoolThere largest_pool(const InspectedHost& inspected) {
  PoolThere largest;
  for (const PoolThere& pool : inspected.place.pools) {
    if (pool.data_bytes > largest.data_bytes) largest = pool;
  }
  return largest;
}

void find_fencing(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  const TakenAwayBy by = taken_away_by(inspected, device, check);
  const std::uint64_t bytes_max = fabric::window_bytes_max_of(device.driver);
  const bool limited = bytes_max != fabric::WindowLimit::kNone;
  check.evidence.push_back(fmt::format(
      "{}: {}", device.name,
      is_iwarp(device) ? "is iWARP, where Perdure uses no memory windows"
      : by == TakenAwayBy::NotKnown
          ? "no file says whether it has memory windows of type 2B"
          : fmt::format("{} {} memory windows of type 2B{}",
                        device.software.empty() ? device.driver : device.software,
                        by == TakenAwayBy::Windows ? "has" : "has no",
                        limited ? fmt::format(" of at most {} bytes", bytes_max) : "")));
  const std::vector<std::string> ask{
      fmt::format("ibv_devinfo -v -d {} | grep MEM_WINDOW", device.name),
      "perdure probe " + inspected.place.path, kCertify};
  if (by == TakenAwayBy::NotKnown) {
    return check.find(Verdict::NotKnown,
                      fmt::format("{}: whether a writer is cut off by a memory window, or by "
                                  "deregistering the pool, which takes as long as the pool is "
                                  "large, no file tells",
                                  device.name),
                      "ask the verbs library, and measure the fencing time", ask);
  }
  if (by == TakenAwayBy::Deregistration) {
    return check.find(Verdict::Advice,
                      fmt::format("{}: each session registers its pool, whose locked memory counts "
                                  "again, and fencing takes as long as deregistering it",
                                  device.name),
                      "keep pools small where a take-over has to be fast, and measure it", ask);
  }
  const PoolThere largest = largest_pool(inspected);
  if (largest.data_bytes > bytes_max) {
    return check.find(
        Verdict::Advice,
        fmt::format(
            "pool {} exports {} bytes, and {} binds memory windows of at most {}: each session "
            "registers that pool, and fencing takes as long as deregistering it",
            largest.name, largest.data_bytes, device.name, bytes_max),
        "make pools that are to be taken over fast no larger, several instead of one", ask);
  }
  check.find(Verdict::Ok,
             fmt::format("{}: a writer is cut off by its memory window{}", device.name,
                         limited ? fmt::format("; of pools of more than {} bytes by deregistering "
                                               "them",
                                               bytes_max)
                                 : ""));
}

/// The traffic class that the connection manager gives where none is asked for (Linux,
/// ABI/testing/configfs-rdma_cm).
Reading default_tos(const InspectedHost& inspected, const RdmaPort& port) {
  const std::string device = port.name.substr(0, port.name.find('/'));
  const std::string number = port.name.substr(port.name.find('/') + 1);
  return inspected.tree.read(
      fmt::format("/sys/kernel/config/rdma_cm/{}/ports/{}/default_roce_tos", device, number));
}

void find_timeouts(const InspectedHost& inspected, const RdmaPort& port, Check& check) {
  const server::Config config = inspected.settings();
  const double once_s =
      4.096e-6 * static_cast<double>(std::uint64_t{1} << config.service.endpoints.ack_timeout);
  check.evidence.push_back(
      fmt::format("{}: rnic_ack_timeout is {}",
                  inspected.config.ok() ? inspected.config_file : std::string("perdured by itself"),
                  config.service.endpoints.ack_timeout));
  const std::string patience = fmt::format(
      "{}: perdured waits {:.2g} s for an answer, and gives a peer up after about {:.2g} "
      "s (an RNIC may take four times as long)",
      port.name, once_s, once_s * fabric::kAckTries);
  if (port.kind != RdmaKind::Roce) {
    const bool by_manager = port.kind == RdmaKind::InfiniBand;
    return check.find(Verdict::Ok,
                      patience + (by_manager ? "; the subnet manager has the last word" : ""));
  }
  const Reading tos = check.keep(default_tos(inspected, port));
  if (tos.number().value_or(0) != 0) {
    return check.find(Verdict::Ok, fmt::format("{}; traffic class {} where none is asked for",
                                               patience, *tos.number()));
  }
  check.find(
      Verdict::Advice,
      fmt::format("{}; traffic class {} where no requester asks for another: switches give "
                  "that no queue without loss unless they were told to",
                  patience, tos.number() ? "0" : "(not readable, 0 if nobody set it)"),
      "ask for the class of the network's RoCE queue, at the requester, which decides for "
      "both ends; or set it for the port",
      {"perdure log append --rnic-traffic-class 106", fmt::format("echo 106 > {}", tos.path)});
}

/// The processors of a list of the kernel, "0-3,8"; what is no list has none.
std::set<std::uint64_t> processors_in(const std::string& list) {
  constexpr std::uint64_t kProcessorsMax = 8192;
  std::set<std::uint64_t> found;
  std::string_view rest = list;
  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    const std::size_t dash = part.find('-');
    const auto first = number_in(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : number_in(part.substr(dash + 1));
    if (!first || !last || *last >= kProcessorsMax) return {};
    for (std::uint64_t each = *first; each <= *last; ++each) found.insert(each);
  }
  return found;
}

struct Interrupts {
  std::size_t all = 0;
  std::size_t placed = 0;  // of which it can be read where they go
  std::size_t near = 0;    // of those, to a processor near the RNIC
  std::set<std::uint64_t> processors;
};

/// Where an interrupt goes: what the kernel made of what it was told, else what it was told.
std::set<std::uint64_t> processors_of(const InspectedHost& inspected, const std::string& number) {
  const std::string at = "/proc/irq/" + number;
  auto in_effect = processors_in(inspected.tree.read(at + "/effective_affinity_list").text);
  if (!in_effect.empty()) return in_effect;
  return processors_in(inspected.tree.read(at + "/smp_affinity_list").text);
}

Interrupts interrupts_of(const InspectedHost& inspected, const RdmaDevice& device,
                         const std::set<std::uint64_t>& near) {
  Interrupts found;
  for (const std::string& number : inspected.tree.names(device.pci + "/msi_irqs")) {
    ++found.all;
    const auto processors = processors_of(inspected, number);
    if (processors.empty()) continue;
    ++found.placed;
    const bool is_near = std::any_of(processors.begin(), processors.end(),
                                     [&](std::uint64_t each) { return near.contains(each); });
    if (is_near) ++found.near;
    found.processors.insert(processors.begin(), processors.end());
  }
  return found;
}

void find_vectors(const InspectedHost& inspected, const RdmaDevice& device, Check& check) {
  const Reading local = check.keep(inspected.tree.read(device.pci + "/local_cpulist"));
  const auto near = processors_in(local.text);
  const Interrupts found = interrupts_of(inspected, device, near);
  check.evidence.push_back(
      fmt::format("{}/msi_irqs: {} interrupts; of {} it can be read where they go, {} of them to "
                  "processors near it",
                  device.pci, found.all, found.placed, found.near));
  const std::vector<std::string> ask{"grep . /proc/irq/*/effective_affinity_list",
                                     "systemctl status irqbalance"};
  if (near.empty() || found.placed == 0) {
    return check.find(Verdict::NotKnown,
                      device.name +
                          ": where its interrupts go, or which processors are near it, "
                          "can not be read",
                      "look where they go", ask);
  }
  const std::string repair = fmt::format(
      "leave the driver's layout as it is (no irqbalance for it), or set each to one of {}",
      local.text);
  if (found.near == 0) {
    return check.find(Verdict::Advice,
                      fmt::format("{}: none of its interrupts comes to a processor near it ({}): "
                                  "whoever sleeps is woken from another socket",
                                  device.name, local.text),
                      repair, ask);
  }
  if (found.processors.size() == 1 && found.placed > 1 && near.size() > 1) {
    return check.find(Verdict::Advice,
                      fmt::format("{}: all of its {} interrupts come to processor {}", device.name,
                                  found.placed, *found.processors.begin()),
                      repair, ask);
  }
  check.find(Verdict::Ok,
             fmt::format("{}: {} of {} interrupts come to processors near it; connections take "
                         "turns among its first completion vectors, at most {}",
                         device.name, found.near, found.placed, near.size()));
}

}  // namespace

Check check_cqe_payload(const InspectedHost& inspected) {
  Check check{"cqe-payload"};
  const auto devices = hardware_rnics(inspected.tree);
  if (!devices.empty() && find_unread_config(inspected, check)) return check;
  for (const RdmaDevice& device : devices) find_payload(inspected, device, check);
  check.find_nothing("no RNIC: messages are in their receive buffers", kNoRdmaDevice);
  return check;
}

Check check_immediate_length(const InspectedHost& inspected) {
  Check check{"immediate-length"};
  for (const RdmaDevice& device : rdma_devices(inspected.tree)) find_length(device, check);
  check.find_nothing("no RDMA device: over tcp and shm Perdure says the length", kNoRdmaDevice);
  return check;
}

Check check_fencing(const InspectedHost& inspected) {
  Check check{"fencing"};
  for (const RdmaDevice& device : rdma_devices(inspected.tree))
    find_fencing(inspected, device, check);
  check.find_nothing(
      "no RDMA device: over tcp and shm this process gives the rights, and takes "
      "them, at any size",
      kNoRdmaDevice);
  return check;
}

Check check_rnic_timeouts(const InspectedHost& inspected) {
  Check check{"rnic-timeouts"};
  const auto devices = hardware_rnics(inspected.tree);
  if (!devices.empty() && find_unread_config(inspected, check)) return check;
  for (const RdmaDevice& device : devices) {
    for (const RdmaPort& port : device.ports) find_timeouts(inspected, port, check);
  }
  check.find_nothing("no RNIC", kNoRdmaDevice);
  return check;
}

Check check_completion_vectors(const InspectedHost& inspected) {
  Check check{"completion-vectors"};
  for (const RdmaDevice& device : hardware_rnics(inspected.tree))
    find_vectors(inspected, device, check);
  check.find_nothing("no RNIC", kNoRdmaDevice);
  return check;
}

}  // namespace perdure::host
