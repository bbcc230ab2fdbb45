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

namespace perdure::fabric::verbs {

struct Release {
  void operator()(ibv_pd* pd) const { ::ibv_dealloc_pd(pd); }
  void operator()(ibv_mr* mr) const { ::ibv_dereg_mr(mr); }
  void operator()(ibv_cq* cq) const { ::ibv_destroy_cq(cq); }
  void operator()(ibv_comp_channel* channel) const { ::ibv_destroy_comp_channel(channel); }
  void operator()(rdma_event_channel* channel) const { ::rdma_destroy_event_channel(channel); }
  void operator()(rdma_cm_event* event) const { ::rdma_ack_cm_event(event); }
  void operator()(rdma_cm_id* id) const {
    if (id->qp != nullptr) ::rdma_destroy_qp(id);
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
