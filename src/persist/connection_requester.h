// ConnectionRequester: the state of a Requester. Its updates move in requester.cc; how methods and
// memory are made ready and what a work request looks like is in requester_requests.cc.
#pragma once

#include "persist/requester.h"

#include <array>
#include <bit>
#include <optional>

#include "persist/compiled_method.h"

namespace perdure::persist {

// Context of a work request: bit 63 marks receives; else update slot << 8 | step.
inline constexpr std::uint64_t kReceiveContext = std::uint64_t{1} << 63;
// Context of a request that is signalled only so that the provider can reclaim its queue.
inline constexpr std::uint64_t kReclaimContext = std::uint64_t{1} << 62;
inline constexpr std::size_t kScratchBytes = 64;
// Work requests that go to the endpoint together at most.
inline constexpr std::size_t kGatheredMax = 16;

/// One update in flight.
struct Update {
  std::size_t method = 0;
  std::size_t step = 0;               // the next one to take
  std::size_t gathered_in_step = 0;   // work requests of that step that are gathered already
  std::uint64_t message = 0;          // sequence of its last message, 0 before the first
  std::uint64_t awaited_message = 0;  // sequence of its last message that wants an acknowledgement
  std::uint64_t completed_steps = 0;  // bit k: step k completed
  std::vector<UpdateItem> items;
};

class ConnectionRequester final : public Requester {
 public:
  ConnectionRequester(fabric::Endpoint& endpoint, fabric::Device& device,
                      const ServerProfile& profile, const Options& options)
      : endpoint_(endpoint),
        device_(device),
        profile_(profile),
        options_(options),
        updates_(std::bit_ceil(options.updates_max)) {
    for (fabric::WorkRequest& request : gathered_) request.remote = options_.remote;
  }

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
  std::uint64_t slot_of(std::uint64_t number) const { return number & (updates_.size() - 1); }
  Update& update(std::uint64_t number) { return updates_[slot_of(number)]; }
  bool inside_pool(const UpdateItem& item) const {
    return item.data.length != 0 && item.data.length <= options_.remote.length &&
           item.at <= options_.remote.length - item.data.length;
  }
  bool take_items(const CompiledMethod& method, std::span<const UpdateItem> items,
                  Update& started) const;
  Error refusal(const CompiledMethod& method, std::span<const UpdateItem> items) const;
  Result<void> advance();
  void gather();
  bool gather_step(std::uint64_t number, Update& current, const CompiledStep& step);
  bool wait_is_over(const Update& current, const RequesterStep& step) const {
    if (step.kind == RequesterStep::Kind::WaitAck) {
      return messages_acknowledged_ >= current.awaited_message;
    }
    return (current.completed_steps >> step.of & 1) != 0;
  }
  void build(std::uint64_t number, Update& current, const CompiledStep& step,
             fabric::WorkRequest& request);
  void build_message(std::uint64_t number, Update& current, const CompiledStep& step,
                     fabric::WorkRequest& request);
  Result<void> take(const fabric::Completion& completion);
  Result<void> take_ack(const fabric::Completion& completion);
  Result<void> post_ack_buffer(std::size_t index);
  Result<void> repost_ack();
  std::byte* message_buffer(std::uint64_t number, std::size_t step) {
    return message_bytes_.data() + (slot_of(number) * steps_max_ + step) * message_buffer_bytes_;
  }

  fabric::Endpoint& endpoint_;
  fabric::Device& device_;
  const ServerProfile profile_;
  const Options options_;
  std::vector<CompiledMethod> methods_;  // those that were given, then the probes
  std::size_t first_probe_ = 0;
  std::vector<Update> updates_;  // by number; a power of two
  std::size_t steps_max_ = 0;

  std::vector<std::byte> message_bytes_;  // headers (or whole messages) of updates in flight
  std::size_t message_buffer_bytes_ = 0;
  std::unique_ptr<fabric::Memory> message_memory_;
  std::vector<std::byte> ack_bytes_;
  std::unique_ptr<fabric::Memory> ack_memory_;
  std::array<std::byte, kScratchBytes> scratch_{};  // what READs bring, never looked at
  std::unique_ptr<fabric::Memory> scratch_memory_;
  std::vector<std::byte> padding_;  // zeros, for probes; empty without them
  std::unique_ptr<fabric::Memory> padding_memory_;

  // What goes to the endpoint next, in order. It stays here while the endpoint's queue is full.
  std::array<fabric::WorkRequest, kGatheredMax> gathered_;
  std::size_t gathered_count_ = 0;

  std::uint64_t posting_ = 1;  // the update that may post: all before it have gathered everything
  std::uint64_t messages_posted_ = 0;  // or gathered
  std::uint64_t messages_acknowledged_ = 0;
  std::uint64_t acks_taken_ = 0;
  std::uint64_t acks_reposted_ = 0;
  std::size_t unsignalled_ = 0;
  std::array<fabric::Completion, 32> completions_;  // scratch of poll
  std::optional<Error> failure_;
  RequesterCounters counters_;
};

}  // namespace perdure::persist
