// A PeerService on a machine of an emulated world, with one pool and a requester.
#pragma once

#include <gtest/gtest.h>

#include <cstring>

#include "client/connect_session.h"
#include "core/bytes.h"
#include "fabric/emu/world.h"
#include "pmem/lent_region.h"
#include "server/service.h"
#include "testing/limited_device.h"
#include "testing/local_peer.h"

namespace perdure::test {

/// A region whose medium can break.
class BreakableRegion final : public pmem::LentRegion {
 public:
  using LentRegion::LentRegion;
  using Region::flush;
  Result<void> flush(std::span<const pmem::Range> ranges) override {
    if (broken) return Error{ErrorCode::SystemError, "the medium is broken"};
    return LentRegion::flush(ranges);
  }

  bool broken = false;
};

inline ServerProfile profile_of(PersistenceDomain domain, ReceiveBuffers buffers) {
  ServerProfile profile;
  profile.domain = domain;
  profile.ddio = Ddio::Off;
  profile.receive_buffers = buffers;
  profile.transport = Transport::InfiniBand;
  return profile;
}

class Service : public testing::Test {
 protected:
  explicit Service(ReceiveBuffers buffers = ReceiveBuffers::Dram)
      : Service(profile_of(PersistenceDomain::Mhp, buffers)) {}
  explicit Service(const ServerProfile& profile, const fabric::emu::RnicSwitches& switches = {})
      : random_(17), world_(random_), profile_(profile) {
    server_ = &world_.add_machine("server", profile_, switches);
    client_ = &world_.add_machine("client", profile_);
    region_ = &server_->add_region(1 << 20);
    start(nullptr);
    auto lent = std::make_unique<BreakableRegion>(*region_);
    lent_ = lent.get();
    add(pmem::Pool::format(std::move(lent), {}));
  }

  void start(server::Authorizer* authorizer) {
    server::ServiceOptions options;
    options.threads = false;
    options.clock = &world_.clock();
    options.authorizer = authorizer;
    options.settings.ddio = profile_.ddio;
    options.settings.dma_dirties = dma_dirties_;
    options.settings.receive_buffers = profile_.receive_buffers;
    options.queue = {32, 1024};
    options.sessions_max = 4;
    options.connect_within = std::chrono::seconds{3600};
    const auto session_device = [this]() -> Result<std::unique_ptr<fabric::Device>> {
      return std::unique_ptr<fabric::Device>(
          std::make_unique<LimitedDevice>(*server_, registrations_, is_software_));
    };
    auto service =
        server::PeerService::open(std::move(options), {{server_, "server:1", session_device}});
    ASSERT_TRUE(service.ok()) << service.error().message;
    service_ = std::move(*service);
    server_->add_actor([this, service = service_.get()] {  // forgotten with the power only
      return pumping_ && service == service_.get() && service->pump();
    });
    peer_ = std::make_unique<LocalPeer>("server", *service_, *client_);
  }

  void add(Result<std::unique_ptr<pmem::Pool>> pool) {
    ASSERT_TRUE(pool.ok()) << pool.error().message;
    const auto added = service_->add_pool("a", std::move(*pool));
    ASSERT_TRUE(added.ok()) << added.error().message;
  }

  /// The daemon starts again, on the machine as it is.
  void restart() {
    peer_.reset();
    service_.reset();
    start(nullptr);
    auto lent = std::make_unique<BreakableRegion>(*region_);
    lent_ = lent.get();
    add(pmem::Pool::attach(std::move(lent)));
  }

  /// The power of the server fails and comes back; the daemon starts again.
  void power_cycle() {
    server_->power_cut();
    service_->abandon();
    peer_.reset();
    service_.reset();
    server_->power_on();
    restart();
  }

  static control::SessionRequest writer(std::uint32_t epoch, std::uint64_t id) {
    return {"a", true, Epoch{epoch}, id, "writer", false};
  }
  static control::SessionRequest taking_over(std::uint32_t epoch, std::uint64_t id) {
    control::SessionRequest request = writer(epoch, id);
    request.take_over = true;
    return request;
  }

  Result<client::Session> open(const control::SessionRequest& request) {
    return peer_->open_session(request, deadline());
  }
  Deadline deadline() const { return Deadline(world_.clock(), std::chrono::seconds{3600}); }

  /// What a one-sided write of `value` at the start of the pool ends with.
  std::optional<ErrorCode> write(client::Session& session, int value) {
    return run(session, fabric::Opcode::Write, value);
  }
  /// What a READ or WRITE of 64 bytes at the start of the pool ends with.
  std::optional<ErrorCode> run(client::Session& session, fabric::Opcode opcode, int value = 0) {
    std::vector<std::byte> bytes(64, static_cast<std::byte>(value));
    auto memory = client_->register_memory(bytes, fabric::Access::Local);
    fabric::WorkRequest request;
    request.opcode = opcode;
    request.remote = session.remote;
    request.segments[0] = {bytes.data(), bytes.size(), memory->get()};
    request.segment_count = 1;
    const auto posted = session.endpoint->post({&request, 1});
    if (!posted.ok()) return posted.code();
    fabric::Completion completion;
    for (int polls = 0; polls < 10000; ++polls) {
      if (session.endpoint->poll({&completion, 1}) == 1) {
        world_.settle();
        return completion.error;
      }
    }
    return ErrorCode::TimedOut;
  }

  int first_byte() const { return std::to_integer<int>(region_->bytes()[pmem::kPoolDataOffset]); }
  control::PoolDescription described() { return *service_->describe("a"); }

  Random random_;
  fabric::emu::World world_;
  const ServerProfile profile_;
  DmaDirties dma_dirties_ = DmaDirties::No;  // as declared, from the next start on
  int registrations_ = 1000;                 // that the RNIC grants to each session from now on
  bool is_software_ = false;                 // its RNIC
  bool pumping_ = true;  // false: the daemon is held up, messages stay in their buffers
  fabric::emu::Machine* server_ = nullptr;
  fabric::emu::Machine* client_ = nullptr;
  pmem::CrashableRegion* region_ = nullptr;
  BreakableRegion* lent_ = nullptr;
  std::unique_ptr<server::PeerService> service_;
  std::unique_ptr<test::LocalPeer> peer_;
};

}  // namespace perdure::test
