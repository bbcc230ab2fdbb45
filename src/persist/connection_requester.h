// ConnectionRequester: the state of a Requester. Its updates move in requester.cc; how methods and
// memory are made ready and what a work request looks like is in requester_requests.cc.
#pragma once

#include "persist/requester.h"

#include <array>
#include <bit>
#include <optional>

#include "persist/compiled_method.h"

namespace perdure::persist {

// Context of a work request: bit 63 marks receives; else update slot << 8 |
// CompiledRequest::awaited.
inline constexpr std::uint64_t kReceiveContext = std::uint64_t{1} << 63;
inline constexpr std::size_t kScratchBytes = 64;

/// One update in flight.
struct UpdateInFlight {
  const CompiledMethod* method = nullptr;
  std::span<fabric::WorkRequest> ready;  // of that method
  std::size_t burst = 0;                 // the next one to post
  std::size_t posted = 0;                // work requests that are posted
  std::uint64_t messages_before = 0;     // of all updates before it
  std::uint64_t completed = 0;           // bits: CompiledRequest::awaited
  /// By method: its work requests as they go out, but for what an update brings.
  std::vector<std::vector<fabric::WorkRequest>> requests;
};

class ConnectionRequester final : public Requester {
 public:
  ConnectionRequester(fabric::Endpoint& endpoint, fabric::Device& device,
                      const ServerProfile& profile, const Options& options)
      : endpoint_(endpoint),
        device_(device),
        profile_(profile),
        options_(options),
        updates_(std::bit_ceil(options.updates_max)),
        slot_mask_(updates_.size() - 1) {}

  Result<void> prepare(std::vector<Method> methods);

  Result<std::uint64_t> begin(std::size_t method, std::span<const UpdateItem> items) override;
  Result<std::uint64_t> begin_probe(Probe probe) override;
  std::uint64_t probe_padding() const override { return padding_.size(); }
  Result<void> use_methods(std::vector<Method> methods) override;
  Result<void> poll() override;
  const RequesterCounters& counters() const override { return counters_; }
  std::uint64_t message_payload_max(std::size_t method) const override {
    return options_.queue.message_bytes_max - methods_[method].message_header_bytes_max;
  }

 private:
  std::uint64_t slot_of(std::uint64_t number) const { return number & slot_mask_; }
  UpdateInFlight& update(std::uint64_t number) { return updates_[slot_of(number)]; }
  bool inside_pool(const UpdateItem& item) const {
    return item.data.length != 0 && item.data.length <= options_.remote.length &&
           item.at <= options_.remote.length - item.data.length;
  }
  bool acceptable(const CompiledMethod& method, std::span<const UpdateItem> items) const;
  Error refusal(const CompiledMethod& method, std::span<const UpdateItem> items) const;
  Result<void> advance();
  std::size_t within_credit(const UpdateInFlight& current, std::size_t end) const;
  bool over(const UpdateInFlight& current, const std::vector<CompiledWait>& waits) const {
    for (const CompiledWait& wait : waits) {
      const bool done = wait.ack ? messages_acknowledged_ >= current.messages_before + wait.which
                                 : (current.completed >> wait.which & 1) != 0;
      if (!done) return false;
    }
    return true;
  }
  void make_ready();
  fabric::WorkRequest ready_request(const CompiledRequest& compiled, std::size_t slot,
                                    std::byte* buffer) const;
  void fill_in(const UpdateInFlight& started, const CompiledRequest& compiled,
               std::span<const UpdateItem> items, fabric::WorkRequest& request);
  void write_message(const UpdateInFlight& started, const CompiledRequest& compiled,
                     std::span<const UpdateItem> items, fabric::WorkRequest& request);
  Result<void> take(const fabric::Completion& completion);
  Result<void> take_ack(const fabric::Completion& completion);
  Result<void> post_ack_buffer(std::size_t index);
  Result<void> repost_ack();

  fabric::Endpoint& endpoint_;
  fabric::Device& device_;
  const ServerProfile profile_;
  const Options options_;
  std::vector<CompiledMethod> methods_;  // those that were given, then the probes
  std::size_t first_probe_ = 0;
  std::vector<UpdateInFlight> updates_;  // by number; a power of two
  std::uint64_t slot_mask_;

  std::vector<std::byte> message_bytes_;  // headers (or whole messages) of updates in flight
  std::unique_ptr<fabric::Memory> message_memory_;
  std::vector<std::byte> ack_bytes_;
  std::unique_ptr<fabric::Memory> ack_memory_;
  std::array<std::byte, kScratchBytes> scratch_{};  // what READs bring, never looked at
  std::unique_ptr<fabric::Memory> scratch_memory_;
  std::vector<std::byte> padding_;  // zeros, for probes; empty without them
  std::unique_ptr<fabric::Memory> padding_memory_;

  std::uint64_t posting_ = 1;  // the update that may post: all before it have posted everything
  std::uint64_t messages_begun_ = 0;  // of all updates so far; counters_.messages are posted
  std::uint64_t messages_acknowledged_ = 0;
  std::uint64_t acks_taken_ = 0;
  std::uint64_t acks_reposted_ = 0;
  std::array<fabric::Completion, 32> completions_;  // scratch of poll
  std::optional<Error> failure_;
  RequesterCounters counters_;
};

}  // namespace perdure::persist
