#include "bench/rpc_point.h"

#include "bench/rpc_calls.h"
#include "bench/rpc_ends.h"
#include "core/json.h"
#include "core/named.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

namespace perdure::bench {

std::string_view to_string(RpcFabric fabric) {
  switch (fabric) {
    case RpcFabric::Emu: return "emu";
    case RpcFabric::Shm: return "shm";
    case RpcFabric::Tcp: return "tcp";
  }
  return "?";
}

report::Origin origin_of(RpcFabric fabric) {
  return fabric == RpcFabric::Emu ? report::Origin::Emulated : report::Origin::Measured;
}

Result<RpcFabric> parse_rpc_fabric(std::string_view word) {
  using enum RpcFabric;
  return find_named("fabric", word, std::array{Emu, Shm, Tcp});
}

std::string_view to_string(RpcForm form) {
  switch (form) {
    case RpcForm::Paper: return "paper";
    case RpcForm::Artifact: return "artifact";
    case RpcForm::Equalised: return "equalised";
  }
  return "?";
}

std::vector<RpcConfounder> rpc_confounders() {
  using C = RpcConfounders;
  return {
      {"answers-before-flush", "S-RFlush-RPC, W-RFlush-RPC say durable before they flush",
       &C::answers_before_flush},
      {"waits-before-mailbox", "L5 waits for its data's completion before it rings the mailbox",
       &C::waits_before_mailbox},
      {"reads-whole-replies", "RFP's READs are as long as an object, of writes too",
       &C::reads_whole_replies},
      {"registers-at-warm-up", "ScaleRPC registers memory at each warm-up",
       &C::registers_at_warm_up},
      {"reuses-places", "WFlush-RPC uses a place again before its call was executed",
       &C::reuses_places},
      {"other-windows", "SFlush-RPC and WFlush-RPC have 4 calls in flight, all others 1",
       &C::other_windows},
      {"skips-processing", "the injected work is left out of durable designs' writes",
       &C::skips_processing},
      {"leaves-payload", "S-RFlush-RPC never moves what is written to its object",
       &C::leaves_payload},
      {"ends-when-sent",
       "calls of FaRM and W-RFlush-RPC, reads of SFlush-RPC and WFlush-RPC are over when sent",
       &C::ends_when_sent},
      {"flushes-first-line", "64 B of an object that is written are flushed, whatever its size",
       &C::flushes_first_line},
  };
}

std::size_t rpc_payload_bytes(const RpcLoad& load) {
  return load.batch * (kRpcRequestHeader + load.object_bytes);
}

RpcConfounders RpcPoint::effective() const {
  if (form == RpcForm::Paper) return {};
  if (form == RpcForm::Equalised) return confounders;
  RpcConfounders all;
  for (const RpcConfounder& each : rpc_confounders()) all.*each.flag = true;
  return all;
}

std::size_t RpcPoint::in_flight() const {
  const RpcConfounders on = effective();
  if (on.other_windows) {
    return design == &rpc::models::kSflush || design == &rpc::models::kWflush ? 4 : 1;
  }
  if (form == RpcForm::Equalised) return window;
  return design->is_durable ? rpc::models::kWindowMax : 1;
}

std::size_t RpcPoint::unfinished() const {
  // An application that calls, waits until the call is over, and calls again.
  return form == RpcForm::Equalised && !effective().other_windows ? window : 1;
}

std::string RpcPoint::description() const {
  std::string on;
  for (const RpcConfounder& each : rpc_confounders()) {
    if (effective().*each.flag) on += fmt::format(" {}", each.name);
  }
  return fmt::format(
      "{} {} {} window={} bytes={} objects={} calls={} warm_up={} reads={} processing={} batch={} "
      "clients={} ycsb={} network={} client_spinners={} server_spinners={}{} seed={}{}{}",
      design->name, to_string(fabric), to_string(form), in_flight(), load.object_bytes,
      load.objects, load.calls, load.warm_up, load.read_percent, load.processing.count(),
      load.batch, load.clients, load.ycsb == 0 ? '-' : load.ycsb, load.network_clients,
      load.client_spinners, load.server_spinners, load.pinned ? " pinned" : "", load.seed,
      load.graph ? fmt::format(" graph={}", load.graph->name) : "", on);
}

std::string RpcPoint::impossible() const {
  if (rpc_payload_bytes(load) > design->payload_bytes_max) {
    return fmt::format("{} carries {} B at most", design->title, design->payload_bytes_max);
  }
  if (design->needs_send_flush && fabric != RpcFabric::Emu) {
    return "SFLUSH is a verb of the emulated fabric alone";
  }
  if (fabric == RpcFabric::Emu && load.client_spinners + load.server_spinners > 0) {
    return "the emulated fabric has no processors that programs share";
  }
  if (fabric == RpcFabric::Emu && load.network_clients > 0) {
    return "the emulated fabric has no wire that connections share";
  }
  return "";
}

nlohmann::json to_json(const RpcSample& sample) {
  return {{"calls", sample.calls},         {"lost", sample.lost},
          {"seconds", sample.seconds},     {"mean_us", sample.mean_us},
          {"p50_us", sample.p50_us},       {"p99_us", sample.p99_us},
          {"client_us", sample.client_us}, {"server_us", sample.server_us}};
}

Result<RpcSample> rpc_sample_from_json(const nlohmann::json& json) {
  const auto number = [&](const char* name) {
    return json.is_object() && json.contains(name) && json[name].is_number()
               ? std::optional<double>(json[name].get<double>())
               : std::nullopt;
  };
  RpcSample sample;
  const auto calls = number("calls");
  const auto lost = number("lost");
  if (!calls || !lost) return Error{ErrorCode::Corrupt, "no sample of a measurement"};
  sample.calls = static_cast<std::uint64_t>(*calls);
  sample.lost = static_cast<std::uint64_t>(*lost);
  const std::pair<const char*, double*> fields[]{
      {"seconds", &sample.seconds},     {"mean_us", &sample.mean_us},
      {"p50_us", &sample.p50_us},       {"p99_us", &sample.p99_us},
      {"client_us", &sample.client_us}, {"server_us", &sample.server_us}};
  for (const auto& [name, field] : fields) {
    const auto value = number(name);
    if (!value) return Error{ErrorCode::Corrupt, fmt::format("a sample has no {}", name)};
    *field = *value;
  }
  return sample;
}

Result<RpcSample> run_rpc_point(const RpcPoint& point) {
  const std::string why = point.impossible();
  if (!why.empty()) return Error{ErrorCode::Unsupported, why};
  return point.fabric == RpcFabric::Emu ? run_rpc_emulated(point) : run_rpc_measured(point);
}

}  // namespace perdure::bench
