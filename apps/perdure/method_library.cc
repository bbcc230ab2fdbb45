// All methods known anywhere, gathered from the planner's catalog on every kind of responder.
#include "method_library.h"

#include "command_line/command_line.h"
#include "plan/catalog.h"
#include "plan/known_unsafe.h"
#include "plan/paper.h"

#include <fmt/format.h>

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace perdure::app {
namespace {

/// What looks at methods, and says whether it has seen enough.
using Visit = std::function<bool(Method&&)>;

bool visit_known(const ServerProfile& profile, const UpdateShape& shape, const Visit& visit) {
  for (const Level level : {Level::Durable, Level::Visible, Level::Received}) {
    for (const bool later_small : {false, true}) {
      if (later_small && shape.items_per_epoch.size() == 1) continue;  // there are no later ones
      plan::Request request{shape, level, later_small};
      request.polled = request.responder_posts = true;
      for (auto& known : plan::known_methods(profile, request)) {
        if (visit(std::move(known.method))) return true;
      }
    }
  }
  return false;
}

/// Every combination of the axes, with and without each capability.
std::vector<ServerProfile> all_profiles() {
  using enum PersistenceDomain;
  std::vector<ServerProfile> profiles;
  for (const PersistenceDomain domain : {Page, Dmp, Mhp, Wsp, None}) {
    for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp, Transport::Roce,
                                      Transport::Tcp, Transport::Shm}) {
      const unsigned combinations = placed_by_cpu(transport) ? 64 : 256;
      for (unsigned bits = 0; bits < combinations; ++bits) {
        ServerProfile profile{domain,
                              (bits & 1) != 0 ? Ddio::Off : Ddio::On,
                              (bits & 2) != 0 ? ReceiveBuffers::Pm : ReceiveBuffers::Dram,
                              transport,
                              {}};
        profile.capabilities = {(bits & 4) != 0, (bits & 8) != 0, (bits & 16) != 0,
                                (bits & 32) != 0};
        profile.write_order = (bits & 64) != 0 ? WriteOrder::Unknown : WriteOrder::Ordered;
        profile.dma_dirties = (bits & 128) != 0 ? DmaDirties::Yes : DmaDirties::No;
        profiles.push_back(profile);
      }
    }
  }
  return profiles;
}

/// All of them, in the order in which a name is looked for: there are some hundred thousand, and
/// most names are among the first. Whether `visit` has seen enough.
bool visit_methods(const ServerProfile& first, const std::optional<UpdateShape>& asked,
                   const Visit& visit) {
  std::vector<UpdateShape> shapes{singleton(), compound()};
  if (asked) shapes = {*asked};
  for (const UpdateShape& shape : shapes) {
    if (visit_known(first, shape, visit)) return true;
  }
  for (auto& known_unsafe : plan::known_unsafe_methods()) {
    if (visit(std::move(known_unsafe.method))) return true;
  }
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (auto& scenario : plan::paper_methods(transport)) {
      if (visit(std::move(scenario.method))) return true;
    }
  }
  for (const ServerProfile& profile : all_profiles()) {
    for (const UpdateShape& shape : shapes) {
      if (visit_known(profile, shape, visit)) return true;
    }
  }
  return false;
}

}  // namespace

Result<Method> find_method(const std::string& name, const ServerProfile& profile,
                           const std::optional<UpdateShape>& shape) {
  std::optional<Method> found;
  std::set<std::string> others;
  visit_methods(profile, shape, [&](Method&& method) {
    if (shape && method.shape != *shape) return false;
    if (method.name != name) {
      others.insert(std::move(method.name));
      return false;
    }
    found = std::move(method);
    return true;
  });
  if (found) return *std::move(found);
  const std::string of_shape = shape ? fmt::format(" for a {} update", to_string(*shape)) : "";
  const auto meant = nearest_word(name, {others.begin(), others.end()});
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format("no method is called '{}'{}; {}`perdure check --list` has all names", name,
                  of_shape, meant ? fmt::format("did you mean '{}'? ", *meant) : "")};
}

std::string list_methods() {
  std::map<std::string, std::set<std::string>> shapes;
  visit_methods(ServerProfile{}, std::nullopt, [&](Method&& method) {
    shapes[method.name].insert(to_string(method.shape));
    return false;
  });
  std::string text;
  for (const auto& [name, of] : shapes) {
    text += fmt::format("{:<44}{}\n", name, fmt::join(of, ", "));
  }
  return text;
}

}  // namespace perdure::app
