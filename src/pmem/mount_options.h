// With which options a file system is mounted: some switch off what fsync promises.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

namespace perdure::pmem {

/// The options of the mounted file system with this device number, comma-separated: those of the
/// mount and those of the file system. Empty when it is not in /proc/self/mountinfo.
std::string mount_options_of(dev_t device);

/// The same from the text of a mountinfo file (proc(5)); lines that make no sense are passed over.
std::string mount_options_in(std::string_view mountinfo, dev_t device);

/// Whether `option` is one of the comma-separated `options`.
bool has_option(std::string_view options, std::string_view option);

}  // namespace perdure::pmem
