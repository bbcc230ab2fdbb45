// A device whose connections take requests and say that they could not.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "fabric/fabric.h"

namespace perdure::test {

struct PostFault {
  /// The next request that carries so much, or more, is posted all the same, and then refused. 0:
  /// none is.
  std::uint64_t from_bytes = 0;
  int times = 0;      // that one was
  bool away = false;  // nobody is reached: from then on, or as the test says
};

class FaultyEndpoint final : public fabric::Endpoint {
 public:
  FaultyEndpoint(std::unique_ptr<fabric::Endpoint> inner, std::shared_ptr<PostFault> fault)
      : inner_(std::move(inner)), fault_(std::move(fault)) {}

  Result<std::size_t> post(std::span<const fabric::WorkRequest> requests) override {
    auto taken = inner_->post(requests);
    const bool carries = std::any_of(requests.begin(), requests.end(), [&](const auto& each) {
      return fabric::total_length(each) >= fault_->from_bytes;
    });
    if (fault_->from_bytes == 0 || !carries) return taken;
    fault_->from_bytes = 0;
    ++fault_->times;
    fault_->away = true;
    return Error{ErrorCode::SystemError, "the send queue is in its error state"};
  }
  Result<void> post_receive(const fabric::Segment& buffer, std::uint64_t context) override {
    return inner_->post_receive(buffer, context);
  }
  std::size_t poll(std::span<fabric::Completion> completions) override {
    return inner_->poll(completions);
  }
  bool arm() override { return inner_->arm(); }
  int wait_fd() const override { return inner_->wait_fd(); }
  bool connected() const override { return inner_->connected(); }
  std::string lost_reason() const override { return inner_->lost_reason(); }
  void disconnect() override { inner_->disconnect(); }
  Result<void> sever() override { return inner_->sever(); }
  CutSwitch cut_switch() override { return inner_->cut_switch(); }
  const fabric::Limits& limits() const override { return inner_->limits(); }
  Transport transport() const override { return inner_->transport(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }

 private:
  std::unique_ptr<fabric::Endpoint> inner_;
  std::shared_ptr<PostFault> fault_;
};

/// Another device. Threads: one at a time.
class FaultyDevice final : public fabric::Device {
 public:
  explicit FaultyDevice(fabric::Device& device) : device_(device) {}

  PostFault& fault() { return *fault_; }

  Result<std::unique_ptr<fabric::Memory>> register_memory(std::span<std::byte> range,
                                                          fabric::Access access) override {
    return device_.register_memory(range, access);
  }
  Result<std::unique_ptr<fabric::Listener>> listen(
      const std::string& address, const fabric::EndpointOptions& options) override {
    return device_.listen(address, options);
  }
  Result<std::unique_ptr<fabric::Endpoint>> connect(const std::string& address,
                                                    std::span<const std::byte> private_data,
                                                    const fabric::EndpointOptions& options,
                                                    Deadline deadline) override {
    if (fault_->away) return Error{ErrorCode::Disconnected, "the peer is away"};
    auto endpoint = device_.connect(address, private_data, options, deadline);
    if (!endpoint.ok()) return endpoint;
    return std::unique_ptr<fabric::Endpoint>(
        std::make_unique<FaultyEndpoint>(std::move(*endpoint), fault_));
  }
  Transport transport() const override { return device_.transport(); }
  Capabilities capabilities() const override { return device_.capabilities(); }
  std::string describe() const override { return device_.describe(); }

 private:
  fabric::Device& device_;
  std::shared_ptr<PostFault> fault_ = std::make_shared<PostFault>();
};

}  // namespace perdure::test
