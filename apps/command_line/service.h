// What programs that serve until they are ended share: messages, descriptors, the port file.
#pragma once

#include <perdure/messages.h>
#include <perdure/result.h>

#include <string>
#include <utility>
#include <vector>

namespace perdure::app {

/// Messages of the library, from this level on, go to standard error. To be called once.
void log_to_stderr(const std::string& program, Severity least);

/// As many descriptors as the system allows: the default of 1024 is there for select(2), which is
/// not used, and a session over tcp takes nine.
void lift_descriptor_limit();

/// Removes what an earlier process wrote: who waits for the file must not read that. Nothing
/// happens for "".
void remove_port_file(const std::string& path);
/// One "name address" a line; appears whole. Errors: SystemError. Nothing happens for "".
Result<void> write_port_file(const std::string& path,
                             const std::vector<std::pair<std::string, std::string>>& addresses);

}  // namespace perdure::app
