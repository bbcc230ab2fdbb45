// Whether a fork() of the application can make an RNIC send stale bytes: a plain decision, apart
// from the calls that ask.
#pragma once

#include <infiniband/verbs.h>

namespace perdure::fabric::verbs {

enum class ForkProtection {
  Unneeded,  // since Linux 5.12 a fork() copies pinned pages at once, for the child
  Given,     // registered pages are kept out of the child (MADV_DONTFORK)
  Missing,   // needed, and memory was registered before anybody asked for it
};

/// By what ibv_fork_init() returned, and what ibv_is_fork_initialized() says after it. Before Linux
/// 5.12 a fork() makes registered pages copy-on-write: the parent's next store goes to a copy, and
/// the RNIC goes on with the old page.
constexpr ForkProtection fork_protection(int returned, ibv_fork_status status) {
  switch (status) {
    case IBV_FORK_UNNEEDED: return ForkProtection::Unneeded;
    case IBV_FORK_ENABLED: return ForkProtection::Given;  // whoever asked for it
    case IBV_FORK_DISABLED: break;
  }
  return returned == 0 ? ForkProtection::Given : ForkProtection::Missing;
}

}  // namespace perdure::fabric::verbs
