// Both directions by SEND: what DaRPC and FaSST have in common.
#pragma once

#include "rpc/models/end.h"

namespace perdure::rpc::models {

/// Receive buffers for the messages of a window. A reliable connection delivers in order, so each
/// message is found in the buffer whose turn it is.
class Inbox {
 public:
  Inbox(std::size_t at, const EndOptions& options)
      : slots_(frame_slots(at, options.window, options)) {}

  const Slots& slots() const { return slots_; }
  void count() { ++arrived_; }
  bool has(std::uint64_t sequence) const { return sequence <= arrived_; }

 private:
  Slots slots_;
  std::uint64_t arrived_ = 0;
};

/// The message of that call out of the buffer whose turn it is. Errors: ProtocolError.
Result<std::optional<Frame>> message_in(std::span<const std::byte> buffer, std::uint64_t sequence);

class SendingClient : public Client {
 public:
  explicit SendingClient(const EndOptions& options)
      : Client(options, Inbox(0, options).slots().end()), replies_(0, options) {}

 protected:
  Result<void> post_receives() override {
    for (std::uint64_t i = 1; i <= options().window; ++i) PERDURE_TRY_VOID(release_reply(i));
    return {};
  }
  Result<void> received(const fabric::Completion&) override {
    replies_.count();
    return {};
  }
  Result<void> post_request(std::uint64_t, const Source& frame) override { return send(frame); }
  Result<std::optional<Frame>> find_reply(std::uint64_t sequence) override {
    if (!replies_.has(sequence)) return std::optional<Frame>{};
    return message_in(slot(replies_.slots(), sequence), sequence);
  }
  Result<void> release_reply(std::uint64_t sequence) override {
    return post_receive(replies_.slots().offset(sequence), replies_.slots().stride);
  }

 private:
  Inbox replies_;
};

class SendingServer : public Server {
 public:
  SendingServer(const EndOptions& options, Handler& handler)
      : Server(options, Inbox(0, options).slots().end(), handler), requests_(0, options) {}

 protected:
  Result<void> post_receives() override {
    for (std::uint64_t i = 1; i <= options().window; ++i) PERDURE_TRY_VOID(release_request(i));
    return {};
  }
  Result<void> received(const fabric::Completion&) override {
    requests_.count();
    return {};
  }
  Result<std::optional<Frame>> find_request(std::uint64_t sequence) override {
    if (!requests_.has(sequence)) return std::optional<Frame>{};
    return message_in(slot(requests_.slots(), sequence), sequence);
  }
  Result<void> release_request(std::uint64_t sequence) override {
    return post_receive(requests_.slots().offset(sequence), requests_.slots().stride);
  }
  Result<void> post_reply(const Frame&, const Source& frame) override { return send(frame); }

 private:
  Inbox requests_;
};

}  // namespace perdure::rpc::models
