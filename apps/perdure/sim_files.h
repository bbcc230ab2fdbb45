// Files of the simulator's commands: the ones that are named, and where none is, the ones of
// configs that are part of the command.
#pragma once

#include "command_line/command_line.h"
#include "core/hardware.h"
#include "memsys/device.h"
#include "memsys/server/processor.h"
#include "sim/client_applications.h"

#include <string>
#include <string_view>
#include <vector>

namespace perdure::app {

// The text of edr-back-to-back.toml, nvm-server.toml, four-cores.toml and whisper.toml at build
// time.
extern const std::string_view kBuiltInNetwork;
extern const std::string_view kBuiltInDevice;
extern const std::string_view kBuiltInProcessor;
extern const std::string_view kBuiltInApplications;

/// Of the file at `path`; of the one that is built in if that is empty.
/// Errors  of the file: InvalidArgument with its line, NotFound, PermissionDenied, SystemError.
Result<Hardware> network_of(const std::string& path);
Result<memsys::Device> device_of(const std::string& path);
Result<memsys::Processor> processor_of(const std::string& path);
Result<std::vector<sim::ClientApplication>> applications_of(const std::string& path);

/// The name of a file; an empty one, as of a variable that is not set, would be as if none was
/// given. Errors  InvalidArgument: it is empty, or `-`.
Result<void> check_file_name(const std::string& name);
/// The same, where `-` is standard input. Errors  InvalidArgument: it is empty.
Result<void> check_input_name(const std::string& name);

/// Errors  InvalidArgument: one of `options` was given, and `why` it would be of no effect.
Result<void> refuse_given(const Command& command, const std::vector<std::string>& options,
                          std::string_view why);

/// Errors  InvalidArgument: `output` is one of the `inputs`, by whatever names, and would destroy
/// it.
Result<void> check_no_input(const std::string& output, const std::vector<std::string>& inputs);

}  // namespace perdure::app
