// A device that registers only so many ranges of memory.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "fabric/fabric.h"

namespace perdure::test {

/// Another device, whose registrations fail after so many: as they do when the limit on locked
/// memory is reached, or after a reset.
class LimitedDevice final : public fabric::Device {
 public:
  /// `is_software`: as a software RNIC, it stores by its machine's CPU.
  LimitedDevice(fabric::Device& device, int registrations, bool is_software = false)
      : device_(device), registrations_(registrations), is_software_(is_software) {}

  Result<std::unique_ptr<fabric::Memory>> register_memory(std::span<std::byte> range,
                                                          fabric::Access access) override {
    if (registrations_-- <= 0)
      return Error{ErrorCode::SystemError, "no more memory can be registered"};
    return device_.register_memory(range, access);
  }
  fabric::WindowKind window_kind(std::uint64_t bytes) const override {
    return device_.window_kind(bytes);
  }
  Result<std::unique_ptr<fabric::Memory>> open_window(std::shared_ptr<fabric::Memory> over,
                                                      fabric::Access access) override {
    return device_.open_window(std::move(over), access);
  }
  Result<std::unique_ptr<fabric::Listener>> listen(
      const std::string& address, const fabric::EndpointOptions& options) override {
    return device_.listen(address, options);
  }
  Result<std::unique_ptr<fabric::Endpoint>> connect(const std::string& address,
                                                    std::span<const std::byte> private_data,
                                                    const fabric::EndpointOptions& options,
                                                    Deadline deadline) override {
    return device_.connect(address, private_data, options, deadline);
  }
  Transport transport() const override { return device_.transport(); }
  Capabilities capabilities() const override { return device_.capabilities(); }
  bool places_by_cpu() const override { return is_software_ || device_.places_by_cpu(); }
  std::string describe() const override { return device_.describe(); }

 private:
  fabric::Device& device_;
  int registrations_;
  const bool is_software_;
};

}  // namespace perdure::test
