// `perdure probe`: what this machine is as a responder and requester, each axis with the evidence
// for it, and the method that follows; or, with --doctor, what to do about it (doctor.h). It looks,
// and changes nothing.
#include "certify.h"
#include "client/named_options.h"
#include "commands.h"
#include "core/json.h"
#include "fabric/ofi/ofi.h"
#include "fabric/verbs/verbs.h"
#include "host/doctor.h"
#include "output.h"
#include "plan/plan.h"
#include "pmem/probe.h"
#include "rpmem_doctor.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

namespace perdure::app {
namespace {

using fabric::verbs::RnicReport;

/// What is known of the place, of the ways to reach it, and of the rest of the machine.
struct Machine {
  std::string path;
  pmem::ProbeReport place;
  Result<std::vector<RnicReport>> rnics;
  std::vector<pmem::ProbedAxis> rest;
};

/// One way to reach it, and what it is then.
struct Reached {
  std::string way;
  ServerProfile profile;
  std::string not_served;  // why no pool there is served that way; empty: it is
};

pmem::ProbedAxis receive_buffers_axis() {
  return {"receive buffers",
          "dram",
          {"Perdure's own choice when a peer starts; pm lets messages themselves survive, where "
           "the pool's memory does"}};
}

/// What the papers take for granted and an RNIC need not do.
std::vector<pmem::ProbedAxis> placement_axes() {
  return {{"write order",
           "unknown",
           {"over an RNIC nothing is known of the order in which WRITEs are placed, and methods do "
            "without; over tcp and shm this processor stores them in order",
            "remedy: declare write_order = \"ordered\" if neither network nor bus reorders"}},
          {"dma dirties",
           "no",
           {"what an RNIC writes into a pinned page of a file, the kernel does not notice: there "
            "data arrives by SEND",
            "remedy: declare dma_dirties = \"yes\" if the RNIC pages on demand and power cuts lost "
            "nothing; for memory that is pinned it changes nothing"}}};
}

pmem::ProbedAxis tcp_axis() {
  const auto device = fabric::ofi::open_device();
  if (!device.ok()) return {"transport tcp", "not available", {device.error().message}};
  return {"transport tcp",
          "available",
          {(*device)->describe(),
           "a completion comes before the peer has the data: only a reply or a read proves it"}};
}

std::string capability_words(const Capabilities& can) {
  std::string words;
  const auto add = [&](bool has, std::string_view word) {
    if (has) words += fmt::format("{}{}", words.empty() ? "" : ", ", word);
  };
  add(can.native_flush, can.persistent_flush ? "FLUSH to visibility and to persistence" : "FLUSH");
  add(can.atomic_write, "ATOMIC WRITE");
  return words.empty() ? "none beyond the basic verbs; a READ inside the written range stands in "
                         "for a FLUSH"
                       : words;
}

/// One axis for each RNIC that connections can be made over, or why there is none.
std::vector<pmem::ProbedAxis> rnic_axes(const Result<std::vector<RnicReport>>& rnics) {
  if (!rnics.ok()) return {{"rdma", "not available", {rnics.error().message}}};
  std::vector<pmem::ProbedAxis> axes;
  for (const RnicReport& rnic : *rnics) {
    pmem::ProbedAxis axis{"rnic " + rnic.name,
                          fmt::format("{} at {}{}", to_string(rnic.transport), rnic.address,
                                      rnic.software ? ", software" : ""),
                          rnic.evidence};
    axis.evidence.push_back("capabilities: " + capability_words(rnic.capabilities));
    if (completes_early(rnic.transport)) {
      axis.evidence.emplace_back("iWARP: a completion comes before the peer has the data");
    }
    axes.push_back(std::move(axis));
  }
  return axes;
}

pmem::ProbedAxis memlock_axis() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {"locked memory", "not known", {}};
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  pmem::ProbedAxis axis{"locked memory",
                        unlimited ? "unlimited" : fmt::format("{} KiB", limit.rlim_cur / 1024),
                        {"RLIMIT_MEMLOCK; tcp needs none, an RDMA device pins whole pools"}};
  if (!unlimited) axis.evidence.emplace_back("remedy: ulimit -l, or LimitMEMLOCK= of systemd");
  return axis;
}

pmem::ProbedAxis cores_axis() {
  const unsigned cores = std::thread::hardware_concurrency();
  return {"cores",
          fmt::format("{}", cores),
          {"waiting spins before it sleeps; with fewer cores than busy processes, spin less"}};
}

Result<Machine> examine(const std::string& path) {
  auto place = pmem::probe(path);
  if (!place.ok()) return place.error();
  Machine machine{path, std::move(place).value(), fabric::verbs::list_rnics(), {}};
  machine.rest = placement_axes();
  machine.rest.push_back(receive_buffers_axis());
  machine.rest.push_back(tcp_axis());
  for (auto& axis : rnic_axes(machine.rnics)) machine.rest.push_back(std::move(axis));
  machine.rest.push_back(memlock_axis());
  machine.rest.push_back(cores_axis());
  return machine;
}

/// Why an RNIC can not register a pool there; empty: it can.
std::string why_not_registered(const Machine& machine, const RnicReport& rnic) {
  if (rnic.pages_on_demand) return "";
  utsname kernel{};
  const bool known = ::uname(&kernel) == 0;
  const std::string why = host::why_not_pinned(machine.place.medium, known ? kernel.release : "");
  return why.empty() ? "" : fmt::format("{}, and {} does not page on demand", why, rnic.name);
}

/// The machine as a responder: reached over tcp first, then by each of its RNICs.
std::vector<Reached> ways_to(const Machine& machine) {
  ServerProfile profile;
  profile.domain = machine.place.domain;
  profile.ddio = machine.place.ddio;
  std::vector<Reached> ways{{"tcp", profile, ""}};
  if (!machine.rnics.ok()) return ways;
  for (const RnicReport& rnic : *machine.rnics) {
    profile.transport = rnic.transport;
    profile.capabilities = rnic.capabilities;
    // The RNIC grants it for memory that the kernel knows as persistent and that stays in place.
    profile.capabilities.persistent_flush &= machine.place.medium.is_device;
    ways.push_back({fmt::format("{} ({})", to_string(rnic.transport), rnic.name), profile,
                    why_not_registered(machine, rnic)});
  }
  return ways;
}

struct Conclusion {
  std::string way;
  ServerProfile profile;
  Level level = Level::Durable;
  Result<std::vector<plan::Candidate>> candidates{Error{}};
};

/// What a small record would use; where nothing is durable, what would at least make it visible.
Conclusion conclude(const Reached& reached) {
  plan::Update update;
  Conclusion conclusion{reached.way, reached.profile};
  conclusion.candidates = plan::candidates(reached.profile, update);
  if (conclusion.candidates.ok()) return conclusion;
  update.level = Level::Visible;
  conclusion.level = update.level;
  conclusion.candidates = plan::candidates(reached.profile, update);
  return conclusion;
}

constexpr char kServedOtherwise[] =
    "over this RNIC a pool on device DAX can be, and this one over tcp";

std::string axis_text(const pmem::ProbedAxis& axis) {
  std::string text = fmt::format("  {:<20}{}\n", axis.axis, axis.value);
  for (const std::string& sentence : axis.evidence) {
    text += fmt::format("  {:<22}{}\n", "", sentence);
  }
  return text;
}

std::string to_text(const Machine& machine) {
  std::string text = fmt::format("as a responder, a pool in {} would be\n", machine.path);
  for (const auto& axis : machine.place.axes) text += axis_text(axis);
  text += "the rest of this machine\n";
  for (const auto& axis : machine.rest) text += axis_text(axis);
  bool durable = true;
  for (const Reached& reached : ways_to(machine)) {
    if (!reached.not_served.empty()) {
      text += fmt::format("a pool there can not be served over {}: {}\n  {}\n", reached.way,
                          reached.not_served, kServedOtherwise);
      continue;
    }
    const Conclusion conclusion = conclude(reached);
    if (std::exchange(durable, conclusion.level == Level::Durable) && !durable) {
      text +=
          "no method makes a record durable there: its memory does not survive a power failure\n";
    }
    if (!conclusion.candidates.ok()) return text + conclusion.candidates.error().message + "\n";
    const plan::Candidate& best = conclusion.candidates->front();
    text += fmt::format("a record of 64 bytes over {} would be {} by {}\n  {}\n", conclusion.way,
                        to_string(conclusion.level), best.method.name, best.reason);
  }
  return text + "`perdure plan --help` asks for other sizes, shapes and machines\n";
}

nlohmann::ordered_json axis_json(const pmem::ProbedAxis& axis) {
  return {{"axis", axis.axis}, {"value", axis.value}, {"evidence", axis.evidence}};
}

nlohmann::ordered_json conclusion_json(const Conclusion& conclusion) {
  nlohmann::ordered_json json{{"level", to_string(conclusion.level)}};
  if (conclusion.candidates.ok()) {
    json["method"] = conclusion.candidates->front().method.name;
    json["reason"] = conclusion.candidates->front().reason;
  }
  return json;
}

std::string to_json(const Machine& machine) {
  nlohmann::ordered_json json{{"format", 1}, {"path", machine.path}};
  const std::vector<Reached> ways = ways_to(machine);
  json["profile"] = describe(ways.front().profile);
  json["axes"] = nlohmann::ordered_json::array();
  for (const auto& axis : machine.place.axes) json["axes"].push_back(axis_json(axis));
  for (const auto& axis : machine.rest) json["axes"].push_back(axis_json(axis));
  json.update(conclusion_json(conclude(ways.front())));
  json["rnics"] = nlohmann::ordered_json::array();
  for (std::size_t i = 1; i < ways.size(); ++i) {
    const RnicReport& rnic = (*machine.rnics)[i - 1];
    nlohmann::ordered_json entry{{"name", rnic.name},
                                 {"address", rnic.address},
                                 {"transport", to_string(rnic.transport)},
                                 {"software", rnic.software},
                                 {"native_flush", rnic.capabilities.native_flush},
                                 {"persistent_flush", rnic.capabilities.persistent_flush},
                                 {"atomic_write", rnic.capabilities.atomic_write},
                                 {"evidence", rnic.evidence},
                                 {"profile", describe(ways[i].profile)}};
    if (ways[i].not_served.empty()) {
      entry.update(conclusion_json(conclude(ways[i])));
    } else {
      entry["not_served"] = ways[i].not_served;
      entry["remedy"] = kServedOtherwise;
    }
    json["rnics"].push_back(entry);
  }
  return json_text(json, 2) + "\n";
}

constexpr char kConfigFile[] = "/etc/perdure/perdured.toml";

/// Failed if there is a problem, so that scripts can ask before they start perdured.
/// A configuration that was named has to be there.
ExitStatus run_doctor(std::string path, const std::optional<std::string>& config, bool rpmem,
                      Format format) {
  std::optional<RpmemUser> user;
  if (rpmem) {
    auto found = this_user();
    if (!found.ok()) return fail(found.error());
    user = std::move(*found);
    const std::string sets = poolset_dir_of(host::SystemTree(), *user);
    if (path == "." && ::access(sets.c_str(), F_OK) == 0) path = sets;
  }
  const auto inspected = host::inspect_host(path, config.value_or(kConfigFile));
  if (!inspected.ok()) return fail(inspected.error());
  if (config && !inspected->config.ok() && inspected->config.code() == ErrorCode::NotFound)
    return fail(inspected->config.error());
  std::vector<host::Check> checks = host::check_host(*inspected);
  if (user) {
    auto more = check_rpmem(*inspected, *user);
    checks.insert(checks.begin(), more.begin(), more.end());
  }
  print(format == Format::Json ? host::doctor_json(*inspected, checks)
                               : host::doctor_text(*inspected, checks));
  const bool ill = std::any_of(checks.begin(), checks.end(), [](const host::Check& check) {
    return check.verdict == host::Verdict::Problem;
  });
  return ill ? ExitStatus::Failed : ExitStatus::Ok;
}

void add_certify_options(Command command, CertifyCommand& certify, Option needed) {
  command
      .add_option("--timeout-s", certify.timeout_s, "How long one answer of the peer may take (5)")
      .range(1, 3600)
      .option_text("S")
      .needs(needed);
  add_word_option(command, "--power-cut", certify.power_cut, parse_power_cut_phase,
                  "Instead of the list: arm writes until you cut the peer's power; check, when it\n"
                  "is back, says whether all that it had acknowledged is there",
                  "arm|check")
      .needs(needed);
  command
      .add_option("--state", certify.state_file,
                  "Where --power-cut keeps on this machine what was acknowledged")
      .option_text("FILE")
      .needs(needed);
  add_word_option(command, "--primary", certify.primary, client::parse_primary_choice,
                  "The operation by which --power-cut arm writes (planned)",
                  "planned|write|write_imm|send")
      .needs(needed);
  command
      .add_option("--write-for-s", certify.write_for_s,
                  "How long --power-cut arm writes at most (600)")
      .range(1, 86'400)
      .option_text("S")
      .needs(needed);
}

}  // namespace

void add_probe_command(Command app) {
  struct Options {
    std::string path = ".";
    Format format = Format::Text;
    bool doctor = false;
    bool rpmem = false;
    std::optional<std::string> config;
    CertifyCommand certify;
  };
  const auto options = std::make_shared<Options>();
  const Command command =
      app.add_subcommand("probe", "What this machine is: every axis, with the evidence for it");
  command
      .add_option("path", options->path,
                  "Where a pool would be: a directory, a file or a DAX device (.)")
      .option_text("[PATH]");
  add_format_option(command, options->format);
  const Option doctor =
      command.add_flag("--doctor", options->doctor,
                       "Go through a checklist instead: what is well, what is not, and what to\n"
                       "do. Exit status 1 if data can be lost or something can not work");
  command
      .add_option("--config", options->config,
                  "What is declared to perdured, for --doctor (/etc/perdure/perdured.toml)")
      .option_text("FILE")
      .needs(doctor);
  command
      .add_flag("--rpmem", options->rpmem,
                "Also as a target of programs on librpmem, for the user who asks:\n"
                "sets, login, memlock, persist-apm. PATH is its poolset-dir if none is named")
      .needs(doctor);
  const Option certify =
      command
          .add_option("--certify", options->certify.peer,
                      "Try on this peer what its RNIC does beside the verbs, and report it.\n"
                      "Exit status 1 if something is broken, or nothing could be begun")
          .option_text("HOST:PORT");
  certify.excludes(doctor);
  command.add_option("--pool", options->certify.pool, "The peer's pool to try it on")
      .option_text("NAME")
      .needs(certify);
  add_transport_option(command, options->certify.over);
  command.add_flag("--overwrite", options->certify.overwrite, "What that pool holds may be lost")
      .needs(certify);
  add_certify_options(command, options->certify, certify);
  add_examples(command,
               "  perdure probe\n"
               "  perdure probe --certify 10.2.0.1:7470 --pool scratch --overwrite\n"
               "  perdure probe --certify 10.2.0.1:7470 --pool scratch --overwrite --power-cut arm "
               "--state cut\n"
               "  perdure probe --certify 10.2.0.1:7470 --power-cut check --state cut\n"
               "  perdure probe /dev/dax0.0\n"
               "  perdure probe /dev/shm --format json\n"
               "  perdure probe --doctor /var/lib/perdure\n"
               "  perdure probe --doctor --rpmem\n"
               "  perdure probe --doctor --config perdured.toml --format json /var/lib/perdure");
  run_with(command, [options] {
    if (options->certify.power_cut) return run_power_cut(options->certify, options->format);
    if (!options->certify.peer.empty()) return run_certify(options->certify, options->format);
    if (options->doctor)
      return run_doctor(options->path, options->config, options->rpmem, options->format);
    const auto machine = examine(options->path);
    if (!machine.ok()) return fail(machine.error());
    print(options->format == Format::Json ? to_json(*machine) : to_text(*machine));
    return ExitStatus::Ok;
  });
}

}  // namespace perdure::app
