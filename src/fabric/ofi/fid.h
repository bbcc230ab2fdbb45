// Ownership of libfabric objects, and its error numbers as ours.
#pragma once

#include <perdure/result.h>

#include "fabric/ofi/libfabric.h"

#include <fmt/format.h>

#include <memory>
#include <string_view>

namespace perdure::fabric::ofi {

struct CloseFid {
  template <typename Object>
  void operator()(Object* object) const {
    ::fi_close(&object->fid);
  }
};

/// Any fid_domain, fid_ep, fid_cq and so on; closed when destroyed. What was opened on it must be
/// gone by then, so declare parents before children.
template <typename Object>
using Fid = std::unique_ptr<Object, CloseFid>;

struct FreeInfo {
  void operator()(fi_info* info) const { libfabric().freeinfo(info); }
};
using Info = std::unique_ptr<fi_info, FreeInfo>;

/// "what: reason" for a negative return value of libfabric.
inline Error error_of(ErrorCode code, std::string_view what, std::int64_t returned) {
  return Error{code,
               fmt::format("{}: {}", what, libfabric().strerror(static_cast<int>(-returned)))};
}

}  // namespace perdure::fabric::ofi
