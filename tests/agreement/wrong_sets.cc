#include "tests/agreement/wrong_sets.h"

#include <algorithm>
#include <utility>

#include "core/assert.h"
#include "plan/catalog.h"

namespace perdure {
namespace {

using enum PersistenceDomain;

ServerProfile server(PersistenceDomain domain, ReceiveBuffers buffers = ReceiveBuffers::Dram) {
  ServerProfile profile{domain, Ddio::Off, buffers, Transport::InfiniBand, {}};
  profile.write_order = WriteOrder::Ordered;
  profile.capabilities.native_flush = profile.capabilities.atomic_write = true;
  return profile;
}

ServerProfile unordered(ServerProfile profile) {
  profile.write_order = WriteOrder::Unknown;
  return profile;
}

Method known(const ServerProfile& profile, const UpdateShape& shape, const std::string& name) {
  const auto all = plan::known_methods(profile, {shape, Level::Durable, true, true});
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const auto& each) { return each.method.name == name; });
  PERDURE_ASSERT(found != all.end());
  return found->method;
}

SetMember ring(const ServerProfile& profile, const UpdateShape& shape, const std::string& name) {
  return {known(profile, shape, name), Reuse::AfterAnother, true};
}

SetMember place(const ServerProfile& profile, const std::string& name) {
  return {known(profile, singleton(), name), Reuse::AfterItsEnd, false};
}

/// Of PWRITEs and others.
std::vector<WrongSet> wrong_by_persist() {
  std::vector<WrongSet> all;
  ServerProfile persists = server(Dmp);
  persists.capabilities.ordered_persist = true;
  all.push_back(
      {"set-words-stored-and-persisted",
       {ring(persists, compound(), "send-copy-flush-ack"), ring(persists, compound(), "pwrite")},
       persists,
       "later-implies-earlier",
       "the responder's processor may store the older word"});
  all.push_back({"set-words-persisted-and-written",
                 {ring(unordered(persists), compound(), "pwrite"),
                  ring(unordered(persists), compound(), "write-flush-each")},
                 unordered(persists),
                 "acknowledged-implies-durable",
                 "WRITEs keep no order here, so the older word",
                 true});
  SetMember persisted = place(persists, "pwrite");
  persisted.vouched = true;
  all.push_back({"set-pieces-persisted-and-a-word-sent",
                 {ring(persists, compound(), "send-copy-flush-ack"), persisted},
                 persists,
                 "later-implies-earlier",
                 "without the piece before it"});
  return all;
}

/// Where WRITEs keep no order, of members whose ends or messages say nothing of WRITEs before.
std::vector<WrongSet> wrong_without_order() {
  const std::string lost = "acknowledged-implies-durable";
  const ServerProfile mhp = unordered(server(Mhp));
  ServerProfile wsp = unordered(server(Wsp));
  std::vector<WrongSet> all;
  all.push_back(
      {"set-words-written-and-polled",
       {ring(mhp, compound(), "send-then-write-flush"), ring(mhp, compound(), "poll-copy-ack")},
       mhp,
       lost,
       "WRITEs keep no order here, so the older word",
       true});
  all.push_back({"set-records-written-and-a-place-polled",
                 {ring(wsp, singleton(), "write-completion"), place(wsp, "poll-copy-ack")},
                 wsp,
                 lost,
                 "the end of the other does not say that it is placed",
                 true});
  wsp.capabilities.ordered_persist = true;
  all.push_back({"set-records-written-and-a-place-persisted",
                 {ring(wsp, singleton(), "write-completion"), place(wsp, "pwrite")},
                 wsp,
                 lost,
                 "the end of the other does not say that it is placed",
                 true});
  return all;
}

}  // namespace

std::vector<WrongSet> wrong_sets() {
  const std::string lost = "acknowledged-implies-durable";
  const std::string order = "later-implies-earlier";
  const ServerProfile mhp = server(Mhp);
  const ServerProfile mhp_pm = server(Mhp, ReceiveBuffers::Pm);
  const ServerProfile loose_wsp = unordered(server(Wsp));
  const ServerProfile dmp = server(Dmp);
  // Two WRITEs, one FLUSH: right by itself where WRITEs keep their order.
  Method two_writes = known(mhp, compound(), "write-flush");
  std::vector<WrongSet> all;
  all.push_back({"set-records-replayed-and-written",
                 {ring(mhp_pm, singleton(), "send-replay-flush"), place(mhp_pm, "write-flush")},
                 mhp_pm,
                 lost,
                 "is applied when its update has long resolved"});
  all.push_back({"set-some-messages-replayed",
                 {{known(mhp_pm, singleton(), "send-replay-flush"), Reuse::Never, false},
                  {known(mhp_pm, singleton(), "send-copy-ack"), Reuse::Never, false}},
                 mhp_pm,
                 lost,
                 "replay stops at the first message"});
  all.push_back({"set-words-stored-and-written",
                 {ring(mhp, compound(), "send-copy-ack"), ring(mhp, compound(), "write-flush")},
                 mhp,
                 order,
                 "the responder's processor may store the older word"});
  all.push_back({"set-words-atomic-and-sent",
                 {ring(dmp, compound(), "write-flush-atomic-flush"),
                  ring(dmp, compound(), "send-copy-flush-ack")},
                 dmp,
                 order,
                 "overtake the ATOMIC WRITE"});
  all.push_back({"set-words-written-in-no-order",
                 {ring(loose_wsp, compound(), "write-completion-each")},
                 loose_wsp,
                 lost,
                 "WRITEs keep no order here, so the older word",
                 true});
  all.push_back({"set-places-written-on-arrival",
                 {place(loose_wsp, "write-completion")},
                 loose_wsp,
                 lost,
                 "ends when the RNIC has it",
                 true});
  all.push_back({"set-words-replayed-and-written",
                 {{known(mhp_pm, compound(), "send-replay-flush"), Reuse::AfterAnother, true},
                  {two_writes, Reuse::AfterAnother, true}},
                 mhp_pm,
                 lost,
                 "may be applied from its message"});
  SetMember piece = place(dmp, "write-flush");
  piece.vouched = true;
  all.push_back({"set-pieces-flushed-and-a-word-sent",
                 {ring(dmp, compound(), "send-copy-flush-ack"), piece},
                 dmp,
                 order,
                 "without the piece before it"});
  for (WrongSet& wrong : wrong_by_persist()) all.push_back(std::move(wrong));
  for (WrongSet& wrong : wrong_without_order()) all.push_back(std::move(wrong));
  return all;
}

}  // namespace perdure
