// Prices: composed from the parts as formulas say, and near what is measured where it is.
#include <gtest/gtest.h>

#include "core/parameter_file.h"
#include "sim/method_price.h"
#include "sim/method_steps.h"

namespace perdure::sim {
namespace {

/// Every quantity is a number of its own, so that a formula can not be right by chance.
std::string hardware_text() {
  const std::pair<const char*, const char*> network[] = {{"post", "ns"},
                                                         {"rnic", "ns"},
                                                         {"wire", "ns"},
                                                         {"wire_per_byte", "ns/byte"},
                                                         {"header_bytes", "bytes"},
                                                         {"packet_bytes", "bytes"},
                                                         {"message_gap", "ns"},
                                                         {"inline_bytes", "bytes"},
                                                         {"fetch", "ns"},
                                                         {"fetch_per_byte", "ns/byte"},
                                                         {"fetch_bytes", "bytes"},
                                                         {"pcie_per_byte", "ns/byte"},
                                                         {"pcie_packet_bytes", "bytes"},
                                                         {"pcie_header_bytes", "bytes"},
                                                         {"dma_write", "ns"},
                                                         {"dma_read_cache", "ns"},
                                                         {"dma_read_memory", "ns"},
                                                         {"cache_drain", "ns"},
                                                         {"poll", "ns"},
                                                         {"completion", "ns"},
                                                         {"persist_ack", "ns"},
                                                         {"medium_write", "ns"},
                                                         {"send_flush_lookup", "ns"}};
  std::string text = "[network]\n";
  int value = 101;
  for (const auto& [key, unit] : network) {
    const std::string_view word = key;
    int here = value++;
    if (word.ends_with("per_byte")) here = 0;
    if (word == "packet_bytes") here = 4096;
    if (word == "fetch_bytes") here = 1000;
    text += std::string(key) + " = {value = " + std::to_string(here) + ", unit = \"" + unit +
            "\", source = \"test\"}\n";
  }
  text += "[server]\n";
  for (const char* key : {"handle", "flush_line", "flush_page"}) {
    text += std::string(key) + " = {value = " + std::to_string(value++) +
            ", unit = \"ns\", source = \"test\"}\n";
  }
  text += "copy_per_byte = {value = 1, unit = \"ns/byte\", source = \"test\"}\n";
  text += "line_bytes = {value = 64, unit = \"bytes\", source = \"test\"}\n";
  return text;
}

Hardware hardware() {
  auto parsed = parse_hardware(hardware_text(), "h.toml");
  EXPECT_TRUE(parsed.ok()) << parsed.error().message;
  return std::move(parsed).value();
}

Method method_of(std::vector<RequesterStep> steps) {
  Method method;
  method.name = "test";
  method.requester = std::move(steps);
  return method;
}

ServerProfile server(PersistenceDomain domain, Ddio ddio) {
  ServerProfile profile;
  profile.domain = domain;
  profile.ddio = ddio;
  profile.transport = Transport::InfiniBand;
  return profile;
}

TEST(MethodPrice, AWriteCompletesWithTheTransportsAck) {
  const Hardware h = hardware();
  const NetworkHardware& n = h.network;
  const Method method = method_of({post(Verb::Write), wait_completion(0)});
  const auto price_of = [&](Transport transport) {
    ServerProfile profile = server(PersistenceDomain::Wsp, Ddio::On);
    profile.transport = transport;
    return price(method, profile, h, {}).latency_ns;
  };
  EXPECT_DOUBLE_EQ(price_of(Transport::InfiniBand),
                   n.post + 4 * n.rnic + 2 * n.wire + n.completion);
  EXPECT_DOUBLE_EQ(price_of(Transport::Iwarp), n.post + n.completion);  // it says nothing
}

// A READ travels over PCIe behind the WRITE, and not only once that is visible.
TEST(MethodPrice, AFlushByReadFollowsTheWriteBeforeIt) {
  const Hardware h = hardware();
  const NetworkHardware& n = h.network;
  const Method method = method_of({post(Verb::Write), post(Verb::Read), wait_completion(1)});
  const double read_arrived = n.post + std::max(n.post, n.message_gap) + 2 * n.rnic + n.wire;
  const double back = 2 * n.rnic + n.wire + n.completion;
  EXPECT_DOUBLE_EQ(price(method, server(PersistenceDomain::Dmp, Ddio::Off), h, {}).latency_ns,
                   read_arrived + n.dma_read_memory + back);
  EXPECT_DOUBLE_EQ(price(method, server(PersistenceDomain::Dmp, Ddio::On), h, {}).latency_ns,
                   read_arrived + n.dma_read_cache + back);
}

// Of a payload that is not inline the first bytes are waited for; the others come while it sends.
TEST(MethodPrice, APayloadIsFetchedUpToTheBytesThatAreWaitedFor) {
  const Hardware h = hardware();
  const NetworkHardware& n = h.network;
  Hardware fetching = h;
  fetching.network.fetch_per_byte = 1;
  const Method method = method_of({post(Verb::Write), wait_completion(0)});
  const auto longer = [&](double bytes) {
    const ServerProfile profile = server(PersistenceDomain::Wsp, Ddio::On);
    return price(method, profile, fetching, {bytes, 8}).latency_ns -
           price(method, profile, h, {8, 8}).latency_ns;
  };
  EXPECT_DOUBLE_EQ(longer(n.inline_bytes), 0);
  EXPECT_DOUBLE_EQ(longer(n.inline_bytes + 1), n.fetch + n.inline_bytes + 1);
  EXPECT_DOUBLE_EQ(longer(n.fetch_bytes), n.fetch + n.fetch_bytes);
  EXPECT_DOUBLE_EQ(longer(n.fetch_bytes + 1000), n.fetch + n.fetch_bytes);
}

// The second payload is fetched while the first is, too, or sent: what PCIe or the wire takes
// longer for is all that it adds.
TEST(MethodPrice, PayloadsThatArePostedTogetherAreFetchedTogether) {
  Hardware h = hardware();
  NetworkHardware& n = h.network;
  const ServerProfile profile = server(PersistenceDomain::Wsp, Ddio::On);
  const auto second_adds = [&](double bytes) {
    const Method one = method_of({post(Verb::Write), wait_completion(0)});
    const Method two = method_of({post(Verb::Write), post(Verb::Write), wait_completion(1)});
    return price(two, profile, h, {bytes, 8}).latency_ns -
           price(one, profile, h, {bytes, 8}).latency_ns;
  };
  n.fetch_per_byte = 1;
  n.wire_per_byte = 0.125;
  EXPECT_DOUBLE_EQ(second_adds(512), 512) << "PCIe brings one after the other";
  n.wire_per_byte = 2;
  EXPECT_DOUBLE_EQ(second_adds(512), 1024) << "the link is slower";
  n.fetch_per_byte = 0;
  n.wire_per_byte = 0;
  EXPECT_DOUBLE_EQ(second_adds(512), std::max(n.post, n.message_gap)) << "and not another fetch";
}

TEST(MethodPrice, AMessageCostsTheRespondersCpu) {
  const Hardware h = hardware();
  const NetworkHardware& n = h.network;
  Method method = method_of({post(Verb::Send), wait_ack()});
  method.responder = {{{ResponderAction::Kind::Copy, 0},
                       {ResponderAction::Kind::Flush, 0},
                       {ResponderAction::Kind::Ack, 0}}};
  const Price of_dmp = price(method, server(PersistenceDomain::Dmp, Ddio::On), h, {});
  const double answer = n.post;  // the responder's CPU posts it
  const double cpu = h.server.handle + 64 + h.server.flush_line + n.medium_write + answer;
  EXPECT_DOUBLE_EQ(of_dmp.responder_ns, cpu);
  EXPECT_DOUBLE_EQ(of_dmp.latency_ns, n.post + 2 * n.rnic + n.wire + n.dma_write + n.poll + cpu +
                                          2 * n.rnic + n.wire + n.dma_write + n.poll);
  // Where caches are persistent there is nothing to flush; on a disk there is.
  const Price of_mhp = price(method, server(PersistenceDomain::Mhp, Ddio::On), h, {});
  EXPECT_DOUBLE_EQ(of_mhp.responder_ns, h.server.handle + 64 + answer);
  const Price of_page = price(method, server(PersistenceDomain::Page, Ddio::On), h, {});
  EXPECT_DOUBLE_EQ(of_page.responder_ns, h.server.handle + 64 + h.server.flush_page + answer);
}

TEST(MethodPrice, ThePersistAckComesAfterTheMedium) {
  const Hardware h = hardware();
  const NetworkHardware& n = h.network;
  const Method method = method_of({post(Verb::WritePersist), wait_completion(0)});
  const double there = n.post + 2 * n.rnic + n.wire + n.dma_write;
  const double back = n.persist_ack + 2 * n.rnic + n.wire + n.completion;
  EXPECT_DOUBLE_EQ(price(method, server(PersistenceDomain::Dmp, Ddio::Off), h, {}).latency_ns,
                   there + n.medium_write + back);
  EXPECT_DOUBLE_EQ(price(method, server(PersistenceDomain::Dmp, Ddio::On), h, {}).latency_ns,
                   there + n.cache_drain + n.medium_write + back);
}

TEST(MethodPrice, AnSflushLooksForItsMessageAndGoesToTheMedium) {
  const Hardware h = hardware();
  const NetworkHardware& n = h.network;
  const Method method = method_of({post(Verb::Send), post(Verb::SendFlush), wait_completion(1)});
  const double visible = n.post + 2 * n.rnic + n.wire + n.dma_write;
  const double arrived = 2 * n.post + 2 * n.rnic + n.wire;
  const double looked_up = std::max(visible, arrived) + n.send_flush_lookup;
  const double back = 2 * n.rnic + n.wire + n.completion;
  EXPECT_DOUBLE_EQ(price(method, server(PersistenceDomain::Dmp, Ddio::On), h, {}).latency_ns,
                   looked_up + n.cache_drain + n.medium_write + back);
  EXPECT_DOUBLE_EQ(price(method, server(PersistenceDomain::Mhp, Ddio::On), h, {}).latency_ns,
                   looked_up + back);
}

TEST(HardwareFile, AQuantityWithoutUnitOrSourceIsRefusedWithItsLine) {
  const std::string whole = hardware_text();
  const auto refusal = [](const std::string& text) {
    const auto parsed = parse_hardware(text, "h.toml");
    return parsed.ok() ? std::string("accepted") : parsed.error().message;
  };
  const auto with = [&](std::string_view from, std::string_view to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return refusal(text);
  };
  EXPECT_EQ(with("post = {value = 101, unit = \"ns\", source = \"test\"}", "post = 101")
                .rfind("h.toml:2: [network] post: has no unit", 0),
            0U);
  EXPECT_EQ(with("unit = \"ns\"", "unit = \"us\"").rfind("h.toml:2: [network.post] unit: 'us'", 0),
            0U);
  EXPECT_NE(with(", source = \"test\"", "").find("source: is missing"), std::string::npos);
  EXPECT_NE(with("post = ", "pots = ").find("post"), std::string::npos);
  EXPECT_NE(refusal(whole + "[disk]\nspeed = 1\n").find("disk"), std::string::npos);
  EXPECT_NE(refusal("[network]\n").find("is missing"), std::string::npos);
}

}  // namespace
}  // namespace perdure::sim
