// `perdure probe`: what this machine is as a responder and requester, each axis with the evidence
// for it, and the method that follows; or, with --doctor, what to do about it (doctor.h). It looks,
// and changes nothing.
#include "commands.h"
#include "doctor.h"
#include "fabric/ofi/ofi.h"
#include "output.h"
#include "plan/plan.h"
#include "pmem/probe.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

namespace perdure::app {
namespace {

namespace fs = std::filesystem;

/// What is known of the place, of the ways to reach it, and of the rest of the machine.
struct Machine {
  std::string path;
  pmem::ProbeReport place;
  std::vector<pmem::ProbedAxis> rest;
};

std::string first_line(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

pmem::ProbedAxis receive_buffers_axis() {
  return {"receive buffers",
          "dram",
          {"Perdure's own choice when a peer starts; pm lets messages themselves survive, where "
           "the pool's memory does"}};
}

pmem::ProbedAxis tcp_axis() {
  const auto device = fabric::ofi::open_device();
  if (!device.ok()) return {"transport tcp", "not available", {device.error().message}};
  return {"transport tcp",
          "available",
          {(*device)->describe(),
           "a completion comes before the peer has the data: only a reply or a read proves it"}};
}

/// The RDMA devices of the kernel, with what is plugged in.
pmem::ProbedAxis rdma_axis() {
  pmem::ProbedAxis axis{"rdma devices", "none", {}};
  std::error_code none;
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator("/sys/class/infiniband", none)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    const fs::path port = fs::path("/sys/class/infiniband") / name / "ports" / "1";
    axis.evidence.push_back(fmt::format("{}: link layer {}, port 1 {}", name,
                                        first_line(port / "link_layer"),
                                        first_line(port / "state")));
  }
  if (names.empty()) {
    axis.evidence.emplace_back("/sys/class/infiniband has no entries");
  } else {
    axis.value = fmt::format("{}", names.size());
    axis.evidence.emplace_back("sessions run over tcp: this build has no verbs provider");
  }
  return axis;
}

pmem::ProbedAxis capabilities_axis() {
  return {"capabilities",
          "none beyond the basic verbs",
          {"native flush, atomic write, ordered persist and send flush are offered by no transport "
           "of this build; a read inside the written range stands in for a flush"}};
}

pmem::ProbedAxis memlock_axis() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_MEMLOCK, &limit) != 0) return {"locked memory", "not known", {}};
  const bool unlimited = limit.rlim_cur == RLIM_INFINITY;
  pmem::ProbedAxis axis{"locked memory",
                        unlimited ? "unlimited" : fmt::format("{} KiB", limit.rlim_cur / 1024),
                        {"RLIMIT_MEMLOCK; tcp needs none, an RDMA device pins whole pools"}};
  if (!unlimited) axis.evidence.emplace_back("way out: ulimit -l, or LimitMEMLOCK= of systemd");
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
  Machine machine{path, std::move(place).value(), {}};
  machine.rest = {receive_buffers_axis(), tcp_axis(),     rdma_axis(),
                  capabilities_axis(),    memlock_axis(), cores_axis()};
  return machine;
}

/// The machine as a responder that is reached over tcp.
ServerProfile profile_of(const Machine& machine) {
  ServerProfile profile;
  profile.domain = machine.place.domain;
  profile.ddio = machine.place.ddio;
  return profile;
}

struct Conclusion {
  Level level = Level::Durable;
  Result<std::vector<plan::Candidate>> candidates{Error{}};
};

/// What a small record would go by; where nothing is durable, what would at least make it visible.
Conclusion conclude(const Machine& machine) {
  plan::Update update;
  Conclusion conclusion;
  conclusion.candidates = plan::candidates(profile_of(machine), update);
  if (conclusion.candidates.ok()) return conclusion;
  update.level = Level::Visible;
  conclusion.level = update.level;
  conclusion.candidates = plan::candidates(profile_of(machine), update);
  return conclusion;
}

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
  const Conclusion conclusion = conclude(machine);
  if (conclusion.level != Level::Durable) {
    text += "no method makes a record durable there: its memory does not survive a power failure\n";
  }
  if (!conclusion.candidates.ok()) return text + conclusion.candidates.error().message + "\n";
  const plan::Candidate& best = conclusion.candidates->front();
  text += fmt::format("a record of 64 bytes over tcp would be {} by {}\n  {}\n",
                      to_string(conclusion.level), best.method.name, best.reason);
  return text + "`perdure plan --help` asks for other sizes, shapes and machines\n";
}

nlohmann::ordered_json axis_json(const pmem::ProbedAxis& axis) {
  return {{"axis", axis.axis}, {"value", axis.value}, {"evidence", axis.evidence}};
}

std::string to_json(const Machine& machine) {
  nlohmann::ordered_json json{{"format", 1}, {"path", machine.path}};
  json["profile"] = describe(profile_of(machine));
  json["axes"] = nlohmann::ordered_json::array();
  for (const auto& axis : machine.place.axes) json["axes"].push_back(axis_json(axis));
  for (const auto& axis : machine.rest) json["axes"].push_back(axis_json(axis));
  const Conclusion conclusion = conclude(machine);
  json["level"] = to_string(conclusion.level);
  if (conclusion.candidates.ok()) {
    json["method"] = conclusion.candidates->front().method.name;
    json["reason"] = conclusion.candidates->front().reason;
  }
  return json.dump(2) + "\n";
}

constexpr char kConfigFile[] = "/etc/perdure/perdured.toml";

/// Failed if there is a problem, so that scripts can ask before they start perdured.
/// A configuration that was named has to be there.
ExitStatus run_doctor(const std::string& path, const std::optional<std::string>& config,
                      Format format) {
  const auto patient = receive_patient(path, config.value_or(kConfigFile));
  if (!patient.ok()) return fail(patient.error());
  if (config && !patient->config.ok() && patient->config.code() == ErrorCode::NotFound)
    return fail(patient->config.error());
  const std::vector<Check> checks = examine_patient(*patient);
  print(format == Format::Json ? doctor_json(*patient, checks) : doctor_text(*patient, checks));
  const bool ill = std::any_of(checks.begin(), checks.end(), [](const Check& check) {
    return check.verdict == Verdict::Problem;
  });
  return ill ? ExitStatus::Failed : ExitStatus::Ok;
}

}  // namespace

void add_probe_command(CLI::App& app) {
  struct Options {
    std::string path = ".";
    Format format = Format::Text;
    bool doctor = false;
    std::optional<std::string> config;
  };
  const auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("probe", "What this machine is: every axis, with the evidence for it");
  command
      ->add_option("path", options->path,
                   "Where a pool would be: a directory, a file or a DAX device (.)")
      ->option_text("[PATH]");
  add_format_option(*command, options->format);
  CLI::Option* doctor =
      command->add_flag("--doctor", options->doctor,
                        "Go through a checklist instead: what is well, what is not, and what to\n"
                        "do. Exit status 1 if data can be lost or something can not work");
  command
      ->add_option("--config", options->config,
                   "What is declared to perdured, for --doctor (/etc/perdure/perdured.toml)")
      ->option_text("FILE")
      ->needs(doctor);
  add_examples(*command,
               "  perdure probe\n"
               "  perdure probe /dev/dax0.0\n"
               "  perdure probe /dev/shm --format json\n"
               "  perdure probe --doctor /var/lib/perdure\n"
               "  perdure probe --doctor --config perdured.toml --format json /var/lib/perdure");
  run_with(*command, [options] {
    if (options->doctor) return run_doctor(options->path, options->config, options->format);
    const auto machine = examine(options->path);
    if (!machine.ok()) return fail(machine.error());
    print(options->format == Format::Json ? to_json(*machine) : to_text(*machine));
    return ExitStatus::Ok;
  });
}

}  // namespace perdure::app
