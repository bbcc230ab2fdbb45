#include "bench/rpc_calls.h"

#include "core/assert.h"
#include "core/bytes.h"
#include "core/random.h"
#include "workload/ycsb/ycsb.h"

#include <algorithm>
#include <cstring>

namespace perdure::bench {
namespace {

/// YCSB's operations as calls: a scan reads its records one after another, a read-modify-write is
/// a read and a write. The clients hold the index, as in section 5.1 of *durable RPC*.
std::vector<RpcCallPlan> plan_ycsb(const RpcLoad& load, std::uint64_t calls, std::uint64_t seed) {
  const auto mix = workload::ycsb_mix(load.ycsb);
  PERDURE_ASSERT(mix.ok());
  workload::Ycsb ycsb(*mix, load.objects, seed);
  std::vector<RpcCallPlan> plan;
  plan.reserve(calls + workload::kYcsbScanMax);
  const auto add = [&](bool is_write, std::uint64_t record) {
    plan.push_back({is_write, static_cast<std::uint32_t>(record % load.objects)});
  };
  while (plan.size() < calls) {
    const workload::YcsbOperation operation = ycsb.next();
    switch (operation.kind) {
      case workload::YcsbKind::Read: add(false, operation.record); break;
      case workload::YcsbKind::Update:
      case workload::YcsbKind::Insert: add(true, operation.record); break;
      case workload::YcsbKind::Scan:
        for (std::uint64_t i = 0; i < operation.scan; ++i) add(false, operation.record + i);
        break;
      case workload::YcsbKind::ReadModifyWrite:
        add(false, operation.record);
        add(true, operation.record);
        break;
    }
  }
  plan.resize(calls);
  return plan;
}

}  // namespace

std::vector<RpcCallPlan> plan_rpc_calls(const RpcLoad& load, std::uint64_t client) {
  const std::uint64_t calls = load.warm_up + load.calls;
  const std::uint64_t seed = load.seed * 1'000'003 + client;
  if (load.ycsb != 0) return plan_ycsb(load, calls, seed);
  if (load.graph) {
    std::vector<RpcCallPlan> blocks(calls);
    for (std::uint64_t i = 0; i < calls; ++i) {
      blocks[i].object = static_cast<std::uint32_t>(i % load.objects);
    }
    return blocks;
  }
  Random random(seed);
  workload::ZipfianRanks ranks(workload::kYcsbZipfian);
  for (std::uint64_t i = 0; i < load.objects; ++i) ranks.grow();
  std::vector<RpcCallPlan> plan(calls);
  for (RpcCallPlan& call : plan) {
    call.is_write = random.below(100) >= load.read_percent;
    call.object = static_cast<std::uint32_t>(ranks.draw(random));
  }
  return plan;
}

std::size_t encode_rpc_call(const RpcLoad& load, const RpcCallPlan& plan,
                            std::span<std::byte> request) {
  std::size_t at = 0;
  for (std::size_t i = 0; i < load.batch; ++i) {
    const auto object = static_cast<std::uint32_t>((plan.object + i) % load.objects);
    store(request.data() + at, plan.is_write ? object | kRpcWriteBit : object);
    store(request.data() + at + 4, static_cast<std::uint32_t>(load.object_bytes));
    at += kRpcRequestHeader;
    if (!plan.is_write) continue;
    store(request.data() + at, object);
    at += load.object_bytes;
  }
  return at;
}

bool is_rpc_reply(const RpcLoad& load, const RpcCallPlan& plan, std::span<const std::byte> reply) {
  if (plan.is_write) return reply.empty();
  if (reply.size() != load.batch * load.object_bytes) return false;
  for (std::size_t i = 0; i < load.batch; ++i) {
    const auto object = static_cast<std::uint32_t>((plan.object + i) % load.objects);
    if (perdure::load<std::uint32_t>(reply.data() + i * load.object_bytes) != object) return false;
  }
  return true;
}

RpcObjects::RpcObjects(const RpcLoad& load)
    : object_bytes_(load.object_bytes),
      objects_(load.objects),
      bytes_(load.object_bytes * load.objects, std::byte{0x5a}) {
  PERDURE_ASSERT(load.object_bytes >= sizeof(std::uint32_t));
  if (load.graph) {
    PERDURE_ASSERT(load.graph->blocks.size() == bytes_.size());
    bytes_ = load.graph->blocks;  // each begins with its number, too
    return;
  }
  for (std::uint32_t i = 0; i < load.objects; ++i) store(object(i).data(), i);
}

std::span<std::byte> RpcObjects::object(std::uint32_t number) {
  PERDURE_ASSERT(number < objects_);
  return std::span(bytes_).subspan(number * object_bytes_, object_bytes_);
}

}  // namespace perdure::bench
