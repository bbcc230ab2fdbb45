// What loading libfabric leaves as it was.
#include "fabric/ofi/ofi.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>

namespace perdure::fabric::ofi {
namespace {

#ifdef PERDURE_WITH_LIBFABRIC
constexpr std::array kSignals = {SIGTERM, SIGINT, SIGHUP, SIGSEGV, SIGABRT, SIGILL, SIGBUS};
using Handlers = std::array<void (*)(int), kSignals.size()>;

Handlers handlers() {
  Handlers found{};
  for (std::size_t i = 0; i < found.size(); ++i) {
    struct sigaction now {};
    ::sigaction(kSignals[i], nullptr, &now);
    found[i] = now.sa_handler;
  }
  return found;
}

void handle_nothing(int) {}

/// In a process of its own, where libfabric is not loaded yet: ends with how many handlers that
/// changes, or with 100 when it can not be done. SIGTERM has one of the program's own.
template <typename Load>
[[noreturn]] void end_with_changes(Load load) {
  (void)std::signal(SIGTERM, handle_nothing);
  const Handlers before = handlers();
  if (!load()) ::_exit(100);
  const Handlers after = handlers();
  int changed = 0;
  for (std::size_t i = 0; i < before.size(); ++i) changed += before[i] != after[i] ? 1 : 0;
  ::_exit(changed);
}

TEST(LibfabricDeathTest, LoadingItLeavesTheHandlersOfSignalsAsTheyWere) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // begins the program anew
  EXPECT_EXIT(end_with_changes([] { return open_device().ok(); }), testing::ExitedWithCode(0), "");
}

// What the test above protects from: where libfabric needs the PSM family, as Debian's does.
TEST(LibfabricDeathTest, ByItselfItTakesThem) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto load = [] { return ::dlopen("libfabric.so.1", RTLD_NOW | RTLD_LOCAL) != nullptr; };
  const auto takes_some = [](int status) {
    const int changed = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return changed > 0 && changed < 100;
  };
  if (::access("/usr/lib/x86_64-linux-gnu/libpsm2.so.2", R_OK) != 0) {
    GTEST_SKIP() << "there is no libpsm2 here";
  }
  EXPECT_EXIT(end_with_changes(load), takes_some, "");
}
#endif

}  // namespace
}  // namespace perdure::fabric::ofi
