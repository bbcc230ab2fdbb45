// The published tables. One small function per distinct recipe, one per column that chooses among
// them by row.
#include "plan/paper.h"

#include <fmt/format.h>

#include "plan/items.h"
#include "plan/steps.h"

namespace perdure::plan {
namespace {

using items::a;
using items::b;

using Steps = std::vector<RequesterStep>;
using Reactions = std::vector<std::vector<ResponderAction>>;

Method make(std::string name, Primary primary, const UpdateShape& shape, Steps steps,
            Reactions reactions = {}) {
  Method method;
  method.name = std::move(name);
  method.primary = primary;
  method.shape = shape;
  method.requester = std::move(steps);
  method.responder = std::move(reactions);
  return method;
}

bool needs_responder_flush(const ServerProfile& server) {
  return server.domain == PersistenceDomain::Dmp && !dma_bypasses_caches(server);
}

/// Whether arrival in the RNIC is durability, and the completion says that it has happened.
bool completion_is_enough(const ServerProfile& server) {
  return server.domain == PersistenceDomain::Wsp && !completes_early(server.transport);
}

/// Table 2, columns Write and WriteImm: one-sided unless DDIO keeps the data out of the domain.
Method singleton_write(const ServerProfile& server) {
  if (needs_responder_flush(server)) {
    return make("write-send-flush-ack", Primary::Write, singleton(),
                {write({a}), send({}, {a}), wait_ack()}, {{flush_item(a), ack()}});
  }
  if (completion_is_enough(server)) {
    return make("write-completion", Primary::Write, singleton(), {write({a}), wait_completion(0)});
  }
  return make("write-flush", Primary::Write, singleton(),
              {write({a}), flush({a}), wait_completion(1)});
}

Method singleton_write_imm(const ServerProfile& server) {
  if (needs_responder_flush(server)) {
    return make("write_imm-flush-ack", Primary::WriteImm, singleton(), {write_imm({a}), wait_ack()},
                {{flush_item(a), ack()}});
  }
  if (completion_is_enough(server)) {
    return make("write_imm-completion", Primary::WriteImm, singleton(),
                {write_imm({a}), wait_completion(0)});
  }
  return make("write_imm-flush", Primary::WriteImm, singleton(),
              {write_imm({a}), flush({a}), wait_completion(1)});
}

/// Tables 2 and 3, column Send: a message in PM is as good as its effect, where it is durable
/// there.
Method send_update(const ServerProfile& server, const UpdateShape& shape) {
  const bool both = shape == compound();
  const std::vector<Item> items = both ? std::vector<Item>{a, b} : std::vector<Item>{a};
  if (server.receive_buffers == ReceiveBuffers::Pm && !needs_responder_flush(server)) {
    if (completion_is_enough(server)) {
      return make("send-replay-completion", Primary::Send, shape,
                  {send_replayable(items), wait_completion(0)});
    }
    return make("send-replay-flush", Primary::Send, shape,
                {send_replayable(items), flush(items), wait_completion(1)});
  }
  std::vector<ResponderAction> reaction;
  for (const Item item : items) {
    reaction.push_back(copy_item(item));
    if (server.domain == PersistenceDomain::Dmp) reaction.push_back(flush_item(item));
  }
  reaction.push_back(ack());
  const bool flushes = server.domain == PersistenceDomain::Dmp;
  Method method = make(flushes ? "send-copy-flush-ack" : "send-copy-ack", Primary::Send, shape,
                       {send(items), wait_ack()}, {reaction});
  // Table 3 prints a FLUSH in this one cell that nothing needs: the acknowledgement says it all.
  const bool stray = both && server.domain == PersistenceDomain::Mhp && server.ddio == Ddio::Off;
  if (stray) {
    method.name = "send-stray-flush-copy-ack";
    method.requester.insert(method.requester.begin() + 1, flush(items));
  }
  return method;
}

Method compound_write(const ServerProfile& server) {
  if (needs_responder_flush(server)) {
    return make("write-send-flush-ack-each", Primary::Write, compound(),
                {write({a}), send({}, {a}), wait_ack(), write({b}), send({}, {b}), wait_ack()},
                {{flush_item(a), ack()}, {flush_item(b), ack()}});
  }
  if (server.domain == PersistenceDomain::Dmp) {
    Method method = make("write-flush-atomic-flush", Primary::Write, compound(),
                         {write({a}), flush({a}), write_atomic(b), flush({b}), wait_completion(3)});
    method.later_any_size = false;
    return method;
  }
  if (completion_is_enough(server)) {
    return make("write-completion", Primary::Write, compound(),
                {write({a}), write({b}), wait_completion(1)});
  }
  return make("write-flush", Primary::Write, compound(),
              {write({a}), write({b}), flush({a, b}), wait_completion(2)});
}

Method compound_write_imm(const ServerProfile& server) {
  if (needs_responder_flush(server)) {
    return make("write_imm-flush-ack-each", Primary::WriteImm, compound(),
                {write_imm({a}), wait_ack(), write_imm({b}), wait_ack()},
                {{flush_item(a), ack()}, {flush_item(b), ack()}});
  }
  if (server.domain == PersistenceDomain::Dmp) {
    return make("write_imm-flush-each", Primary::WriteImm, compound(),
                {write_imm({a}), flush({a}), wait_completion(1), write_imm({b}), flush({b}),
                 wait_completion(4)});
  }
  if (completion_is_enough(server)) {
    return make("write_imm-completion", Primary::WriteImm, compound(),
                {write_imm({a}), write_imm({b}), wait_completion(1)});
  }
  return make("write_imm-flush", Primary::WriteImm, compound(),
              {write_imm({a}), write_imm({b}), flush({a, b}), wait_completion(2)});
}

Method published(const ServerProfile& server, Primary primary, const UpdateShape& shape) {
  const bool single = shape == singleton();
  switch (primary) {
    case Primary::Write: return single ? singleton_write(server) : compound_write(server);
    case Primary::WriteImm:
      return single ? singleton_write_imm(server) : compound_write_imm(server);
    case Primary::Send: break;
  }
  return send_update(server, shape);
}

}  // namespace

std::string describe(const Scenario& scenario) {
  return fmt::format("{}: {}, {}", perdure::describe(scenario.profile), to_string(scenario.primary),
                     to_string(scenario.shape));
}

std::vector<ServerProfile> paper_profiles(Transport transport) {
  using enum PersistenceDomain;
  std::vector<ServerProfile> profiles;
  for (const PersistenceDomain domain : {Dmp, Mhp, Wsp}) {
    for (const Ddio ddio : {Ddio::On, Ddio::Off}) {
      for (const ReceiveBuffers buffers : {ReceiveBuffers::Dram, ReceiveBuffers::Pm}) {
        ServerProfile profile{domain, ddio, buffers, transport, {}};
        profile.capabilities.native_flush = true;
        // The papers' FLUSH reaches the memory controllers wherever inbound data goes past the
        // caches.
        profile.capabilities.persistent_flush = domain == Dmp && dma_bypasses_caches(profile);
        profile.capabilities.atomic_write = true;
        profile.write_order = WriteOrder::Ordered;
        profiles.push_back(profile);
      }
    }
  }
  return profiles;
}

std::vector<Scenario> paper_methods(Transport transport) {
  std::vector<Scenario> scenarios;
  for (const UpdateShape& shape : {singleton(), compound()}) {
    for (const ServerProfile& profile : paper_profiles(transport)) {
      for (const Primary primary : {Primary::Write, Primary::WriteImm, Primary::Send}) {
        scenarios.push_back({profile, primary, shape, published(profile, primary, shape)});
      }
    }
  }
  return scenarios;
}

}  // namespace perdure::plan
