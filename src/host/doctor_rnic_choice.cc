// Which RNIC perdured takes, for each transport that it is told to offer.
#include <fmt/format.h>

#include <algorithm>

#include "host/doctor_checks.h"
#include "host/rdma_devices.h"

namespace perdure::host {
namespace {

/// RNICs among which one is chosen: those that have a port of such a kind.
struct Choice {
  std::string transport;  // empty: no configuration names one
  std::vector<RdmaKind> kinds;

  std::string carriers() const {
    return transport.empty() ? "RNIC" : "RNIC that carries " + transport;
  }
};

/// A transport over RDMA, and the ports that carry it. EFA's carry none.
constexpr std::pair<Transport, RdmaKind> kCarriers[] = {
    {Transport::InfiniBand, RdmaKind::InfiniBand},
    {Transport::Roce, RdmaKind::Roce},
    {Transport::Iwarp, RdmaKind::Iwarp}};

/// One for each transport of the configuration; without it, one for whichever is asked for.
std::vector<Choice> choices_of(const InspectedHost& inspected) {
  std::vector<Choice> choices;
  Choice any;
  for (const auto& [transport, kind] : kCarriers) {
    any.kinds.push_back(kind);
    if (!inspected.config.ok()) continue;
    const auto& wanted = inspected.config->transports;
    if (std::find(wanted.begin(), wanted.end(), transport) == wanted.end()) continue;
    choices.push_back({std::string(to_string(transport)), {kind}});
  }
  if (!inspected.config.ok()) choices.push_back(any);
  return choices;
}

bool is_port_up(const RdmaPort& port) { return port.state.text == "4: ACTIVE"; }

bool is_of(const RdmaPort& port, const Choice& choice) {
  return std::find(choice.kinds.begin(), choice.kinds.end(), port.kind) != choice.kinds.end();
}

bool carries(const RdmaDevice& device, const Choice& choice) {
  return std::any_of(device.ports.begin(), device.ports.end(),
                     [&](const RdmaPort& port) { return is_of(port, choice); });
}

bool is_up(const RdmaDevice& device, const Choice& choice) {
  return std::any_of(device.ports.begin(), device.ports.end(),
                     [&](const RdmaPort& port) { return is_of(port, choice) && is_port_up(port); });
}

std::string kind_words(const RdmaDevice& device) {
  return std::string(device.ports.empty() ? "without ports" : to_string(device.ports.front().kind));
}

/// "mlx5_0 (RoCE, up)".
std::string names_of(const std::vector<RdmaDevice>& devices) {
  std::string names;
  for (const RdmaDevice& device : devices) {
    const bool up = std::any_of(device.ports.begin(), device.ports.end(), is_port_up);
    names += fmt::format("{}{} ({}, {})", names.empty() ? "" : ", ", device.name,
                         kind_words(device), up ? "up" : "down");
  }
  return names;
}

void find_named_rnic(const std::string& wanted, const Choice& choice,
                     const std::vector<RdmaDevice>& devices, Check& check) {
  const auto named = std::find_if(devices.begin(), devices.end(),
                                  [&](const RdmaDevice& device) { return device.name == wanted; });
  if (named == devices.end() && wanted.find_first_of(".:") != std::string::npos) {
    return check.find(Verdict::NotKnown,
                      fmt::format("which RNIC has the address {} no file tells", wanted),
                      "look whose it is", {"ip address", "rdma link"});
  }
  if (named == devices.end()) {
    return check.find(Verdict::Problem,
                      fmt::format("{}, which the configuration names, is not here", wanted),
                      "name one that is here, by its name or its address", {"rdma link"});
  }
  if (!carries(*named, choice)) {
    return check.find(Verdict::Problem,
                      fmt::format("{}, which the configuration names, is {}, and carries no {}",
                                  wanted, kind_words(*named), choice.transport),
                      "name another one, or other transports in [data]", {"rdma link"});
  }
  if (!is_up(*named, choice)) {
    return check.find(Verdict::Problem, wanted + ", which the configuration names, is down",
                      "bring it up, or name another one", {"rdma link"});
  }
  check.find(Verdict::Ok, wanted + ", which the configuration names, is up");
}

void find_first_rnic(const InspectedHost& inspected, const Choice& choice,
                     const std::vector<RdmaDevice>& devices, Check& check) {
  std::vector<std::string> up;
  for (const RdmaDevice& device : devices) {
    if (is_up(device, choice)) up.push_back(device.name);
  }
  if (up.empty()) {
    return check.find(Verdict::Problem, fmt::format("no {} is up", choice.carriers()),
                      choice.transport.empty() ? "bring one up"
                                               : "bring one up, or name other transports in [data]",
                      {"rdma link"});
  }
  if (up.size() == 1) {
    return check.find(Verdict::Ok, up.front() + " is the one that is up, and is taken");
  }
  check.find(Verdict::Advice,
             fmt::format("{} RNICs are up and none is named: of those that carry the transport, "
                         "the one whose network interface the system lists first is taken",
                         up.size()),
             "name one: rnic in [data] of perdured's configuration, --rnic at requesters",
             {"rdma link", "perdure probe " + inspected.place.path});
}

}  // namespace

Check check_rnic_choice(const InspectedHost& inspected) {
  Check check{"rnic-choice"};
  const auto devices = rdma_devices(inspected.tree);
  if (devices.empty()) {
    check.find_nothing("no RDMA device", kNoRdmaDevice);
    return check;
  }
  if (find_unread_config(inspected, check)) return check;
  const std::vector<Choice> choices = choices_of(inspected);
  if (choices.empty()) {
    check.find_nothing("perdured is told to use none",
                       inspected.config_file + ": transports has tcp and shm only");
    return check;
  }
  check.evidence.push_back("/sys/class/infiniband: " + names_of(devices));
  const std::string wanted = inspected.settings().rnic;
  if (!wanted.empty())
    check.evidence.push_back(fmt::format("{}: rnic = \"{}\"", inspected.config_file, wanted));
  for (const Choice& choice : choices) {
    if (wanted.empty()) {
      find_first_rnic(inspected, choice, devices, check);
    } else {
      find_named_rnic(wanted, choice, devices, check);
    }
  }
  return check;
}

}  // namespace perdure::host
