// The state of connections and listeners of a World; private to it.
#pragma once

#include "fabric/emu/completion_queue.h"
#include "fabric/emu/inbound_queue.h"
#include "fabric/emu/send_queue.h"
#include "fabric/emu/world.h"

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace perdure::fabric::emu {

/// One end: its requests, what arrives for it, and its completion queue.
struct WorldSide {
  WorldSide(Machine& on, const Machine& peer, const ServerProfile& over,
            const EndpointOptions& options)
      : machine(&on),
        transport(over.transport),
        qp_type(over.qp_type),
        capabilities(peer.profile().capabilities),
        limits{kTransferBytesMax, options.send_depth, options.receive_depth},
        send(on.memory_, limits, transport, capabilities, qp_type),
        inbound(on.memory_, behaviour_of(on, transport), on.counters_) {}

  static RnicBehaviour behaviour_of(const Machine& machine, Transport over) {
    RnicBehaviour behaviour(machine.profile(), over, machine.switches());
    behaviour.packets_overtake = true;
    behaviour.persist_time = machine.world_.times().persist_ack(behaviour.ddio);
    return behaviour;
  }

  Machine* machine;
  Transport transport;
  QpType qp_type;  // that of the end that was connected to
  Capabilities capabilities;
  Limits limits;
  SendQueue send;
  std::vector<Operation> on_wire;  // over Ud: sent, and not there yet; they come in any order
  InboundQueue inbound;
  CompletionQueue completions;
  Nanoseconds wire_free_at{0};
  bool broken = false;  // the connection is lost; this end may not know it yet
  bool down = false;    // this end knows
  bool gone = false;    // nothing uses this end any more: closed, or its machine lost power
};

struct WorldConnection {
  WorldConnection(Machine& from, Machine& to, const EndpointOptions& from_options,
                  const EndpointOptions& to_options)
      : sides{WorldSide(from, to, to.profile(), from_options),
              WorldSide(to, from, to.profile(), to_options)} {}

  std::array<WorldSide, 2> sides;
};

/// One attempt to connect.
struct Knock {
  enum class State { Waiting, Accepted, Rejected } state = State::Waiting;
  Machine* from = nullptr;
  EndpointOptions options;
  std::vector<std::byte> private_data;
  std::shared_ptr<WorldConnection> connection;
};

struct ListenerState {
  Machine* machine = nullptr;
  std::string address;
  EndpointOptions options;
  std::deque<std::shared_ptr<Knock>> knocks;
  bool closed = false;
  bool reset = false;  // closed by a reset of the RNIC: its owner listens again when it next looks
};

class WorldEndpoint final : public Endpoint {
 public:
  WorldEndpoint(World& world, std::shared_ptr<WorldConnection> connection, int side);
  ~WorldEndpoint() override;
  WorldEndpoint(const WorldEndpoint&) = delete;
  WorldEndpoint& operator=(const WorldEndpoint&) = delete;

  Result<std::size_t> post(std::span<const WorkRequest> requests) override;
  Result<void> post_receive(const Segment& buffer, std::uint64_t context) override;
  std::size_t poll(std::span<Completion> completions) override;
  bool arm() override { return false; }
  int wait_fd() const override { return -1; }
  bool connected() const override;
  void disconnect() override;
  Result<void> sever() override;
  const Limits& limits() const override { return side().limits; }
  Transport transport() const override { return side().transport; }
  Capabilities capabilities() const override { return side().capabilities; }

 private:
  WorldSide& side() { return connection_->sides[static_cast<std::size_t>(side_)]; }
  const WorldSide& side() const { return connection_->sides[static_cast<std::size_t>(side_)]; }

  World& world_;
  std::shared_ptr<WorldConnection> connection_;
  const int side_;
};

class WorldListener final : public Listener {
 public:
  WorldListener(World& world, std::shared_ptr<ListenerState> state)
      : world_(world), state_(std::move(state)) {}
  ~WorldListener() override;
  WorldListener(const WorldListener&) = delete;
  WorldListener& operator=(const WorldListener&) = delete;

  std::string address() const override { return state_->address; }
  Result<std::unique_ptr<Incoming>> next(Deadline deadline) override;

 private:
  void listen_again();

  World& world_;
  std::shared_ptr<ListenerState> state_;
};

class WorldIncoming final : public Incoming {
 public:
  WorldIncoming(World& world, std::shared_ptr<ListenerState> state, std::shared_ptr<Knock> knock)
      : world_(world), state_(std::move(state)), knock_(std::move(knock)) {}
  ~WorldIncoming() override;
  WorldIncoming(const WorldIncoming&) = delete;
  WorldIncoming& operator=(const WorldIncoming&) = delete;

  std::span<const std::byte> private_data() const override { return knock_->private_data; }
  Result<std::unique_ptr<Endpoint>> accept(Deadline deadline) override;
  Result<std::unique_ptr<Endpoint>> accept_through(Device& device, Memory& window,
                                                   Deadline deadline) override;

 private:
  World& world_;
  std::shared_ptr<ListenerState> state_;
  std::shared_ptr<Knock> knock_;
};

/// Bound of every loop that waits for something in the world.
inline constexpr std::uint64_t kWaitStepsMax = 10'000'000;

}  // namespace perdure::fabric::emu
