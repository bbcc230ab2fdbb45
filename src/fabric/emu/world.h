// World: machines, their RNICs and the wires between them, in one thread, under one seed. Whatever
// the abstract machine of design section 4 allows to happen next, happens next at random; the same
// seed gives the same history. Crash tests and REMOTELOG's emulated rows run in it.
//
//   Random random(seed);
//   emu::World world(random);
//   emu::Machine& server = world.add_machine("server", profile);
//   pmem::CrashableRegion& pool = server.add_region(1 << 20);
//   auto [client_end, server_end] = world.connect(client, server);
//   world.cut_after(server, 17);        // the power fails after 17 more events
//   ... post, poll (which steps the world) ...
//   server.power_on();                  // pool.bytes() is what survived
//
// Time is emulated too, by a description of hardware (timing.h): pass world.clock() to whatever
// asks for a Clock, and build deadlines from it. Endpoint::arm always says false: nothing here
// sleeps.
#pragma once

#include "core/clock.h"
#include "core/random.h"
#include "fabric/emu/inbound_queue.h"
#include "fabric/emu/memory_table.h"
#include "fabric/emu/rnic_switches.h"
#include "fabric/emu/timing.h"
#include "fabric/fabric.h"
#include "pmem/crashable_region.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace perdure::fabric::emu {

class World;
struct WorldConnection;
struct WorldSide;
struct ListenerState;

/// One computer of the world: RNIC (it is a Device), regions, programs, and a power switch.
class Machine final : public Device {
 public:
  Machine(World& world, std::string name, const ServerProfile& profile,
          const RnicSwitches& switches);
  ~Machine() override;

  const std::string& name() const { return name_; }
  const ServerProfile& profile() const { return profile_; }
  const RnicSwitches& switches() const { return switches_; }

  /// A region of this machine with the profile's domain; it lives as long as the machine.
  pmem::CrashableRegion& add_region(std::uint64_t bytes);
  /// The same with a region made elsewhere; it must outlive the machine.
  void attach(pmem::CrashableRegion& region);

  /// A program of this machine: called now and then; says whether it did any work. It may use
  /// everything but connect. It is forgotten when the power fails.
  void add_actor(std::function<bool()> actor);

  /// Wire and RNIC lose what they hold (what goes to Wsp regions is kept), regions lose what their
  /// domain loses, actors stop, registrations end; connections break: at this end all calls fail
  /// with Disconnected, the other end sees that in time.
  void power_cut();
  /// The programs die and nothing else: as power_cut, but what the RNIC has is placed, and the
  /// regions keep what is visible. Until power_on the machine does nothing.
  void kill();
  /// The RNIC starts anew and forgets all it had: connections, listeners, registrations, and what
  /// it had acknowledged and not placed. Programs go on, and may register and listen again at
  /// once; a listener does so by itself when it is asked for the next peer.
  void reset_rnic();
  /// Regions show what survived. Programs, listeners and registrations are to be made anew.
  void power_on();
  bool powered() const { return powered_; }
  /// From here on its programs get no processor (true), or have one (false). What its RNIC does, it
  /// does.
  void starve(bool starved);
  bool starved() const { return starved_; }
  /// From here on its RNIC ends no connection and takes no key away when asked to, and says so
  /// (true), or does (false): see Endpoint::sever. Loss of power ends it.
  void refuse_revocations(bool refused) { memory_.refuse_revocations(refused); }

  const RnicCounters& counters() const { return counters_; }

  Result<std::unique_ptr<Memory>> register_memory(std::span<std::byte> range,
                                                  Access access) override;
  WindowKind window_kind(std::uint64_t bytes) const override { return memory_.window_kind(bytes); }
  Result<std::unique_ptr<Memory>> open_window(std::shared_ptr<Memory> over, Access access) override;
  /// See MemoryTable::pinned_bytes.
  std::uint64_t pinned_bytes() const { return memory_.pinned_bytes(); }
  Result<std::unique_ptr<Listener>> listen(const std::string& address,
                                           const EndpointOptions& options) override;
  Result<std::unique_ptr<Endpoint>> connect(const std::string& address,
                                            std::span<const std::byte> private_data,
                                            const EndpointOptions& options,
                                            Deadline deadline) override;
  Transport transport() const override { return profile_.transport; }
  Capabilities capabilities() const override { return profile_.capabilities; }
  std::string describe() const override;

 private:
  friend class World;
  friend struct WorldSide;
  friend class WorldEndpoint;
  friend class WorldIncoming;

  World& world_;
  const std::string name_;
  const ServerProfile profile_;
  const RnicSwitches switches_;
  MemoryTable memory_;
  RnicCounters counters_;
  std::vector<std::unique_ptr<pmem::CrashableRegion>> own_regions_;
  std::vector<pmem::CrashableRegion*> regions_;
  bool powered_ = true;
  bool starved_ = false;
  bool serves_ = false;  // a program of its own takes the messages
};

/// How two machines reach each other.
enum class LinkState {
  Up,
  Slow,   // what is on the wire seldom moves
  Lossy,  // now and then the transport gives up: the connection breaks, or is not made
  Cut,    // nothing arrives; neither end sees that a connection is lost
};

/// Threads: one for the whole world and all it gave out. It must outlive endpoints and memories.
class World {
 public:
  struct Options {
    /// Random: any enabled event comes next; finds what goes wrong. InTime: the one that is due
    /// first; for emulated latencies.
    enum class Order { Random, InTime } order = Order::Random;
    /// How often, in events, a region evicts something by itself; 0: never.
    std::uint64_t drain_one_in = 8;
    /// What things take in it. Needed only until the world is made.
    const Hardware* hardware = &default_hardware(Transport::InfiniBand);
  };

  explicit World(Random& random, const Options& options);
  explicit World(Random& random) : World(random, Options{}) {}
  ~World();
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  Machine& add_machine(std::string name, const ServerProfile& profile,
                       const RnicSwitches& switches = {});

  /// A connection without listener and handshake: the ends of `from` and of `to`.
  /// Requires both machines powered.
  std::pair<std::unique_ptr<Endpoint>, std::unique_ptr<Endpoint>> connect(
      Machine& from, Machine& to, const EndpointOptions& options = {});

  /// One event: something moves one stage, a completion is delivered, or an actor works. False:
  /// nothing can happen until a program posts something.
  bool step();
  /// Steps until nothing can happen; false when it still goes on after `steps_max`.
  bool settle(std::uint64_t steps_max = 1'000'000);
  /// Steps until the condition holds; false when it does not after `steps_max`, or never will.
  bool run_until(const std::function<bool()>& condition, std::uint64_t steps_max = 1'000'000);

  /// Events so far: moves between stages, deliveries, useful calls of actors, and each post and
  /// flush of a program.
  std::uint64_t events() const { return events_; }
  /// Power of that machine fails when `events` more have happened; a second call replaces the
  /// first. In the middle of a program's call, too.
  void cut_after(Machine& machine, std::uint64_t events);
  void cancel_cut() { cut_machine_ = nullptr; }
  /// Anything that is to happen when `events` more have happened, in the middle of a program's call
  /// or not; a second call replaces the first.
  void after(std::uint64_t events, std::function<void()> happens);
  void cancel_after() { happens_ = nullptr; }

  void set_link(const Machine& one, const Machine& other, LinkState state);
  LinkState link(const Machine& one, const Machine& other) const;
  /// All connections between the two break; what was sent may have arrived.
  void drop_connections(const Machine& one, const Machine& other);
  /// Time passes, in which whatever can happen does.
  void pass(Nanoseconds time);
  /// Programs look again at that time, whatever else happens: one of them is busy until then. The
  /// earliest of several such times is kept; who wants a later one asks again.
  void wake_at(Nanoseconds at) { wake_at_ = wake_at_ ? std::min(*wake_at_, at) : at; }
  /// A program was busy for this long with something that is no event.
  void tick(Nanoseconds time) { clock_.advance(time); }

  const Clock& clock() const { return clock_; }
  const Times& times() const { return times_; }
  Random& random() { return random_; }

 private:
  friend class Machine;
  friend class WorldEndpoint;
  friend class WorldListener;
  friend class WorldIncoming;

  enum class Kind { Wire, Posted, NonPosted, Complete, Receive, Notice, Actor, Wake };
  struct Event {
    Kind kind = Kind::Wire;
    WorldConnection* connection = nullptr;
    int side = 0;
    std::size_t actor = 0;
    Nanoseconds at{0};
  };
  struct Actor {
    Machine* machine = nullptr;
    std::function<bool()> run;
    std::uint64_t idle_since = 0;  // value of progress_ when it last found nothing to do
    bool stopped = false;
  };

  std::shared_ptr<WorldConnection> make_connection(Machine& from, Machine& to,
                                                   const EndpointOptions& from_options,
                                                   const EndpointOptions& to_options);
  void collect_events();
  void collect_side(WorldConnection& connection, int side);
  std::size_t choose();
  void run_event(const Event& event);
  void run_wire(WorldConnection& connection, int side);
  void deliver_responses(WorldConnection& connection, int responder);
  void run_complete(WorldConnection& connection, int side);
  bool run_actor(std::size_t index);
  void drain_somewhere();
  void forget_finished();

  /// An event that a program of `machine` makes; the power may fail in it.
  void cpu_event(const Machine& machine, Nanoseconds takes);
  /// One more event has happened.
  void count_event();
  /// Steps on behalf of a program that waits. False: nothing can happen; time passes all the same.
  bool wait_step();
  /// Actors look again, since something outside of the world may have changed.
  void wake_actors() { ++progress_; }
  void break_connection(WorldConnection& connection);
  void go_down(WorldConnection& connection, int side);
  /// The sender stops: what it posted may have left already, the last of it in part.
  void send_last(WorldConnection& connection, int side);
  void lose_power(Machine& machine);
  void reset_rnic(Machine& machine);
  void close_listeners(const Machine& machine);
  void acknowledge(WorldConnection& connection, int responder, Nanoseconds at);
  void lose_ends(WorldConnection& connection, const Machine& machine, bool power);
  void halt(Machine& machine, bool power);
  bool may_notice(const WorldConnection& connection) const;
  bool may_move(const WorldConnection& connection);
  LinkState link(const WorldConnection& connection) const;

  Random& random_;
  const Options options_;
  const Times times_;
  ManualClock clock_;
  Nanoseconds idle_time_{kIdlePollTime};
  std::uint64_t events_ = 0;
  std::uint64_t progress_ = 1;
  bool in_actor_ = false;
  Kind slow_ = Kind::Actor;       // Order::Random: this kind of event hardly comes
  std::uint64_t slow_until_ = 0;  // in events
  Machine* cut_machine_ = nullptr;
  std::uint64_t cut_at_ = 0;
  std::function<void()> happens_;
  std::uint64_t happens_at_ = 0;
  std::optional<Nanoseconds> wake_at_;
  struct Link {
    const Machine* one;
    const Machine* other;
    LinkState state;
  };
  std::vector<Link> links_;  // that are not Up
  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<std::shared_ptr<WorldConnection>> connections_;
  std::vector<std::shared_ptr<Actor>> actors_;
  std::map<std::string, std::shared_ptr<ListenerState>> listeners_;
  std::uint64_t next_listener_ = 1;
  std::vector<Event> enabled_;  // of the current step; kept for its capacity
};

}  // namespace perdure::fabric::emu
