// perdure-kv: a key-value store on durable RPC (docs/kv.md).
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "commands.h"
#include "control/version.h"

namespace perdure::kv_app {
namespace {

constexpr const char* kFooter = R"(
  perdure-kv serve --pool kv.pool --resp 127.0.0.1:6379
  redis-cli set name value

docs/kv.md says what is promised.)";

int run(int argc, char** argv) {
  int status = 0;
  app::Program program("A key-value store: what it acknowledged survives any crash.", "perdure-kv");
  program.footer(kFooter);
  program.set_version("perdure-kv " + std::string(control::version()));
  program.require_subcommand();
  add_serve_command(program, status);
  add_resp_command(program, status);
  add_check_command(program, status);
  add_bench_command(program, status);
  switch (program.parse(argc, argv)) {
    case app::Program::Parsed::Right: break;
    case app::Program::Parsed::Answered: return 0;
    case app::Program::Parsed::Wrong: return kExitUsage;
  }
  return status;
}

}  // namespace

int report(const Error& error) {
  fmt::print(stderr, "perdure-kv: {}\n", error.message);
  return error.code == ErrorCode::InvalidArgument ? kExitUsage : kExitFailed;
}

}  // namespace perdure::kv_app

int main(int argc, char** argv) { return perdure::kv_app::run(argc, argv); }
