// What the rpmem papers call a method, by whether the responder's processor takes part.
#pragma once

#include <string_view>

#include "core/method.h"

namespace perdure {

/// "ARRM" (appliance remote replication method: one-sided) or "GPRRM" (general purpose: the
/// responder's processor evicts).
inline std::string_view rpmem_family(const Method& method) {
  return method.responder.empty() ? "ARRM" : "GPRRM";
}

}  // namespace perdure
