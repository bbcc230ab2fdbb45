// The checks of the doctor, one function each. All of them read files of the inspected's tree and
// nothing else; none fails.
#pragma once

#include <compare>
#include <functional>

#include "host/doctor.h"

namespace perdure::host {

/// A kernel's release.
struct Release {
  int major = 0;
  int minor = 0;
  auto operator<=>(const Release&) const = default;
};

/// Of this kernel. Not set: it can not be read.
std::optional<Release> release_of(const InspectedHost& inspected, Check& check);

/// Finds that the answer rests on a configuration that can not be read. False: it can, or there is
/// none, and perdured has its defaults.
bool find_unread_config(const InspectedHost& inspected, Check& check);

/// Whether that holds of what is declared of all pools, or of one.
bool is_any_declared(const InspectedHost& inspected,
                     const std::function<bool(const server::PoolSettings&)>& holds);

/// Whether any pool of the place lies on that.
bool lies_on(const InspectedHost& inspected, pmem::MediumKind kind);

/// "dmp", or "page, dmp".
std::string domain_words(const InspectedHost& inspected);

/// Rounded up.
inline std::uint64_t mebibytes(std::uint64_t bytes) { return (bytes + (1U << 20) - 1) >> 20; }

/// The directories in /proc of the daemons that run here, or of this program if there is none.
std::vector<std::string> processes_of_interest(const InspectedHost& inspected);

// doctor_place.cc: the pool's place and what was declared of it
Check check_pool_file_system(const InspectedHost& inspected);
Check check_write_cache(const InspectedHost& inspected);
Check check_declared_domain(const InspectedHost& inspected);

// doctor_pools.cc: whether they can be read, who has the pools and may make more, and what making a
// record of a file durable takes
Check check_pool_header(const InspectedHost& inspected);
Check check_pool_owner(const InspectedHost& inspected);
Check check_pool_quota(const InspectedHost& inspected);
Check check_file_sync(const InspectedHost& inspected);

// doctor_memory.cc: NVDIMMs, CXL memory
Check check_persistence_domain(const InspectedHost& inspected);
Check check_deep_flush(const InspectedHost& inspected);
Check check_namespaces(const InspectedHost& inspected);
Check check_nvdimm_health(const InspectedHost& inspected);
Check check_bad_blocks(const InspectedHost& inspected);
Check check_cxl_memory(const InspectedHost& inspected);

// doctor_network.cc: RDMA devices and the Ethernet below them
Check check_rdma_devices(const InspectedHost& inspected);
Check check_rdma_mtu(const InspectedHost& inspected);
Check check_roce_gid(const InspectedHost& inspected);
Check check_congestion_control(const InspectedHost& inspected);

// doctor_rnic.cc: what RNICs do beside the verbs, and how Perdure uses them
Check check_cqe_payload(const InspectedHost& inspected);
Check check_immediate_length(const InspectedHost& inspected);
Check check_fencing(const InspectedHost& inspected);
Check check_rnic_timeouts(const InspectedHost& inspected);
Check check_completion_vectors(const InspectedHost& inspected);

// doctor_rnic_choice.cc: which one is taken
Check check_rnic_choice(const InspectedHost& inspected);

// doctor_pcie.cc: the way from the RNIC to memory
Check check_ddio(const InspectedHost& inspected);
Check check_iommu(const InspectedHost& inspected);
Check check_numa(const InspectedHost& inspected);

// doctor_write_order.cc: the order of WRITEs, on the bus and in the network
Check check_write_order(const InspectedHost& inspected);

// doctor_pages.cc: pages that an RNIC writes or reads: a file's, and those of a program that forks
Check check_pages_under_rnic(const InspectedHost& inspected);
Check check_forks(const InspectedHost& inspected);

// doctor_limits.cc: what the kernel grants a process
Check check_locked_memory(const InspectedHost& inspected);
Check check_memory_cgroup(const InspectedHost& inspected);
Check check_open_files(const InspectedHost& inspected);
Check check_huge_pages(const InspectedHost& inspected);
Check check_transparent_huge_pages(const InspectedHost& inspected);

// doctor_processor.cc: instructions and latency
Check check_flush_instructions(const InspectedHost& inspected);
Check check_frequency_governor(const InspectedHost& inspected);
Check check_idle_states(const InspectedHost& inspected);
Check check_clock_source(const InspectedHost& inspected);

}  // namespace perdure::host
