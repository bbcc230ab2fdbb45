// A configuration is read whole, and every mistake is named with its file and line.
#include "server/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

namespace perdure::server {
namespace {

TEST(Config, NothingGivesTheDefaults) {
  const auto config = parse_config("", "x.toml");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->control_listen, "127.0.0.1:7470");
  EXPECT_FALSE(config->service.settings.declared.has_value());
  EXPECT_EQ(config->service.settings.ddio, Ddio::On);
  EXPECT_EQ(config->service.settings.write_order, WriteOrder::Unknown);
  EXPECT_EQ(config->service.settings.dma_dirties, DmaDirties::No);
  EXPECT_EQ(config->service.spin_budget, std::chrono::microseconds{50});
  EXPECT_EQ(config->service.endpoints.ack_timeout, 17);
  EXPECT_FALSE(config->service.endpoints.traffic_class.has_value());
  EXPECT_EQ(config->service.pool_bytes_max, 0u);
  EXPECT_FALSE(config->service.settings.take_device);
  EXPECT_TRUE(validate(*config).ok());
}

TEST(Config, EveryKeyIsRead) {
  const auto config = parse_config(R"(
[control]
listen = "[::1]:1"
allow_remote = true
connections_max = 20
connections_per_address_max = 10
[data]
listen = "127.0.0.1:2"
fabric = "emu"
transports = ["tcp"]
spin_us = 20
sessions_max = 3
sessions_for_writers = 2
receive_depth = 128
message_bytes_max = 4096
[pools]
directory = "/p"
[profile]
domain = "mhp"
ddio = "off"
write_order = "ordered"
dma_dirties = "yes"
receive_buffers = "pm"
[profile.pool."orders.2"]
domain = "wsp"
[profile.pool.plain]
domain = "auto"
receive_buffers = "dram"
[emulated]
transport = "roce"
native_flush = false
atomic_write = false
seed = 7
[log]
level = "debug"
)",
                                   "x.toml");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->control_listen, "[::1]:1");
  EXPECT_TRUE(config->allow_remote);
  EXPECT_EQ(config->data_listen, "127.0.0.1:2");
  EXPECT_EQ(config->transports, std::vector{Transport::Tcp});
  EXPECT_EQ(config->service.spin_budget, std::chrono::microseconds{20});
  EXPECT_EQ(config->connections_max, 20u);
  EXPECT_EQ(config->connections_per_address_max, 10u);
  EXPECT_EQ(config->service.sessions_max, 3u);
  EXPECT_EQ(config->service.sessions_for_writers, 2u);
  EXPECT_EQ(config->service.queue.depth, 128u);
  EXPECT_EQ(config->service.queue.message_bytes_max, 4096u);
  EXPECT_EQ(config->service.directory, "/p");
  EXPECT_EQ(config->service.settings.declared, PersistenceDomain::Mhp);
  EXPECT_EQ(config->service.settings.ddio, Ddio::Off);
  EXPECT_EQ(config->service.settings.write_order, WriteOrder::Ordered);
  EXPECT_EQ(config->service.settings.dma_dirties, DmaDirties::Yes);
  EXPECT_EQ(config->service.settings.receive_buffers, ReceiveBuffers::Pm);
  const auto& orders = config->service.settings_by_pool.at("orders.2");
  EXPECT_EQ(orders.declared, PersistenceDomain::Wsp);
  EXPECT_EQ(orders.ddio, Ddio::Off);  // what a pool does not say is as for all
  const auto& plain = config->service.settings_by_pool.at("plain");
  EXPECT_FALSE(plain.declared.has_value());
  EXPECT_EQ(plain.receive_buffers, ReceiveBuffers::Dram);
  EXPECT_EQ(config->fabric, Fabric::Emulated);
  EXPECT_EQ(config->emulated_transport, Transport::Roce);
  EXPECT_EQ(config->emulated_capabilities, Capabilities{});
  EXPECT_EQ(config->seed, 7u);
  EXPECT_EQ(config->log_level, Severity::Debug);
}

TEST(Config, WhoStartsRpmemdIsRead) {
  const auto config = parse_config(R"(
[rpmem]
poolset_dir = "/s"
listen = "127.0.0.1:3"
rpmemd = "/b/rpmemd"
config = "/c"
credential_file = "/k"
clients_max = 5
)",
                                   "x.toml");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->rpmem.poolset_dir, "/s");
  EXPECT_EQ(config->rpmem.listen, "127.0.0.1:3");
  EXPECT_EQ(config->rpmem.rpmemd, "/b/rpmemd");
  EXPECT_EQ(config->rpmem.config, "/c");
  EXPECT_EQ(config->rpmem.credential_file, "/k");
  EXPECT_EQ(config->rpmem.clients_max, 5u);
}

TEST(Config, QuotasConsentAndTheRnicsOptionsAreRead) {
  const auto config = parse_config(R"(
[data]
rnic_ack_timeout = 14
rnic_traffic_class = 106
[pools]
pools_max = 5
pool_bytes_max = "2TiB"
[profile.pool.plain]
[profile.pool.device]
take_device = true
)",
                                   "x.toml");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->service.endpoints.ack_timeout, 14);
  EXPECT_EQ(config->service.endpoints.traffic_class, 106);
  EXPECT_EQ(config->service.pools_max, 5u);
  EXPECT_EQ(config->service.pool_bytes_max, std::uint64_t{2} << 40);
  EXPECT_TRUE(config->service.settings_by_pool.at("device").take_device);
  EXPECT_FALSE(config->service.settings_by_pool.at("plain").take_device);
  EXPECT_FALSE(config->service.settings.take_device);
}

struct Wrong {
  const char* text;
  int line;
  const char* words;  // a part of the message
};

TEST(Config, MistakesHaveFileAndLine) {
  const Wrong cases[] = {
      {"\n[control]\nlisten = 5\n", 3, "not a string"},
      {"[control]\nlisten = \"here\"\n", 2, "host:port"},
      {"[control]\nlisten = \"1.2.3.4:99999\"\n", 2, "host:port"},
      {"[control]\nallow_remote = \"yes\"\n", 2, "neither true nor false"},
      {"[control]\n\nlissen = \"127.0.0.1:1\"\n", 3, "'lissen' is not a key of [control]"},
      {"[contrl]\n", 1, "'contrl' is not a key"},
      {"listen = \"127.0.0.1:1\"\n", 1, "'listen' is not a key"},
      {"control = 5\n", 1, "not a table"},
      {"[data]\ntransports = \"tcp\"\n", 2, "not a list"},
      {"[data]\ntransports = []\n", 2, "not a list"},
      {"[data]\ntransports = [\"tcp\",\n \"pigeon\"]\n", 3, "other than"},
      {"[data]\nspin_us = \"fast\"\n", 2, "neither"},
      {"[data]\nspin_us = -1\n", 2, "neither"},
      {"[data]\nsessions_max = 0\n", 2, "not between"},
      {"[data]\nrnic_ack_timeout = 5\n", 2, "not between"},
      {"[data]\nrnic_traffic_class = 256\n", 2, "not between"},
      {"[pools]\npools_max = 0\n", 2, "not between"},
      {"[pools]\npool_bytes_max = \"much\"\n", 2, "is not a size"},
      {"[data]\nsessions_max = 1.5\n", 2, "whole number"},
      {"[data]\nreceive_depth = 1\n", 2, "not between"},
      {"[data]\nmessage_bytes_max = 99999999999\n", 2, "not between"},
      {"[profile]\ndomain = \"adr\"\n", 2, "none, page, dmp, mhp, wsp"},
      {"[profile]\nddio = true\n", 2, "not a string"},
      {"[profile.pool.\"../x\"]\n", 1, "name"},
      {"[profile.pool.x]\ndomain = \"wsp\"\nsize = 1\n", 3, "'size' is not a key"},
      {"[profile.pool]\nx = 1\n", 2, "table"},
      {"[data]\nfabric = \"emulated\"\n", 2, "native, emu"},
      {"[emulated]\nseed = -1\n", 2, "whole number"},
      {"[rpmem]\nlisten = \"here\"\n", 2, "host:port"},
      {"[rpmem]\nclients_max = 0\n", 2, "not between"},
      {"[rpmem]\npoolset-dir = \"/s\"\n", 2, "'poolset-dir' is not a key"},
      {"[log]\nlevel = \"loud\"\n", 2, "debug, info, warning, error"},
      {"[log]\nlevel = \"info\"\nlevel = \"info\"\n", 3, "level"},
      {"[log]\nlevel = \"info\" \xc3\xa9\n", 2, ""},
      {"[log.level]\n", 1, "is a table"},
      {"[log\n", 1, ""},
      {"\n\nx = \n", 3, ""},
      {"a = \"\xff\"\n", 1, ""},
  };
  for (const Wrong& each : cases) {
    const auto config = parse_config(each.text, "x.toml");
    ASSERT_FALSE(config.ok()) << each.text;
    EXPECT_EQ(config.code(), ErrorCode::InvalidArgument);
    const std::string place = "x.toml:" + std::to_string(each.line) + ": ";
    EXPECT_EQ(config.error().message.substr(0, place.size()), place) << config.error().message;
    EXPECT_NE(config.error().message.find(each.words), std::string::npos) << config.error().message;
  }
}

TEST(Config, DeepNestingIsAnError) {
  EXPECT_FALSE(parse_config("a = " + std::string(100000, '['), "x.toml").ok());
  EXPECT_FALSE(parse_config(std::string(2 << 20, '\n'), "x.toml").ok());
}

TEST(Config, AnAddressThatOthersReachMustBeAllowed) {
  Config config;
  config.control_listen = "0.0.0.0:7470";
  EXPECT_EQ(validate(config).code(), ErrorCode::PermissionDenied);
  config.allow_remote = true;
  EXPECT_EQ(validate(config).code(), ErrorCode::InvalidArgument) << "data on loopback";
  EXPECT_NE(validate(config).error().message.find("0.0.0.0:7471"), std::string::npos);
  config.transports = {Transport::Shm};
  EXPECT_TRUE(validate(config).ok());
  config.transports = {Transport::Tcp};
  config.data_listen = "0.0.0.0:7471";
  EXPECT_TRUE(validate(config).ok());
  config = Config{};
  config.data_listen = "10.0.0.1:7471";
  EXPECT_EQ(validate(config).code(), ErrorCode::PermissionDenied);
  EXPECT_NE(validate(config).error().message.find("allow_remote"), std::string::npos);
  // An RNIC listens where its network reaches it, whatever the addresses above say.
  for (const Transport transport : {Transport::InfiniBand, Transport::Roce, Transport::Iwarp}) {
    config = Config{};
    config.transports = {Transport::Tcp, transport};
    EXPECT_EQ(validate(config).code(), ErrorCode::PermissionDenied);
    config.allow_remote = true;
    EXPECT_TRUE(validate(config).ok());
  }
}

TEST(Config, RpmemIsForFilesOfThisMachineAndForWhoMayReachThem) {
  Config config;
  config.rpmem.listen = "0.0.0.0:7472";
  EXPECT_TRUE(validate(config).ok()) << "nobody is served";
  config.rpmem.poolset_dir = "/sets";
  EXPECT_EQ(validate(config).code(), ErrorCode::PermissionDenied);
  EXPECT_NE(validate(config).error().message.find("[rpmem] listen"), std::string::npos);
  EXPECT_NE(validate(config).error().message.find("allow_remote"), std::string::npos);
  config.allow_remote = true;
  EXPECT_TRUE(validate(config).ok());
  config.rpmem.poolset_dir = "sets";
  EXPECT_EQ(validate(config).code(), ErrorCode::InvalidArgument);
  config.rpmem.poolset_dir = "/sets";
  config.fabric = Fabric::Emulated;
  EXPECT_EQ(validate(config).code(), ErrorCode::InvalidArgument);
}

// What counts is the address that is bound, and that the grant says, however it was written.
TEST(Config, DataOnLoopbackIsRefusedBesideAControlPlaneForOthersUnderAnyName) {
  Config config;
  config.allow_remote = true;
  config.control_listen = "0.0.0.0:7470";
  for (const char* local : {"127.0.0.1:7471", "127.1:7471", "[::1]:7471", "localhost:7471",
                            "[::ffff:127.0.0.1]:7471"}) {
    config.data_listen = local;
    EXPECT_EQ(validate(config).code(), ErrorCode::InvalidArgument) << local;
    EXPECT_NE(validate(config).error().message.find("\"0.0.0.0:7471\""), std::string::npos);
  }
  // Who comes by IPv6 reaches no wildcard of IPv4.
  config.control_listen = "[::]:7470";
  EXPECT_NE(validate(config).error().message.find("\"[::]:7471\""), std::string::npos)
      << validate(config).error().message;
  config.data_listen = "[::]:7471";
  EXPECT_TRUE(validate(config).ok());
  // Nobody else reaches the control plane either.
  for (const bool allowed : {false, true}) {
    config = Config{};
    config.allow_remote = allowed;
    config.control_listen = "127.1:7470";
    config.data_listen = "[::ffff:127.0.0.1]:7471";
    EXPECT_TRUE(validate(config).ok()) << validate(config).error().message;
  }
  // An emulated machine listens there for nobody.
  config.control_listen = "0.0.0.0:7470";
  config.fabric = Fabric::Emulated;
  EXPECT_TRUE(validate(config).ok()) << validate(config).error().message;
}

// Who comes by IPv6 would be sent to that address, where no wildcard of IPv4 listens.
TEST(Config, DataByIpv4AloneIsRefusedBesideAControlPlaneOfIpv6) {
  Config config;
  config.allow_remote = true;
  config.data_listen = "0.0.0.0:7471";
  for (const char* v6 : {"[::]:7470", "[2001:db8::1]:7470", "[::1]:7470"}) {
    config.control_listen = v6;
    const auto refused = validate(config);
    ASSERT_FALSE(refused.ok()) << v6;
    EXPECT_EQ(refused.code(), ErrorCode::InvalidArgument) << v6;
    for (const char* words : {v6, "\"[::]:7471\"", "IPv6"}) {
      EXPECT_NE(refused.error().message.find(words), std::string::npos) << refused.error().message;
    }
  }
  // An address of the one kind that everybody is told, and a wildcard that takes both.
  config.data_listen = "10.0.0.1:7471";
  EXPECT_TRUE(validate(config).ok()) << validate(config).error().message;
  config.data_listen = "[::]:7471";
  for (const char* any : {"[::]:7470", "0.0.0.0:7470", "10.0.0.1:7470"}) {
    config.control_listen = any;
    EXPECT_TRUE(validate(config).ok()) << validate(config).error().message;
  }
  // IPv4, whatever it is written as; and no tcp.
  config.data_listen = "0.0.0.0:7471";
  config.control_listen = "[::ffff:10.0.0.1]:7470";
  EXPECT_TRUE(validate(config).ok()) << validate(config).error().message;
  config.control_listen = "[::]:7470";
  config.transports = {Transport::Shm};
  EXPECT_TRUE(validate(config).ok()) << validate(config).error().message;
}

TEST(Config, AFileThatIsNotThereIsNotFound) {
  EXPECT_EQ(load_config("/nonexistent/x.toml").code(), ErrorCode::NotFound);
}

TEST(Config, ADirectoryIsNoConfiguration) {
  EXPECT_EQ(load_config("/").code(), ErrorCode::SystemError);
}

TEST(Config, TheExampleIsRightAndSaysTheDefaults) {
  const auto config = load_config(PERDURE_EXAMPLE_CONFIG);
  ASSERT_TRUE(config.ok()) << config.error().message;
  const Config defaults;
  EXPECT_EQ(config->control_listen, defaults.control_listen);
  EXPECT_EQ(config->allow_remote, defaults.allow_remote);
  EXPECT_EQ(config->data_listen, defaults.data_listen);
  EXPECT_EQ(config->transports, defaults.transports);
  EXPECT_EQ(config->service.spin_budget, defaults.service.spin_budget);
  EXPECT_EQ(config->connections_max, defaults.connections_max);
  EXPECT_EQ(config->connections_per_address_max, defaults.connections_per_address_max);
  EXPECT_EQ(config->service.sessions_max, defaults.service.sessions_max);
  EXPECT_EQ(config->service.sessions_for_writers, defaults.service.sessions_for_writers);
  EXPECT_EQ(config->service.queue.depth, defaults.service.queue.depth);
  EXPECT_EQ(config->service.queue.message_bytes_max, defaults.service.queue.message_bytes_max);
  EXPECT_EQ(config->service.directory, defaults.service.directory);
  EXPECT_EQ(config->service.settings.declared, defaults.service.settings.declared);
  EXPECT_EQ(config->service.settings.ddio, defaults.service.settings.ddio);
  EXPECT_EQ(config->service.settings.receive_buffers, defaults.service.settings.receive_buffers);
  EXPECT_TRUE(config->service.settings_by_pool.empty());
  EXPECT_EQ(config->fabric, defaults.fabric);
  EXPECT_EQ(config->emulated_transport, defaults.emulated_transport);
  EXPECT_EQ(config->emulated_capabilities, defaults.emulated_capabilities);
  EXPECT_EQ(config->seed, defaults.seed);
  EXPECT_EQ(config->rpmem.poolset_dir, defaults.rpmem.poolset_dir);
  EXPECT_EQ(config->rpmem.listen, defaults.rpmem.listen);
  EXPECT_EQ(config->rpmem.rpmemd, defaults.rpmem.rpmemd);
  EXPECT_EQ(config->rpmem.config, defaults.rpmem.config);
  EXPECT_EQ(config->rpmem.credential_file, defaults.rpmem.credential_file);
  EXPECT_EQ(config->rpmem.clients_max, defaults.rpmem.clients_max);
  EXPECT_EQ(config->log_level, defaults.log_level);
}

}  // namespace
}  // namespace perdure::server
