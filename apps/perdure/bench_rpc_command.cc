// `perdure bench rpc`: the RPC designs that durable RPC is compared with. So far it explains them.
#include "bench_commands.h"
#include "output.h"
#include "rpc/models/design.h"

#include <fmt/format.h>

#include <memory>
#include <string>

namespace perdure::app {
namespace {

std::string design_names() {
  std::string names;
  for (const rpc::models::Design* design : rpc::models::designs()) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", design->name);
  }
  return names;
}

Result<void> check_design(const std::string& name) {
  if (rpc::models::find_design(name) != nullptr) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("there is no design '{}'; there are: {}", name, design_names())};
}

}  // namespace

void add_bench_rpc(Command bench) {
  const Command command =
      bench.add_subcommand("rpc", "RPC designs over RDMA that durable RPC is compared with");
  auto name = std::make_shared<std::string>();
  command.add_option("--explain", *name, "Draw a call of that design: " + design_names())
      .required()
      .each(check_design)
      .option_text("NAME");
  add_examples(command, "  perdure bench rpc --explain farm\n");
  run_with(command, [name] {
    print(rpc::models::explain(*rpc::models::find_design(*name)));
    return ExitStatus::Ok;
  });
}

}  // namespace perdure::app
