// What a design runs over in the suite: a device and an endpoint at each end, connected.
#pragma once

#include "core/random.h"
#include "fabric/emu/world.h"
#include "fabric/fabric.h"

#include <cstdint>
#include <memory>
#include <string>

namespace perdure::rpc::models {

class Link {
 public:
  struct Place {
    fabric::Device* device = nullptr;
    fabric::Endpoint* endpoint = nullptr;
  };

  virtual ~Link() = default;
  virtual Place client() = 0;
  virtual Place server() = 0;
};

/// Two machines of an emulated world in which whatever may happen next happens at random.
std::unique_ptr<Link> world_link(std::uint64_t seed, WriteOrder order = WriteOrder::Ordered);

/// Two devices of this process. Errors: what the machine or the build lacks.
Result<std::unique_ptr<Link>> device_link(Transport transport);

}  // namespace perdure::rpc::models
