// Ownership of verbs objects, and errno as our errors.
#pragma once

#include <perdure/result.h>

#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <memory>
#include <string_view>
#include <system_error>

#include "core/log_message.h"

namespace perdure::fabric::verbs {

/// Says it when the RNIC did not give something back. Whose rights depend on it asks before:
/// VerbsMemory::deregister, VerbsEndpoint::sever.
inline void note_release(int returned, std::string_view what) {
  if (returned == 0) return;
  log_message(Severity::Warning, fmt::format("RNIC: {} was not given back: {}", what,
                                             std::generic_category().message(returned)));
}

struct Release {
  void operator()(ibv_pd* pd) const { note_release(::ibv_dealloc_pd(pd), "a protection domain"); }
  void operator()(ibv_mr* mr) const { note_release(::ibv_dereg_mr(mr), "registered memory"); }
  void operator()(ibv_mw* mw) const { note_release(::ibv_dealloc_mw(mw), "a memory window"); }
  void operator()(ibv_cq* cq) const { note_release(::ibv_destroy_cq(cq), "a completion queue"); }
  void operator()(ibv_comp_channel* channel) const { ::ibv_destroy_comp_channel(channel); }
  void operator()(rdma_event_channel* channel) const { ::rdma_destroy_event_channel(channel); }
  void operator()(rdma_cm_event* event) const { ::rdma_ack_cm_event(event); }
  void operator()(rdma_cm_id* id) const {
    // rdma_destroy_qp() returns nothing. An id with a queue pair that lives on lives on, too.
    const int returned = id->qp == nullptr ? 0 : ::ibv_destroy_qp(id->qp);
    if (returned != 0) return note_release(returned, "a queue pair");
    id->qp = nullptr;
    ::rdma_destroy_id(id);
  }
};

/// Any of the above; released when destroyed. What was made on it must be gone by then, so declare
/// parents before children.
template <typename Object>
using Owned = std::unique_ptr<Object, Release>;

/// "what: reason" for errno as the call just made left it.
inline Error errno_error(ErrorCode code, std::string_view what) {
  return Error{code, fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

}  // namespace perdure::fabric::verbs
