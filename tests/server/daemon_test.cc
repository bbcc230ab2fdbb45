// The main life of a perdured: pools made, written, fenced, lost to kill -9 and found again.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "client/connect_session.h"
#include "client/dial.h"
#include "client/http_peer.h"
#include "control/json_codec.h"
#include "core/json.h"
#include "daemon_process.h"
#include "data_plane.h"
#include "fabric/ofi/ofi.h"
#include "fabric/shm/shm.h"
#include "pmem/pool.h"
#include "pmem/pool_format.h"

namespace perdure::server {
namespace {

using std::chrono::seconds;

control::SessionRequest writer(std::uint32_t epoch, std::uint64_t id, bool take_over = false) {
  return {"a", true, Epoch{epoch}, id, "tester", take_over};
}

class Daemon : public testing::Test {
 protected:
  Daemon() { start(); }

  void start(std::vector<std::string> more = {}) {
    daemon_.reset(DaemonProcess::serving(pools_.path(), std::move(more)));
    auto device = fabric::ofi::open_device();
    ASSERT_TRUE(device.ok()) << device.error().message;
    device_ = std::move(*device);
    auto peer = client::HttpPeer::open(daemon_->address("control"), device_);
    ASSERT_TRUE(peer.ok());
    peer_ = std::move(*peer);
  }

  void create(const std::string& name = "a") {
    const auto created = peer_->create({name, 1 << 20}, soon());
    ASSERT_TRUE(created.ok()) << created.error().message;
  }

  client::Session open(const control::SessionRequest& request) {
    auto session = peer_->open_session(request, soon());
    EXPECT_TRUE(session.ok()) << session.error().message;
    return session.ok() ? std::move(*session) : client::Session{};
  }

  /// A write, then a read behind it: once that returns, the write has been executed or refused.
  bool writes(client::Session& session, int value) {
    std::vector<std::byte> bytes(64, static_cast<std::byte>(value));
    std::vector<std::byte> read(64);
    return !run(session, *device_, fabric::Opcode::Write, bytes) &&
           !run(session, *device_, fabric::Opcode::Read, read) && read == bytes;
  }

  /// What a new reader finds at the start of the pool; -1 if it can not read.
  int read_back() {
    control::SessionRequest request;
    request.pool = "a";
    client::Session session = open(request);
    std::vector<std::byte> bytes(1);
    if (!session.endpoint || run(session, *device_, fabric::Opcode::Read, bytes)) return -1;
    return std::to_integer<int>(bytes[0]);
  }

  std::uint64_t metric(const std::string& name) {
    const std::string text = "\n" + daemon_->ask("GET", "/metrics").body;
    const std::size_t at = text.find("\n" + name + " ");
    EXPECT_NE(at, std::string::npos) << name;
    return at == std::string::npos ? 0 : std::stoull(text.substr(at + name.size() + 2));
  }

  TestDirectory pools_;
  std::unique_ptr<DaemonProcess> daemon_;
  std::shared_ptr<fabric::Device> device_;
  std::unique_ptr<client::HttpPeer> peer_;
};

TEST_F(Daemon, PoolsAreCreatedListedAndDescribed) {
  EXPECT_TRUE(peer_->list(soon())->empty());
  create("b");
  create("a");
  const auto pools = peer_->list(soon());
  ASSERT_TRUE(pools.ok());
  ASSERT_EQ(pools->size(), 2u);
  EXPECT_EQ(pools->at(0).name, "a");
  EXPECT_EQ(pools->at(0).bytes, 1u << 20);
  EXPECT_EQ(pools->at(0).state, control::PoolStatus::Open);
  EXPECT_FALSE(pools->at(0).evidence.empty());
  EXPECT_EQ(*peer_->describe("b", soon()), pools->at(1));
  EXPECT_EQ(peer_->create({"a", 1 << 20}, soon()).code(), ErrorCode::AlreadyExists);
  EXPECT_EQ(peer_->describe("c", soon()).code(), ErrorCode::NotFound);
  EXPECT_EQ(peer_->create({"huge", std::uint64_t{1} << 44}, soon()).code(), ErrorCode::NoSpace);
  EXPECT_EQ(peer_->describe("huge", soon()).code(), ErrorCode::NotFound);
}

TEST_F(Daemon, AWriterWritesAndItsKeysDieWithTheSession) {
  create();
  client::Session session = open(writer(1, 10));
  EXPECT_TRUE(writes(session, 7));
  // Close, from the control plane. Expect: whatever the writer posts now changes nothing.
  ASSERT_TRUE(peer_->close_session(session.id, control::Left::NotKnown, soon()).ok());
  EXPECT_FALSE(writes(session, 8));
  EXPECT_EQ(read_back(), 7);
  EXPECT_EQ(peer_->close_session(session.id, control::Left::NotKnown, soon()).code(),
            ErrorCode::NotFound);
}

TEST_F(Daemon, AReaderCanNotWrite) {
  create();
  control::SessionRequest request;
  request.pool = "a";
  client::Session session = open(request);
  EXPECT_FALSE(writes(session, 8));
  EXPECT_EQ(read_back(), 0);
}

TEST_F(Daemon, FencingCutsTheOldWriterOff) {
  create();
  client::Session old = open(writer(1, 10));
  EXPECT_TRUE(writes(old, 1));
  EXPECT_EQ(peer_->open_session(writer(2, 20), soon()).code(), ErrorCode::Busy);
  EXPECT_EQ(peer_->open_session(writer(1, 20, true), soon()).code(), ErrorCode::Fenced);
  ASSERT_TRUE(peer_->fence("a", Epoch{3}, soon()).ok());
  EXPECT_FALSE(writes(old, 2));
  EXPECT_EQ(peer_->open_session(writer(2, 20), soon()).code(), ErrorCode::Fenced);
  client::Session next = open(writer(3, 20));
  EXPECT_TRUE(writes(next, 3));
  EXPECT_EQ(peer_->fence("a", Epoch{2}, soon()).code(), ErrorCode::Fenced);
  EXPECT_EQ(metric("perdure_writers_fenced_total{pool=\"a\"}"), 1u);
  EXPECT_EQ(metric("perdure_pool_epoch{pool=\"a\"}"), 3u);
}

TEST_F(Daemon, AnotherSessionsKeyIsOfNoUse) {
  create();
  client::Session session = open(writer(1, 10));
  control::SessionRequest request;
  request.pool = "a";
  client::Session reader = open(request);
  reader.remote = session.remote;
  EXPECT_FALSE(writes(reader, 9));
  EXPECT_TRUE(writes(session, 7));
}

TEST_F(Daemon, AWrongTokenIsRejectedAndCounted) {
  create();
  control::SessionAsk ask;
  ask.request = writer(1, 10);
  ask.transport = Transport::Tcp;
  const auto answer = daemon_->ask("POST", "/v1/pools/a/sessions", encode(ask));
  auto grant = control::decode_grant(answer.body);
  ASSERT_TRUE(grant.ok()) << answer.body;
  const std::string at = grant->address;
  control::SessionGrant wrong = *grant;
  wrong.token ^= 1;
  EXPECT_FALSE(client::connect_session(wrong, at, *device_, {}, soon()).ok());
  EXPECT_FALSE(device_->connect(at, {}, {}, soon()).ok());  // no token at all
  const std::vector<std::byte> noise(fabric::kPrivateBytesMax, std::byte{0x5a});
  EXPECT_FALSE(device_->connect(at, noise, {}, soon()).ok());
  EXPECT_EQ(metric("perdure_refused_requests_total{reason=\"token\"}"), 3u);
  auto session = client::connect_session(*grant, at, *device_, {}, soon());
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_TRUE(writes(*session, 1));
}

TEST_F(Daemon, MessagesAreCountedAndThoseOutsideThePoolAreRefused) {
  create();
  client::Session session = open(writer(1, 10));
  // Send: inside the pool. Expect: the answer says that it was handled.
  EXPECT_EQ(update(session, *device_, 1, 0), 0);
  // Send: outside of the pool. Expect: nothing is executed, the session is over.
  EXPECT_NE(update(session, *device_, 2, 1 << 20), 0);
  const Deadline deadline = soon();
  fabric::Completion completion;
  while (session.endpoint->connected() && !deadline.passed()) {
    (void)session.endpoint->poll({&completion, 1});
  }
  EXPECT_FALSE(session.endpoint->connected());
  EXPECT_EQ(read_back(), 5);
  EXPECT_EQ(metric("perdure_messages_total{pool=\"a\"}"), 2u);
  EXPECT_EQ(metric("perdure_refused_messages_total{pool=\"a\"}"), 1u);
  EXPECT_EQ(metric("perdure_copied_bytes_total{pool=\"a\"}"), 64u);
  EXPECT_EQ(metric("perdure_flush_calls_total{pool=\"a\"}"), 1u);
  while (metric("perdure_sessions{pool=\"a\",mode=\"write\"}") != 0 && !deadline.passed()) {
  }
  EXPECT_FALSE(deadline.passed());
}

TEST_F(Daemon, SharedMemoryIsOfferedToThisHost) {
  const auto service = client::HttpPeer::probe(daemon_->address("control"), soon());
  ASSERT_TRUE(service.ok());
  EXPECT_EQ(service->host, control::host_identity());
  EXPECT_FALSE(service->emulated);
  ASSERT_EQ(service->transports, (std::vector{Transport::Tcp, Transport::Shm}));
  auto device = fabric::shm::open_device();
  ASSERT_TRUE(device.ok());
  device_ = std::move(*device);
  peer_ = std::move(*client::HttpPeer::open(daemon_->address("control"), device_));
  create();
  client::Session session = open(writer(1, 10));
  EXPECT_EQ(session.pool.profile.transport, Transport::Shm);
  EXPECT_EQ(session.pool.profile.ddio, Ddio::On);
  EXPECT_TRUE(writes(session, 7));
  EXPECT_EQ(update(session, *device_, 1, 64), 0);
  ASSERT_TRUE(peer_->close_session(session.id, control::Left::NotKnown, soon()).ok());
  EXPECT_FALSE(writes(session, 8));
  EXPECT_EQ(read_back(), 7);
}

TEST_F(Daemon, APoolIsShownWithTheFirstTransportAlsoAfterARestart) {
  const std::string file = pools_.path() + "/x.toml";
  std::ofstream(file) << "[data]\ntransports = [\"shm\"]\n";
  for (int round = 0; round < 2; ++round) {
    daemon_->send(SIGTERM);
    EXPECT_EQ(daemon_->wait().status, 0);
    daemon_.reset(DaemonProcess::serving(pools_.path(), {"--config", file}));
    if (round == 0) (void)daemon_->ask("POST", "/v1/pools", R"({"name":"a","bytes":65536})");
    const auto pool = control::decode_pool(daemon_->ask("GET", "/v1/pools/a").body);
    ASSERT_TRUE(pool.ok());
    EXPECT_EQ(pool->profile.transport, Transport::Shm) << round;
  }
}

/// A device on whose network the first messages of connecting are lost.
class ForgetfulDevice final : public fabric::Device {
 public:
  ForgetfulDevice(std::shared_ptr<fabric::Device> device, std::size_t lost)
      : device_(std::move(device)), lost_(lost) {}

  Result<std::unique_ptr<fabric::Memory>> register_memory(std::span<std::byte> range,
                                                          fabric::Access access) override {
    return device_->register_memory(range, access);
  }
  Result<std::unique_ptr<fabric::Listener>> listen(const std::string& address,
                                                   const fabric::EndpointOptions& how) override {
    return device_->listen(address, how);
  }
  Result<std::unique_ptr<fabric::Endpoint>> connect(const std::string& address,
                                                    std::span<const std::byte> token,
                                                    const fabric::EndpointOptions& how,
                                                    Deadline deadline) override {
    tokens_.emplace_back(token.begin(), token.end());
    asked_ = how;
    if (tokens_.size() <= lost_) return Error{ErrorCode::TimedOut, "lost"};
    return device_->connect(address, token, how, deadline);
  }
  Transport transport() const override { return device_->transport(); }
  Capabilities capabilities() const override { return device_->capabilities(); }
  std::string describe() const override { return device_->describe(); }

  const std::vector<std::vector<std::byte>>& tokens() const { return tokens_; }
  /// The last time.
  const fabric::EndpointOptions& asked() const { return asked_; }

 private:
  const std::shared_ptr<fabric::Device> device_;
  const std::size_t lost_;
  std::vector<std::vector<std::byte>> tokens_;
  fabric::EndpointOptions asked_;
};

TEST_F(Daemon, AConnectionThatIsLostOnItsWayIsMadeAgainWithAnotherGrant) {
  create();
  auto forgetful = std::make_shared<ForgetfulDevice>(device_, 2);
  peer_ = std::move(*client::HttpPeer::open(daemon_->address("control"), forgetful));
  client::Session session = open(writer(1, 10));
  EXPECT_TRUE(writes(session, 7));
  ASSERT_EQ(forgetful->tokens().size(), 3u);
  EXPECT_NE(forgetful->tokens()[0], forgetful->tokens()[1]);
  // The grants that were not used have been taken back.
  EXPECT_EQ(metric("perdure_sessions{pool=\"a\",mode=\"write\"}"), 1u);
}

TEST_F(Daemon, APeerThatWasDownWhenItWasDialledIsAskedWhatItOffersOnceItAnswers) {
  create();
  const std::string address = daemon_->address("control");
  daemon_.reset();
  client::Dialer dialer;
  const auto peer = dialer.dial(address, std::nullopt);
  ASSERT_TRUE(peer.ok()) << peer.error().message;
  control::SessionRequest reader;
  reader.pool = "a";
  EXPECT_EQ((*peer)->open_session(reader, soon()).code(), ErrorCode::Disconnected);

  // It comes back on this host. Expect: shared memory, not what is taken for unknown peers.
  daemon_ = std::make_unique<DaemonProcess>(std::vector<std::string>{
      "--pools", pools_.path(), "--listen", address, "--data-listen", "127.0.0.1:0"});
  ASSERT_TRUE(daemon_->await()) << daemon_->wait().said;
  const auto session = (*peer)->open_session(reader, soon());
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(session->endpoint->transport(), Transport::Shm);
  EXPECT_EQ(session->pool.profile.transport, Transport::Shm);
  EXPECT_EQ((*peer)->device().transport(), Transport::Shm);
}

TEST_F(Daemon, WhatIsAskedOfConnectionsReachesThem) {
  create();
  fabric::EndpointOptions endpoints;
  endpoints.send_depth = 32;
  endpoints.ack_timeout = 14;
  endpoints.traffic_class = std::uint8_t{106};
  control::SessionRequest reader;
  reader.pool = "a";

  // From a peer to its device, whole.
  const auto device = std::make_shared<ForgetfulDevice>(device_, 0);
  peer_ = std::move(*client::HttpPeer::open(daemon_->address("control"), device));
  peer_->use_endpoints(endpoints);
  ASSERT_TRUE(peer_->open_session(reader, soon()).ok());
  EXPECT_EQ(device->asked().ack_timeout, 14);
  EXPECT_EQ(device->asked().traffic_class, 106);

  // From what a program said at its start, through a dialler, to a connection; tcp shows a depth.
  const auto before = client::default_endpoints();
  client::set_default_endpoints(endpoints);
  client::Dialer told;
  client::set_default_endpoints(before);
  client::Dialer plain;
  client::Dialer changed;
  changed.use_endpoints(endpoints);
  const auto depth = [&](client::Dialer& dialer) -> std::size_t {
    auto peer = dialer.dial(daemon_->address("control"), Transport::Tcp);
    EXPECT_TRUE(peer.ok()) << peer.error().message;
    auto session = (*peer)->open_session(reader, soon());
    EXPECT_TRUE(session.ok()) << session.error().message;
    return session.ok() ? session->endpoint->limits().send_depth : 0;
  };
  EXPECT_EQ(depth(told), 32u);
  EXPECT_EQ(depth(changed), 32u);
  EXPECT_NE(depth(plain), 32u);
}

TEST_F(Daemon, KillAndRestartKeepsPoolsAndWriters) {
  create();
  {
    client::Session session = open(writer(4, 0xfeedfacecafebeefu));
    EXPECT_TRUE(writes(session, 7));
  }
  const auto before = *peer_->describe("a", soon());
  daemon_->send(SIGKILL);
  EXPECT_EQ(daemon_->wait().signal, SIGKILL);
  EXPECT_EQ(peer_->describe("a", soon()).code(), ErrorCode::Disconnected);
  start();
  const auto after = *peer_->describe("a", soon());
  EXPECT_EQ(after.uuid, before.uuid);
  EXPECT_EQ(after.epoch, Epoch{4});
  EXPECT_EQ(after.writer, 0xfeedfacecafebeefu);
  EXPECT_EQ(after.writer_name, "tester");
  EXPECT_EQ(read_back(), 7);
  EXPECT_EQ(peer_->open_session(writer(4, 1), soon()).code(), ErrorCode::Fenced);
}

TEST_F(Daemon, TerminationIsClean) {
  create();
  client::Session session = open(writer(1, 10));
  daemon_->send(SIGTERM);
  const Ended ended = daemon_->wait();
  EXPECT_EQ(ended.status, 0) << ended.said;
  EXPECT_NE(ended.said.find("closed cleanly"), std::string::npos);
  EXPECT_FALSE(writes(session, 1));
  const auto info = pmem::Pool::inspect(pools_.path() + "/a.pool");
  ASSERT_TRUE(info.ok());
  EXPECT_TRUE(info->state.clean_shutdown);
}

TEST_F(Daemon, ASecondDaemonOnThePoolsSaysWhoHasThem) {
  create();
  std::unique_ptr<DaemonProcess> second(DaemonProcess::serving(pools_.path()));
  const auto pool = control::decode_pool(second->ask("GET", "/v1/pools/a").body);
  ASSERT_TRUE(pool.ok());
  EXPECT_EQ(pool->state, control::PoolStatus::Unavailable);
  EXPECT_NE(pool->reason.find(std::to_string(daemon_->pid())), std::string::npos) << pool->reason;
  EXPECT_EQ(
      control::decode_error(second->ask("POST", "/v1/pools/a/sessions", R"({"write":false})").body)
          .code,
      ErrorCode::Busy);
  // The first lets go. Expect: the second opens the pool when asked to.
  ASSERT_TRUE(peer_->close_pool("a", soon()).ok());
  EXPECT_EQ(second->ask("POST", "/v1/pools/a/open").status, 200);
  EXPECT_EQ(second->ask("POST", "/v1/pools/a/sessions", R"({"write":false})").status, 201);
  EXPECT_EQ(peer_->open_pool("a", soon()).code(), ErrorCode::Busy);
}

TEST_F(Daemon, APoolThatCanNotBeOpenedDoesNotStopTheOthers) {
  create("good");
  create("bad");
  daemon_->send(SIGTERM);
  EXPECT_EQ(daemon_->wait().status, 0);
  {
    std::fstream file(pools_.path() + "/bad.pool", std::ios::in | std::ios::out | std::ios::binary);
    for (const std::uint64_t header : {std::uint64_t{0}, pmem::kHeaderCopyOffset}) {
      file.seekp(static_cast<std::streamoff>(header + 64));
      file << "damage";
    }
  }
  std::ofstream(pools_.path() + "/short.pool") << "not a pool";
  start();
  EXPECT_EQ(peer_->describe("good", soon())->state, control::PoolStatus::Open);
  for (const char* name : {"bad", "short"}) {
    const auto pool = peer_->describe(name, soon());
    ASSERT_TRUE(pool.ok());
    EXPECT_EQ(pool->state, control::PoolStatus::Unavailable) << name;
    EXPECT_FALSE(pool->reason.empty()) << name;
  }
  EXPECT_EQ(metric("perdure_pool_available{pool=\"bad\"}"), 0u);
  EXPECT_EQ(metric("perdure_pool_available{pool=\"good\"}"), 1u);
  EXPECT_EQ(peer_->open_pool("bad", soon()).code(), ErrorCode::Corrupt);
}

TEST_F(Daemon, ADeclaredDomainIsUsedAndAnswered) {
  daemon_->send(SIGTERM);
  EXPECT_EQ(daemon_->wait().status, 0);
  TestDirectory memory("/dev/shm");
  daemon_.reset(DaemonProcess::serving(memory.path(), {"--declare-domain", "wsp"}));
  const auto answer = daemon_->ask("POST", "/v1/pools", R"({"name":"a","bytes":65536})");
  const auto pool = control::decode_pool(answer.body);
  ASSERT_TRUE(pool.ok()) << answer.body;
  EXPECT_EQ(pool->profile.domain, PersistenceDomain::Wsp);
  EXPECT_EQ(pool->profile.ddio, Ddio::On);
}

TEST_F(Daemon, AnOptionTakesThePlaceOfWhatTheFileDeclares) {
  daemon_->send(SIGTERM);
  EXPECT_EQ(daemon_->wait().status, 0);
  TestDirectory memory("/dev/shm");
  const std::string file = pools_.path() + "/x.toml";
  std::ofstream(file) << "[profile]\ndomain = \"wsp\"\n[profile.pool.a]\ndomain = \"mhp\"\n";
  const auto domain_by = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"--config", file});
    daemon_.reset(DaemonProcess::serving(memory.path(), std::move(more)));
    (void)daemon_->ask("POST", "/v1/pools", R"({"name":"a","bytes":65536})");
    const auto pool = control::decode_pool(daemon_->ask("GET", "/v1/pools/a").body);
    EXPECT_TRUE(pool.ok());
    daemon_->send(SIGTERM);
    EXPECT_EQ(daemon_->wait().status, 0);
    return pool.ok() ? pool->profile.domain : PersistenceDomain::None;
  };
  EXPECT_EQ(domain_by({}), PersistenceDomain::Mhp);
  EXPECT_EQ(domain_by({"--declare-domain", "wsp"}), PersistenceDomain::Wsp);
  EXPECT_EQ(domain_by({"--declare-domain", "auto"}), PersistenceDomain::None);
}

TEST_F(Daemon, WhoeverReadItsLogMayGo) {
  std::ifstream status("/proc/" + std::to_string(daemon_->pid()) + "/status");
  std::uint64_t ignored = 0;
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("SigIgn:", 0) == 0) ignored = std::stoull(line.substr(7), nullptr, 16);
  }
  EXPECT_NE(ignored & (std::uint64_t{1} << (SIGPIPE - 1)), 0u);
}

TEST(CommandLine, MistakesEndWithAReasonAndAdvice) {
  TestDirectory directory;
  const std::string file = directory.path() + "/x.toml";
  std::ofstream(file) << "[control]\nlisten = \"0.0.0.0:1\"\n";
  const std::string wrong = directory.path() + "/y.toml";
  std::ofstream(wrong) << "[control]\n\nlissen = 1\n";
  struct Case {
    std::vector<std::string> arguments;
    int status;
    std::string words;
  };
  const Case cases[] = {
      {{"--config", file}, 2, "allow_remote"},
      {{"--config", wrong, "--check-config"}, 2, "y.toml:3: 'lissen'"},
      {{"--config", directory.path() + "/none.toml"}, 2, "can not be read"},
      {{"--listen", "here"}, 2, "host:port"},
      {{"--declare-domain", "adr"}, 2, "none, page, dmp, mhp, wsp"},
      {{"--no-such-option"}, 2, "--no-such-option"},
      {{"--pools", directory.path() + "/none", "--listen", "127.0.0.1:0"}, 1, "create it"},
  };
  for (const Case& each : cases) {
    DaemonProcess daemon(each.arguments);
    const Ended ended = daemon.wait();
    EXPECT_EQ(ended.status, each.status) << ended.said;
    EXPECT_NE(ended.said.find(each.words), std::string::npos) << ended.said;
  }
}

TEST(CommandLine, ALibfabricThatCanNotBeLoadedIsNamedAndSharedMemoryNeedsNone) {
  TestDirectory directory;
  std::ofstream(directory.path() + "/libfabric.so.1") << "no library";
  const auto with = [&](const std::string& transport) {
    const std::string file = directory.path() + "/" + transport + ".toml";
    std::filesystem::create_directory(directory.path() + "/" + transport);
    std::ofstream(file) << "[control]\nlisten = \"127.0.0.1:0\"\n[data]\nlisten = \"127.0.0.1:0\"\n"
                        << "transports = [\"" << transport << "\"]\n[pools]\ndirectory = \""
                        << directory.path() << "/" << transport << "\"\n";
    return std::vector<std::string>{"--config", file};
  };
  ASSERT_EQ(::setenv("LD_LIBRARY_PATH", directory.path().c_str(), 1), 0);
  DaemonProcess over_tcp(with("tcp"));
  DaemonProcess over_shm(with("shm"));
  ASSERT_EQ(::unsetenv("LD_LIBRARY_PATH"), 0);

  const Ended ended = over_tcp.wait();
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.said.find("libfabric can not be loaded"), std::string::npos) << ended.said;
  EXPECT_NE(ended.said.find("install it"), std::string::npos) << ended.said;
  EXPECT_TRUE(over_shm.await());
}

TEST_F(Daemon, APortInUseIsSaid) {
  DaemonProcess second({"--pools", pools_.path(), "--listen", daemon_->address("control"),
                        "--data-listen", "127.0.0.1:0"});
  const Ended ended = second.wait();
  EXPECT_EQ(ended.status, 1);
  EXPECT_NE(ended.said.find("choose another address"), std::string::npos) << ended.said;
}

TEST_F(Daemon, TheLivePageIsCompleteInItself) {
  const auto page = daemon_->ask("GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_NE(page.body.find("<!doctype html>"), std::string::npos);
  EXPECT_EQ(page.body.find("src="), std::string::npos);
  EXPECT_EQ(page.body.find("http://"), std::string::npos);
  for (const char* route : {"/v1/profile", "/v1/pools", "/v1/sessions"}) {
    EXPECT_NE(page.body.find(route), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(daemon_->ask("GET", route).body).at("format"), 1);
  }
}

}  // namespace
}  // namespace perdure::server
