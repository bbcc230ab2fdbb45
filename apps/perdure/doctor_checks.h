// The checks of the doctor, one function each. All of them read files of the patient's tree and
// nothing else; none fails.
#pragma once

#include "doctor.h"

namespace perdure::app {

// doctor_place.cc: the pool's place and what was declared of it
Check check_pool_file_system(const Patient& patient);
Check check_write_cache(const Patient& patient);
Check check_declared_domain(const Patient& patient);

// doctor_memory.cc: NVDIMMs, CXL memory
Check check_persistence_domain(const Patient& patient);
Check check_deep_flush(const Patient& patient);
Check check_namespaces(const Patient& patient);
Check check_nvdimm_health(const Patient& patient);
Check check_cxl_memory(const Patient& patient);

// doctor_network.cc: RDMA devices and the Ethernet below them
Check check_rdma_devices(const Patient& patient);
Check check_rdma_mtu(const Patient& patient);
Check check_roce_gid(const Patient& patient);
Check check_congestion_control(const Patient& patient);

// doctor_pcie.cc: the way from the RNIC to memory
Check check_ddio(const Patient& patient);
Check check_iommu(const Patient& patient);
Check check_numa(const Patient& patient);

// doctor_limits.cc: what the kernel grants a process
Check check_locked_memory(const Patient& patient);
Check check_memory_cgroup(const Patient& patient);
Check check_open_files(const Patient& patient);
Check check_huge_pages(const Patient& patient);
Check check_transparent_huge_pages(const Patient& patient);

// doctor_processor.cc: instructions and latency
Check check_flush_instructions(const Patient& patient);
Check check_frequency_governor(const Patient& patient);
Check check_idle_states(const Patient& patient);
Check check_clock_source(const Patient& patient);

}  // namespace perdure::app
