// A peer in this process, whose pool is memory that loses power and whose medium can hang.
#pragma once

#include <gtest/gtest.h>
#include <perdure/log.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fabric/open_device.h"
#include "hanging_region.h"
#include "log/log_format.h"
#include "pmem/crashable_region.h"
#include "pmem/pool.h"
#include "pmem/pool_format.h"
#include "server/http_server.h"

namespace perdure::server {

/// A control plane in this process with a blank pool.
class OpenedPeer {
 public:
  OpenedPeer(Transport transport, std::size_t number, const std::string& name = "log",
             std::uint64_t pool_bytes = std::uint64_t{2} << 20) {
    auto device = fabric::open_device(transport);
    EXPECT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    const std::string listen = transport == Transport::Tcp ? "127.0.0.1:0" : "";
    auto service = PeerService::open({}, {{device_.get(), listen, {}}});
    EXPECT_TRUE(service.ok()) << service.error().message;
    service_ = std::move(*service);
    pmem::CrashableRegion::Options memory;
    memory.bytes = pool_bytes;
    memory.domain = PersistenceDomain::Page;
    auto region = pmem::CrashableRegion::open(memory);
    EXPECT_TRUE(region.ok());
    region_ = std::move(*region);
    pmem::PoolOptions options;
    options.uuid = pmem::Uuid{std::byte(number + 1)};
    auto pool = pmem::Pool::format(std::make_unique<HangingRegion>(*region_, hang_), options);
    EXPECT_TRUE(pool.ok());
    const auto added = service_->add_pool(name, std::move(*pool));
    EXPECT_TRUE(added.ok()) << added.error().message;
    start("127.0.0.1:0");
  }
  ~OpenedPeer() { hang_->hang(false); }
  OpenedPeer(const OpenedPeer&) = delete;
  OpenedPeer& operator=(const OpenedPeer&) = delete;

  const std::string& address() const { return address_; }
  /// A bit of what follows `lsn` in the first lap of the ring.
  void flip_behind(Lsn lsn) {
    region_->flip_bit(pmem::kPoolDataOffset + log::kRingAt + lsn.value + 100, 3);
  }
  /// Its control plane stops, and answers again at the same address.
  void stop() { server_.reset(); }
  void start() { start(address_); }
  /// Cuts off every session that it has.
  void end_sessions() {
    const auto report = service_->report();
    ASSERT_TRUE(report.ok());
    for (const auto& session : report->sessions) {
      const auto closed = service_->close_session(session.id);
      // A reader may have gone by itself meanwhile.
      EXPECT_TRUE(closed.ok() || closed.code() == ErrorCode::NotFound) << closed.error().message;
    }
  }
  Hang& medium() { return *hang_; }

 private:
  void start(const std::string& listen) {
    HttpServerOptions http;
    http.listen = listen;
    auto server = HttpServer::open(*service_, http);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(*server);
    address_ = server_->address();
  }

  std::unique_ptr<pmem::CrashableRegion> region_;
  const std::shared_ptr<Hang> hang_ = std::make_shared<Hang>();
  std::unique_ptr<fabric::Device> device_;
  std::unique_ptr<PeerService> service_;
  std::unique_ptr<HttpServer> server_;
  std::string address_;
};

/// Three of them, and how a log on them is opened.
class OpenedPeers {
 public:
  explicit OpenedPeers(Transport transport) : transport_(transport) {
    for (std::size_t index = 0; index < 3; ++index) {
      peers_.push_back(std::make_unique<OpenedPeer>(transport, index));
    }
  }
  OpenedPeer& operator[](std::size_t index) { return *peers_[index]; }

  LogOptions options() const {
    LogOptions options;
    for (const auto& each : peers_) options.peers.push_back(each->address());
    options.pool = "log";
    options.transport = transport_;
    options.record_bytes_max = 64 * 1024;
    options.measure_costs = false;
    return options;
  }

 private:
  Transport transport_;
  std::vector<std::unique_ptr<OpenedPeer>> peers_;
};

}  // namespace perdure::server
