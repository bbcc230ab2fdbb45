// Files of configs/hardware as they were when the library was built; built_in_hardware.cc.in.
#pragma once

#include <string_view>

namespace perdure {

extern const std::string_view kRdmaHardware;
extern const std::string_view kTcpHardware;
extern const std::string_view kShmHardware;

}  // namespace perdure
