// perdure-kv check: whether all laws of a store hold, in a pool that nobody serves.
#include <fmt/format.h>

#include <cstdio>
#include <optional>

#include "commands.h"
#include "core/json.h"
#include "core/try.h"
#include "kv/kv_audit.h"
#include "kv/kv_format.h"
#include "rpc/rpc_pool.h"

namespace perdure::kv_app {
namespace {

constexpr int kCheckFormat = 1;  // docs/kv-check.schema.json
constexpr const char* kCheckFooter = R"(
exit status: 0, the store is right; 1, it could not be looked at; 3, a law does not hold

examples:
  perdure-kv check kv.pool
  perdure-kv check kv.pool --format json)";

struct CheckArguments {
  std::string pool;
  std::optional<PersistenceDomain> declared;
  std::string format = "text";
};

/// Recovers the pool as the next server would, executes nothing, and reads all of the store.
/// `looked`: the pool is that of a store, and what is said is said of the store.
Result<kv::KvAudit> audit_pool(const CheckArguments& arguments, bool& looked) {
  PERDURE_TRY(ended, rpc::open_ended_pool(arguments.pool, arguments.declared));
  if (const std::string vain = rpc::flushed_in_vain(ended, arguments.pool); !vain.empty())
    fmt::print(stderr, "perdure-kv: {}\n", vain);
  if (ended.pool->shape().application != kv::kApplication) {
    return Error{ErrorCode::NotFound,
                 fmt::format("{} is the pool of a durable RPC server, and no store: see "
                             "`perdure rpc list {}`",
                             arguments.pool, arguments.pool)};
  }
  auto audited = kv::audit(kv::KvImage(ended.pool->handlers_data()));
  looked = true;
  return audited;
}

void print_json(const std::string& file, const Result<kv::KvAudit>& audited) {
  nlohmann::ordered_json json = {
      {"format", kCheckFormat},
      {"pool", file},
      {"right", audited.ok()},
      {"problem", audited.ok() ? "" : audited.error().message},
  };
  if (audited.ok()) {
    json["keys"] = audited->keys;
    json["record_bytes"] = audited->record_bytes;
    json["keys_max"] = audited->slots;
    json["keys_available"] = audited->slots_available;
    json["keys_granted"] = audited->granted_slots;
    json["block_bytes"] = audited->block_bytes;
    json["blocks"] = audited->blocks;
    json["blocks_available"] = audited->blocks_available;
    json["blocks_granted"] = audited->granted_blocks;
  }
  fmt::print("{}\n", json_text(json, 2));
}

int check(const CheckArguments& arguments) {
  bool looked = false;
  const auto audited = audit_pool(arguments, looked);
  if (!looked || (!audited.ok() && audited.code() != ErrorCode::Corrupt))
    return report(audited.error());
  if (arguments.format == "json") {
    print_json(arguments.pool, audited);
  } else if (audited.ok()) {
    fmt::print(
        "{}: the store is right\n  keys    {} of {}, {} bytes with their values\n"
        "  blocks  {} of {} are free, {} bytes each\n",
        arguments.pool, audited->keys, audited->slots, audited->record_bytes,
        audited->blocks_available, audited->blocks, audited->block_bytes);
  }
  if (audited.ok()) return 0;
  if (arguments.format != "json") {
    fmt::print("{}: the store is damaged: {}\n", arguments.pool, audited.error().message);
  }
  return kExitDamaged;
}

}  // namespace

void add_check_command(const app::Program& program, int& status) {
  static CheckArguments arguments;
  const app::Command command = program.add_subcommand(
      "check", "Whether all laws of the store in a pool hold; no server may run on it.");
  command.footer(kCheckFooter);
  command.add_option("POOL", arguments.pool, "file of the store").required();
  app::add_declared_option(command, arguments.declared,
                           "as its server is told: what survives a power failure there");
  command.add_option("--format", arguments.format, "text or json")
      .is_member({"text", "json"})
      .capture_default();
  command.callback([&status] { status = check(arguments); });
}

}  // namespace perdure::kv_app
