// A device that watches whether memory is deregistered while requests that name it are posted.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/assert.h"
#include "fabric/fabric.h"

namespace perdure::test {

/// What was seen. An RNIC that has to send again from memory that is not registered any more ends
/// the connection with a local protection error, and a message that comes into such memory does.
/// Providers that copy at once, and the emulated one, never show it.
struct Watch {
  std::vector<std::string> too_early;  // deregistered with requests posted: what, and how many
  std::vector<std::string> ended;      // in order: "connection", "64 B"
  std::size_t registered = 0;          // so many times
  std::uint64_t carried_bytes = 0;     // to peers, by WRITEs and messages of all connections
  bool refuses_to_sever = false;       // as an RNIC that does not destroy a queue pair
};

/// Counts the requests that are posted and name it.
class WatchedMemory final : public fabric::Memory {
 public:
  WatchedMemory(std::unique_ptr<fabric::Memory> inner, std::shared_ptr<Watch> watch)
      : inner_(std::move(inner)), watch_(std::move(watch)), size_(inner_->bytes().size()) {}
  ~WatchedMemory() override { note(); }

  std::span<std::byte> bytes() const override { return inner_->bytes(); }
  std::uint64_t key() const override { return inner_->key(); }
  std::uint64_t base() const override { return inner_->base(); }
  DmaDirties dma_dirties() const override { return inner_->dma_dirties(); }
  fabric::FlushPlacement flush_placement() const override { return inner_->flush_placement(); }
  bool is_lost() const override { return inner_->is_lost(); }
  Result<void> deregister() override {
    note();
    return inner_->deregister();
  }

  fabric::Memory& inner() const { return *inner_; }
  const std::shared_ptr<std::size_t>& posted() const { return posted_; }

 private:
  void note() {
    if (std::exchange(noted_, true)) return;
    watch_->ended.push_back(fmt::format("{} B", size_));
    if (*posted_ == 0) return;
    watch_->too_early.push_back(fmt::format("{} B while {} requests name it", size_, *posted_));
  }

  std::unique_ptr<fabric::Memory> inner_;
  std::shared_ptr<Watch> watch_;
  const std::size_t size_;
  std::shared_ptr<std::size_t> posted_ = std::make_shared<std::size_t>(0);
  bool noted_ = false;
};

/// A connection whose requests name watched memory. As an RNIC has it, a request is over when its
/// completion came, or that of a later one if it asked for none: what the peer's program answers
/// says nothing of that. All are when the connection has ended.
class WatchedEndpoint final : public fabric::Endpoint {
 public:
  WatchedEndpoint(std::unique_ptr<fabric::Endpoint> inner, std::shared_ptr<Watch> watch)
      : inner_(std::move(inner)), watch_(std::move(watch)) {}
  ~WatchedEndpoint() override {
    inner_.reset();
    end();
  }

  Result<std::size_t> post(std::span<const fabric::WorkRequest> requests) override {
    std::vector<fabric::WorkRequest> own(requests.begin(), requests.end());
    std::vector<Posted> named;
    for (fabric::WorkRequest& request : own) {
      Posted& each = named.emplace_back();
      each.signalled = request.signalled;
      for (std::size_t i = 0; i < request.segment_count; ++i) {
        each.memory.push_back(take(request.segments[i]));
      }
    }
    auto taken = inner_->post(own);
    const std::size_t count = taken.ok() ? *taken : 0;
    for (std::size_t i = 0; i < count; ++i) {
      if (own[i].opcode < fabric::Opcode::Read) watch_->carried_bytes += total_length(own[i]);
      name(named[i], 1);
      sends_.push_back(std::move(named[i]));
    }
    return taken;
  }
  Result<void> post_receive(const fabric::Segment& buffer, std::uint64_t context) override {
    fabric::Segment own = buffer;
    Posted posted{true, {take(own)}};
    auto done = inner_->post_receive(own, context);
    if (!done.ok()) return done;
    name(posted, 1);
    receives_.push_back(std::move(posted));
    return done;
  }
  std::size_t poll(std::span<fabric::Completion> completions) override {
    const std::size_t count = inner_->poll(completions);
    for (const fabric::Completion& each : completions.first(count)) {
      auto& queue = each.opcode == fabric::Opcode::Receive ? receives_ : sends_;
      for (bool asked = false; !asked && !queue.empty(); queue.pop_front()) {
        asked = queue.front().signalled;
        name(queue.front(), -1);
      }
    }
    if (!inner_->connected()) end();
    return count;
  }
  bool arm() override { return inner_->arm(); }
  int wait_fd() const override { return inner_->wait_fd(); }
  bool connected() const override { return inner_->connected(); }
  void disconnect() override {
    inner_->disconnect();
    end();
  }
  Result<void> sever() override {
    if (watch_->refuses_to_sever) return Error{ErrorCode::SystemError, "refused by the test"};
    auto severed = inner_->sever();
    if (severed.ok()) end();
    return severed;
  }
  CutSwitch cut_switch() override { return inner_->cut_switch(); }
  const fabric::Limits& limits() const override { return inner_->limits(); }
  Transport transport() const override { return inner_->transport(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }

 private:
  struct Posted {
    bool signalled = false;
    std::vector<std::shared_ptr<std::size_t>> memory;  // counts of what it names
  };

  /// Makes a segment name the memory of the device below.
  static std::shared_ptr<std::size_t> take(fabric::Segment& segment) {
    if (segment.memory == nullptr) return nullptr;
    const auto* memory = dynamic_cast<const WatchedMemory*>(segment.memory);
    PERDURE_ASSERT(memory != nullptr);
    segment.memory = &memory->inner();
    return memory->posted();
  }
  static void name(const Posted& posted, int by) {
    for (const auto& count : posted.memory) {
      if (count != nullptr) *count += static_cast<std::size_t>(by);
    }
  }
  void end() {
    if (std::exchange(ended_, true)) return;
    watch_->ended.emplace_back("connection");
    for (const Posted& posted : sends_) name(posted, -1);
    for (const Posted& posted : receives_) name(posted, -1);
    sends_.clear();
    receives_.clear();
  }

  std::unique_ptr<fabric::Endpoint> inner_;
  std::shared_ptr<Watch> watch_;
  std::deque<Posted> sends_;
  std::deque<Posted> receives_;
  bool ended_ = false;
};

/// Another device, whose memory and outgoing connections are watched. Threads: one at a time.
class WatchedDevice final : public fabric::Device {
 public:
  explicit WatchedDevice(fabric::Device& device) : device_(device) {}

  Watch& watch() { return *watch_; }
  /// A connection that the device below accepted.
  std::unique_ptr<fabric::Endpoint> watched(std::unique_ptr<fabric::Endpoint> endpoint) {
    return std::make_unique<WatchedEndpoint>(std::move(endpoint), watch_);
  }

  Result<std::unique_ptr<fabric::Memory>> register_memory(std::span<std::byte> range,
                                                          fabric::Access access) override {
    auto memory = device_.register_memory(range, access);
    if (!memory.ok()) return memory;
    ++watch_->registered;
    return std::unique_ptr<fabric::Memory>(
        std::make_unique<WatchedMemory>(std::move(*memory), watch_));
  }
  Result<std::unique_ptr<fabric::Listener>> listen(
      const std::string& address, const fabric::EndpointOptions& options) override {
    return device_.listen(address, options);
  }
  Result<std::unique_ptr<fabric::Endpoint>> connect(const std::string& address,
                                                    std::span<const std::byte> private_data,
                                                    const fabric::EndpointOptions& options,
                                                    Deadline deadline) override {
    auto endpoint = device_.connect(address, private_data, options, deadline);
    if (!endpoint.ok()) return endpoint;
    return watched(std::move(*endpoint));
  }
  Transport transport() const override { return device_.transport(); }
  Capabilities capabilities() const override { return device_.capabilities(); }
  std::string describe() const override { return device_.describe(); }

 private:
  fabric::Device& device_;
  std::shared_ptr<Watch> watch_ = std::make_shared<Watch>();
};

}  // namespace perdure::test
