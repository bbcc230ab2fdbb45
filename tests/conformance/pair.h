// Two connected endpoints with a registered buffer each, and the words in which tests speak.
#pragma once

#include "harness.h"

#include <map>

namespace perdure::conformance {

inline constexpr Nanoseconds kPatience = std::chrono::seconds(20);

/// Page-aligned bytes, registered on a device.
class Buffer {
 public:
  Buffer(fabric::Device& device, std::size_t size, fabric::Access access);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  std::span<std::byte> bytes() const { return {data_, size_}; }
  std::byte* at(std::size_t offset) const { return data_ + offset; }
  fabric::Segment segment(std::size_t offset, std::size_t length) const {
    return {data_ + offset, length, memory_.get()};
  }
  /// As a peer is told of it.
  fabric::RemoteMemory remote() const { return {memory_->key(), memory_->base(), size_}; }
  /// From now on peers are refused; the bytes stay.
  void deregister() { memory_.reset(); }
  /// The same, by asking for it.
  Result<void> revoke() { return memory_->deregister(); }
  void fill(std::uint64_t seed, std::size_t offset, std::size_t length);
  /// Whether the bytes are those that fill(seed, 0, length) gives at the start of a range.
  bool holds(std::uint64_t seed, std::size_t offset, std::size_t length) const;
  void clear();

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  std::unique_ptr<fabric::Memory> memory_;
};

/// One end of the conversation: its endpoint and the completions that have come so far.
struct Side {
  std::unique_ptr<fabric::Endpoint> endpoint;
  std::vector<fabric::Completion> completions;

  /// Polls once and keeps what comes.
  void poll();
  const fabric::Completion* find(fabric::Opcode opcode, std::uint64_t context) const;
  std::size_t count(fabric::Opcode opcode) const;
  std::size_t errors() const;
};

struct Pair {
  Devices devices;
  std::unique_ptr<fabric::Listener> listener;
  Side server;
  Side client;

  /// Polls both sides until `reached`, for at most kPatience. Whether it was reached.
  bool pump(const std::function<bool()>& reached);
  /// Posts requests on the client, in one call if the queue takes them, pumping while it is full.
  /// Whether all were taken.
  bool post(std::span<const fabric::WorkRequest> requests);
  bool post(const fabric::WorkRequest& request) { return post({&request, 1}); }
  /// Posts on the client and pumps until the last one's completion is there; null when it never
  /// came.
  const fabric::Completion* run(std::span<const fabric::WorkRequest> requests);
  const fabric::Completion* run(const fabric::WorkRequest& request) { return run({&request, 1}); }
};

struct PairOptions {
  fabric::EndpointOptions server;
  fabric::EndpointOptions client;
};

/// Opens the devices of a harness and connects the client to the server.
Result<std::unique_ptr<Pair>> connect_pair(const Harness& harness, const PairOptions& options = {});

/// Connects two devices over a listener that is there already.
Result<std::unique_ptr<fabric::Endpoint>> connect_to(fabric::Device& client,
                                                     fabric::Listener& listener, Side& server,
                                                     const fabric::EndpointOptions& options = {},
                                                     fabric::Device* into = nullptr,
                                                     fabric::Memory* window = nullptr);

fabric::WorkRequest send(const fabric::Segment& segment, std::uint64_t context);
fabric::WorkRequest write(const fabric::Segment& segment, const fabric::RemoteMemory& remote,
                          std::uint64_t remote_offset, std::uint64_t context);
fabric::WorkRequest write_immediate(const fabric::Segment& segment,
                                    const fabric::RemoteMemory& remote, std::uint64_t remote_offset,
                                    std::uint32_t immediate, std::uint64_t context);
fabric::WorkRequest read(const fabric::Segment& segment, const fabric::RemoteMemory& remote,
                         std::uint64_t remote_offset, std::uint64_t context);

}  // namespace perdure::conformance
