// What a machine needs to be a target of librpmem's programs (docs/rpmem.md), as checks of the
// doctor: they read its files, and change nothing.
#pragma once

#include "host/doctor.h"

#include <string>
#include <vector>

namespace perdure::app {

/// As whom ssh runs rpmemd.
struct RpmemUser {
  std::string name;
  std::string group;  // the first one
  std::string home;
};

/// Of this process. Errors: NotFound.
Result<RpmemUser> this_user();

/// Where rpmemd looks for the sets of that user; its home if its configuration can not be read.
std::string poolset_dir_of(const host::SystemTree& tree, const RpmemUser& user);

// One function each; docs/hardware.md has a section of the same name.
host::Check check_rpmem_sets(const host::InspectedHost& inspected, const RpmemUser& user);
host::Check check_rpmem_user(const host::InspectedHost& inspected, const RpmemUser& user);
host::Check check_rpmem_memlock(const host::InspectedHost& inspected, const RpmemUser& user);
host::Check check_rpmem_persist_apm(const host::InspectedHost& inspected, const RpmemUser& user);

/// All of them.
std::vector<host::Check> check_rpmem(const host::InspectedHost& inspected, const RpmemUser& user);

}  // namespace perdure::app
