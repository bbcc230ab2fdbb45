// What the headers of this build have of the extended verbs, under one name each, so that the rest
// of the provider has no conditional compilation. CMake looks for the enumerators and defines
// PERDURE_HAVE_IBV_FLUSH (rdma-core 45) and PERDURE_HAVE_IBV_ATOMIC_WRITE (rdma-core 43).
//
// Kernel capability bits: include/uapi/rdma/ib_user_verbs.h, IB_UVERBS_DEVICE_FLUSH_GLOBAL and on.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace perdure::fabric::verbs {

inline constexpr std::uint64_t kDeviceFlushGlobal = std::uint64_t{1} << 38;
inline constexpr std::uint64_t kDeviceFlushPersistent = std::uint64_t{1} << 39;
inline constexpr std::uint64_t kDeviceAtomicWrite = std::uint64_t{1} << 40;

#ifdef PERDURE_HAVE_IBV_FLUSH
inline constexpr bool kHeadersHaveFlush = true;
inline constexpr std::uint64_t kQpWithFlush = IBV_QP_EX_WITH_FLUSH;
inline constexpr unsigned kAccessFlushGlobal = IBV_ACCESS_FLUSH_GLOBAL;
inline constexpr unsigned kAccessFlushPersistent = IBV_ACCESS_FLUSH_PERSISTENT;
inline void put_flush(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address, std::size_t length,
                      bool persistent, bool whole_region) {
  ::ibv_wr_flush(qp, rkey, address, length,
                 static_cast<std::uint8_t>(persistent ? IBV_FLUSH_PERSISTENT : IBV_FLUSH_GLOBAL),
                 static_cast<std::uint8_t>(whole_region ? IBV_FLUSH_MR : IBV_FLUSH_RANGE));
}
#else
inline constexpr bool kHeadersHaveFlush = false;
inline constexpr std::uint64_t kQpWithFlush = 0;
inline constexpr unsigned kAccessFlushGlobal = 0;
inline constexpr unsigned kAccessFlushPersistent = 0;
inline void put_flush(ibv_qp_ex*, std::uint32_t, std::uint64_t, std::size_t, bool, bool) {}
#endif

#ifdef PERDURE_HAVE_IBV_ATOMIC_WRITE
inline constexpr bool kHeadersHaveAtomicWrite = true;
inline constexpr std::uint64_t kQpWithAtomicWrite = IBV_QP_EX_WITH_ATOMIC_WRITE;
inline void put_atomic_write(ibv_qp_ex* qp, std::uint32_t rkey, std::uint64_t address,
                             const void* value) {
  ::ibv_wr_atomic_write(qp, rkey, address, value);
}
#else
inline constexpr bool kHeadersHaveAtomicWrite = false;
inline constexpr std::uint64_t kQpWithAtomicWrite = 0;
inline void put_atomic_write(ibv_qp_ex*, std::uint32_t, std::uint64_t, const void*) {}
#endif

}  // namespace perdure::fabric::verbs
