// When memory is registered for paging on demand: plain decisions, apart from the verbs.
#pragma once

#include <cerrno>
#include <cstdint>

#include "fabric/fabric.h"

namespace perdure::fabric::verbs {

/// Whether memory whose registration was refused for `reason` (an errno) is to be registered for
/// paging on demand. Only memory that can not be pinned at all: where merely the limit is too low,
/// each page that the RNIC first touches would cost a fault and a receiver-not-ready pause of 655
/// ms instead of one clear error. What is registered for windows over it is never paged.
inline bool falls_back_on_demand(int reason, bool rnic_pages_on_demand, Access access) {
  const bool can_not_be_pinned = reason == EFAULT || reason == EOPNOTSUPP;
  return can_not_be_pinned && rnic_pages_on_demand && access != Access::Windows;
}

/// Whether an RNIC that pages on demand does so for each operation of a reliable connection that
/// Perdure uses: `has` are its capabilities, `needed` those of the operations
/// (ibv_query_device_ex(3)). One that lacks READ, say, would fail the first read that finds a page
/// absent.
inline bool pages_each_operation(bool pages_at_all, std::uint32_t has, std::uint32_t needed) {
  return pages_at_all && (has & needed) == needed;
}

}  // namespace perdure::fabric::verbs
