// libfabric, loaded when the first device over it is opened.
//
// It is not linked: libraries that Debian's build of it needs (libpsm2, libpsm_infinipath) measure
// the processor's clock for 0.2 s while they are loaded. Every command would wait for that, also
// one that uses shared memory, or no fabric at all (docs/decisions/0013-libfabric-is-loaded.md).
#pragma once

#include <perdure/result.h>

#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_ext.h>

#include <cstdint>

namespace perdure::fabric::ofi {

/// The API version this code was written against and asks for.
inline constexpr std::uint32_t kApiVersion = FI_VERSION(1, 17);

/// What libfabric exports and we call. The rest of its interface is inline, and goes through the
/// objects that these return.
struct Libfabric {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;  // of nullptr: an empty one, as fi_allocinfo()
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_open) open = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
  decltype(&::fi_version) version = nullptr;
  bool shows_failed_sends = false;  // failed_sends.h
};

/// Loads it, once for the life of the process. The handlers of signals stay as they are, but not
/// while it is being loaded: libraries that it needs install their own.
/// Errors: Unsupported, it is not there, or too old. Threads: any.
Result<void> load_libfabric();

/// Requires: load_libfabric() succeeded.
const Libfabric& libfabric();

}  // namespace perdure::fabric::ofi
