// The gallery of wrong methods.
#include "plan/known_unsafe.h"

#include "plan/items.h"
#include "plan/steps.h"

namespace perdure::plan {
namespace {

using items::a;
using items::b;

ServerProfile server(PersistenceDomain domain, Ddio ddio, Transport transport,
                     ReceiveBuffers buffers = ReceiveBuffers::Dram) {
  ServerProfile profile{domain, ddio, buffers, transport, {}};
  profile.capabilities.native_flush = true;
  profile.capabilities.atomic_write = true;
  profile.write_order = WriteOrder::Ordered;
  return profile;
}

ServerProfile unordered(ServerProfile profile) {
  profile.write_order = WriteOrder::Unknown;
  return profile;
}

/// Whose pages an RNIC makes dirty: paged on demand.
ServerProfile on_demand(ServerProfile profile) {
  profile.dma_dirties = DmaDirties::Yes;
  return profile;
}

Method make(std::string name, const UpdateShape& shape, std::vector<RequesterStep> steps,
            std::vector<std::vector<ResponderAction>> reactions = {}) {
  Method method;
  method.name = std::move(name);
  method.shape = shape;
  method.requester = std::move(steps);
  method.responder = std::move(reactions);
  return method;
}

/// What the papers do not ask of the machine.
void add_new_world(std::vector<KnownUnsafe>& all) {
  using enum PersistenceDomain;
  const auto mhp = server(Mhp, Ddio::On, Transport::Roce);
  const auto wsp = server(Wsp, Ddio::On, Transport::Roce);
  const auto file = server(Page, Ddio::On, Transport::Roce);
  all.push_back({make("wrong-flush-of-a-clean-page", singleton(),
                      {write({a}), send({}, {a}), wait_ack()}, {{flush_item(a), ack()}}),
                 file, "acknowledged-implies-durable",
                 "A pinned page is clean after its first write-back; what the RNIC writes into it "
                 "makes it dirty no more, so msync writes nothing and says 0.",
                 on_demand(file)});
  all.push_back({make("wrong-imm-flush-of-a-clean-page", singleton(), {write_imm({a}), wait_ack()},
                      {{flush_item(a), ack()}}),
                 file, "acknowledged-implies-durable",
                 "The immediate says what was written, and the kernel does not know that it was.",
                 server(Page, Ddio::On, Transport::Tcp)});
  all.push_back({make("wrong-two-writes-placed-in-any-order", compound(),
                      {write({a}), write({b}), flush({a, b}), wait_completion(2)}),
                 unordered(mhp), "later-implies-earlier",
                 "Adaptive routing or relaxed PCIe ordering places b before a; only completions "
                 "stay in order.",
                 mhp});
  all.push_back({make("wrong-two-writes-arriving-in-any-order", compound(),
                      {write({a}), write({b}), wait_completion(1)}),
                 unordered(wsp), "later-implies-earlier",
                 "b takes another way through the network and is in the RNIC first; its completion "
                 "waits for a, what survives does not.",
                 wsp});
}

/// With PWRITE and SFLUSH, which no RNIC has.
ServerProfile able(PersistenceDomain domain, ReceiveBuffers buffers) {
  ServerProfile profile = server(domain, Ddio::On, Transport::InfiniBand, buffers);
  profile.capabilities.ordered_persist = true;
  profile.capabilities.send_flush = true;
  return profile;
}

void add_rnics_to_come(std::vector<KnownUnsafe>& all) {
  using enum PersistenceDomain;
  const auto dram = able(Dmp, ReceiveBuffers::Dram);
  const auto pm = able(Dmp, ReceiveBuffers::Pm);
  all.push_back(
      {make("wrong-write-before-pwrite", compound(), {write({a}), pwrite({b}), wait_completion(1)}),
       dram, "later-implies-earlier",
       "PWRITEs are ordered among themselves; a plain WRITE drains when it likes.",
       able(Mhp, ReceiveBuffers::Dram)});
  all.push_back(
      {make("wrong-first-persist-ack", compound(), {pwrite({a}), pwrite({b}), wait_completion(0)}),
       dram, "acknowledged-implies-durable",
       "A persist ACK speaks for the PWRITEs up to its own, and for none behind it.",
       std::nullopt});
  all.push_back({make("wrong-sflush-into-dram", singleton(),
                      {send_replayable({a}), sflush({a}), wait_completion(1)}),
                 dram, "acknowledged-implies-durable",
                 "The RNIC flushes the buffer that the message went to, and that is in DRAM.", pm});
  all.push_back(
      {make("wrong-send-completion-before-sflush", singleton(),
            {send_replayable({a}), sflush({a}), wait_completion(0)}),
       pm, "acknowledged-implies-durable",
       "The SEND's completion says that the RNIC has it, the SFLUSH's that it is flushed.",
       able(Wsp, ReceiveBuffers::Pm)});
  all.push_back(
      {make("wrong-sflush-of-record-and-word", compound(),
            {write({a}), send_replayable({b}), sflush({a, b}), wait_completion(2)}),
       pm, "replay-is-idempotent",
       "Until the SFLUSH is answered the message may be in the domain and the record not.",
       able(Mhp, ReceiveBuffers::Pm)});
}

RequesterStep by_mark(std::vector<Item> items, std::vector<Item> addresses) {
  RequesterStep step = write_polled(std::move(items), std::move(addresses));
  step.checked = false;
  return step;
}

/// What a responder finds by polling.
void add_polled(std::vector<KnownUnsafe>& all) {
  using enum PersistenceDomain;
  const auto mhp = server(Mhp, Ddio::On, Transport::Roce);
  all.push_back({make("wrong-mark-overtakes-data", singleton(),
                      {write({a}), write_polled({}, {a}), wait_ack()}, {{ack()}}),
                 unordered(mhp), "acknowledged-implies-durable",
                 "Without order among WRITEs the mark may be visible before the data.", mhp});
  all.push_back({make("wrong-mark-before-data", singleton(),
                      {write_polled({}, {a}), write({a}), wait_ack()}, {{ack()}}),
                 mhp, "acknowledged-implies-durable",
                 "The mark was posted before the data that it vouches for.", std::nullopt});
  all.push_back({make("wrong-mark-inside-one-write", singleton(), {by_mark({a}, {}), wait_ack()},
                      {{copy_item(a), ack()}}),
                 mhp, "acknowledged-implies-durable",
                 "Inside one WRITE nothing has an order: the mark at its end may be there and what "
                 "is before it not, and the responder copies what was there before.",
                 std::nullopt});
}

/// What a responder READs from the requester.
void add_fetched(std::vector<KnownUnsafe>& all) {
  using enum PersistenceDomain;
  const auto dmp = server(Dmp, Ddio::On, Transport::Roce);
  const auto direct = server(Dmp, Ddio::Off, Transport::Roce);
  const auto mhp = server(Mhp, Ddio::On, Transport::Roce);
  const auto file = server(Page, Ddio::On, Transport::Roce);
  const std::string acknowledged = "acknowledged-implies-durable";
  all.push_back({make("wrong-ack-overtakes-read", singleton(), {send_readable({a}), wait_ack()},
                      {{read_item(a), ack()}}),
                 mhp, acknowledged,
                 "The answer is posted behind the READ and does not wait for it.", std::nullopt});
  all.push_back(
      {make("wrong-flush-before-read-completes", singleton(), {send_readable({a}), wait_ack()},
            {{read_item(a), flush_item(a), await_item(a), ack()}}),
       dmp, acknowledged,
       "What has not arrived yet is not flushed, and what arrives stays in the cache.", mhp});
  all.push_back(
      {make("wrong-read-into-the-cache", singleton(), {send_readable({a}), wait_ack()},
            {{read_item(a), await_item(a), ack()}}),
       direct, acknowledged,
       "A READ's completion says that the bytes are visible, DDIO on or off, and no more.", mhp});
  all.push_back({make("wrong-two-reads-in-flight", compound(), {send_readable({a, b}), wait_ack()},
                      {{read_item(a), read_item(b), await_item(a), await_item(b), ack()}}),
                 mhp, "later-implies-earlier",
                 "Nothing orders what two READs bring: b may be there before a.", std::nullopt});
  all.push_back({make("wrong-read-into-a-clean-page", singleton(), {send_readable({a}), wait_ack()},
                      {{read_item(a), await_item(a), flush_item(a), ack()}}),
                 file, acknowledged,
                 "The responder's own RNIC makes a pinned page dirty no more than a peer's does.",
                 on_demand(file)});
  all.push_back({make("wrong-written-ack-before-flush", singleton(), {send({a}), wait_ack()},
                      {{copy_item(a), written_ack(), flush_item(a)}}),
                 dmp, acknowledged, "The answer is in the requester before the lines are flushed.",
                 mhp});
}

}  // namespace

std::vector<KnownUnsafe> known_unsafe_methods() {
  using enum PersistenceDomain;
  const auto dmp_cached = server(Dmp, Ddio::On, Transport::InfiniBand);
  const auto dmp_direct = server(Dmp, Ddio::Off, Transport::InfiniBand);
  const auto mhp = server(Mhp, Ddio::On, Transport::InfiniBand);
  const std::string acknowledged = "acknowledged-implies-durable";
  const std::string order = "later-implies-earlier";
  std::vector<KnownUnsafe> all;
  all.push_back(
      {make("wrong-read-after-write", singleton(), {write({a}), read({a}), wait_completion(1)}),
       dmp_cached, acknowledged,
       "With DDIO on the READ is answered from the last-level cache, which is not in the "
       "domain.",
       dmp_direct});
  all.push_back({make("wrong-two-writes-one-flush", compound(),
                      {write({a}), write({b}), flush({a, b}), wait_completion(2)}),
                 dmp_direct, order,
                 "Writes become visible in order and reach the memory controller in any order.",
                 mhp});
  all.push_back(
      {make("wrong-write-completion-on-iwarp", singleton(), {write({a}), wait_completion(0)}),
       server(Wsp, Ddio::On, Transport::Iwarp), acknowledged,
       "On iWARP and TCP the completion says that the data has left, not that it is "
       "there.",
       server(Wsp, Ddio::On, Transport::InfiniBand)});
  all.push_back({make("wrong-write-overtakes-flush", compound(),
                      {write({a}), flush({a}), write({b}), flush({b}), wait_completion(3)}),
                 dmp_direct, order,
                 "A posted WRITE may overtake the FLUSH before it; only an ATOMIC WRITE, a fence "
                 "or waiting keeps it behind.",
                 mhp});
  all.push_back({make("wrong-ack-before-flush", singleton(), {send({a}), wait_ack()},
                      {{copy_item(a), ack(), flush_item(a)}}),
                 dmp_cached, acknowledged, "The answer leaves before the cache lines do.", mhp});
  all.push_back({make("wrong-flush-after-both-copies", compound(), {send({a, b}), wait_ack()},
                      {{copy_item(a), copy_item(b), flush_item(a), flush_item(b), ack()}}),
                 dmp_cached, order,
                 "Between the copies and the flushes the cache may evict b before a.", mhp});
  all.push_back({make("wrong-visible-on-a-file", singleton(), {send({a}), wait_ack()},
                      {{copy_item(a), ack()}}),
                 server(Page, Ddio::On, Transport::Tcp), acknowledged,
                 "What is in the page cache is not on the medium.",
                 server(Wsp, Ddio::On, Transport::Tcp)});
  all.push_back({make("wrong-replay-from-dram", singleton(),
                      {send_replayable({a}), flush({a}), wait_completion(1)}),
                 mhp, acknowledged,
                 "A message can be replayed only from a receive buffer that survives.",
                 server(Mhp, Ddio::On, Transport::InfiniBand, ReceiveBuffers::Pm)});
  all.push_back({make("wrong-buffer-reused-before-flush", singleton(),
                      {send_replayable({a}), flush({a}), wait_completion(1)}, {{copy_item(a)}}),
                 server(Dmp, Ddio::Off, Transport::InfiniBand, ReceiveBuffers::Pm), acknowledged,
                 "The message was safe until the responder copied it into its cache and gave the "
                 "buffer back.",
                 server(Mhp, Ddio::Off, Transport::InfiniBand, ReceiveBuffers::Pm)});
  add_new_world(all);
  add_rnics_to_come(all);
  add_polled(all);
  add_fetched(all);
  return all;
}

}  // namespace perdure::plan
