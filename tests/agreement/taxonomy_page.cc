// Tables with the paper's method beside ours, what was explored, and what is wrong and known
// unsafe.
#include "tests/agreement/taxonomy_page.h"

#include <fmt/format.h>

#include <map>

#include "check/check.h"
#include "check/mutate.h"
#include "plan/catalog.h"
#include "plan/known_unsafe.h"
#include "plan/paper.h"
#include "plan/render.h"
#include "plan/search.h"
#include "tests/agreement/wrong_sets.h"

namespace perdure {
namespace {

constexpr const char* kIntroduction = R"(# How to persist a remote write, case by case

This page is generated from the methods and from the checker's reports; a test fails when it is out
of date. It answers one question: *on this responder, what must a requester do until it may say that
a remote write is durable?* The starting point is the taxonomy of Kashyap et al., *Correct, Fast
Remote Persistence*: 12 responders, 3 operations, singleton updates (a record) and compound ones (a
record `a`, then a pointer `b` that must not survive without it). Beside each published method stands
what Perdure runs, and how many states the checker went through to prove it.

**Words.** *dmp*: the persistence domain is memory controller and DIMM (ADR). *mhp*: caches too
(eADR, CXL GPF). *wsp*: the whole system (battery). *page*: a file behind the page cache. *ddio*:
inbound data lands in the last-level cache. *receive buffers*: whether messages arrive in DRAM or in
persistent memory. *Round trips*: how often the requester waits. *dma dirties*: whether what an RNIC
writes into a file's page makes it dirty, so that a sync writes it. *Write order*: whether WRITEs of one connection are
placed in the order of posting. The papers take that for granted; the tables do so, too, and the section after them does not.
*FLUSH*: in the tables it reaches the memory controllers on dmp with ddio off, as the papers' does. A native one to visibility does
not: behind WRITEs Perdure posts a READ in its place, and behind a message alone it plans nothing that rests on one (there
`send-copy-flush-ack` takes the place of `send-replay-flush`).

**Proved** means: in every state that the machine of `src/check/model.h` can reach, with power failing
there, what was acknowledged is recovered, nothing of a later epoch survives without the
earlier one, nothing torn is returned, replaying messages breaks nothing however often power fails in
the middle of it, and there is an acknowledgement in the end. Bounds: two units per item (so that tearing is seen), one update in flight unless said
otherwise, one connection (`perdure check --connections 2` asks about two). Left out: lost connections, corrupted media, a full receive queue.
)";

constexpr const char* kFindings = R"(## What checking found in the published tables

- All 72 methods are right on InfiniBand, and, with the one-sided wsp methods read as those of mhp
  (as the paper says), on iWARP.
- Every mutant of every method (a step dropped, two neighbours swapped, an earlier event awaited,
  less flushed) is wrong, except around one step: **table 3, mhp, ddio off, receive buffers in DRAM,
  Send prints an `Rq Flush` between the SEND and the acknowledgement.** It can be dropped, or moved
  anywhere: the acknowledgement alone says that the copies are visible, which is all that mhp asks.
- Misprints that change nothing: table 3, first cell, `Rq Send(ack)` is the responder's; table 2, wsp,
  ddio off, DRAM, Send: `Rsp Send(a)` and `Rq Receive(a)` are the acknowledgement.
- Six of the 36 compound methods take two round trips. None has to: see the next table.
)";

std::string cell(const Method& method) {
  const std::size_t trips = round_trips(method);
  return fmt::format("`{}` {}", method.name, trips == 1 ? "1" : fmt::format("**{}**", trips));
}

std::string responder(const ServerProfile& profile) {
  const bool file = profile.domain == PersistenceDomain::Page;
  return fmt::format("{}, ddio {}, {}{}", to_string(profile.domain), to_string(profile.ddio),
                     to_string(profile.receive_buffers),
                     file ? fmt::format(", dma dirties {}", to_string(profile.dma_dirties)) : "");
}

using Glossary = std::map<std::string, std::string>;

void remember(const Method& method, Glossary& glossary) {
  const std::string key = fmt::format("{} ({})", method.name, to_string(method.shape));
  glossary[key] = plan::one_line(method);
}

std::string table(const UpdateShape& shape, Glossary& glossary) {
  std::string text = fmt::format(
      "### {} updates\n\n| responder | operation | published, round trips | Perdure, round trips | "
      "states explored |\n| --- | --- | --- | --- | --- |\n",
      shape == singleton() ? "Singleton" : "Compound");
  const auto paper = plan::all_scenarios(plan::Source::Paper, {Transport::InfiniBand});
  const auto best = plan::all_scenarios(plan::Source::Best, {Transport::InfiniBand});
  for (const plan::Scenario& ours : best) {
    if (ours.shape != shape) continue;
    std::string published = "not in the paper";
    std::uint64_t states = 0;
    for (const plan::Scenario& theirs : paper) {
      const bool same =
          theirs.shape == shape && theirs.profile == ours.profile && theirs.primary == ours.primary;
      if (!same) continue;
      published = cell(theirs.method);
      states += check::check(theirs.method, theirs.profile).states;
      remember(theirs.method, glossary);
    }
    const check::Report report = check::check(ours.method, ours.profile);
    remember(ours.method, glossary);
    text += fmt::format("| {} | {} | {} | {} | {}{} |\n", responder(ours.profile),
                        to_string(ours.primary), published, cell(ours.method),
                        published == "not in the paper" ? "" : fmt::format("{} + ", states),
                        report.holds() ? std::to_string(report.states) : "NOT PROVED");
  }
  return text + "\n";
}

/// What changes where nothing is known of the order of WRITEs: the scenarios whose published method
/// breaks, with the one that Perdure runs there.
std::string without_order(Glossary& glossary) {
  std::string text =
      "## Where WRITEs are placed in any order\n\n"
      "Adaptive routing, selective repeat and relaxed PCIe ordering place the packets of "
      "successive "
      "WRITEs as they come. What is left (ibv_reg_mr(3), IBV_ACCESS_RELAXED_ORDERING): completions "
      "come in order on both sides, the responder's when everything before is visible, the "
      "requester's when it is in the RNIC; READ and FLUSH are answered when it is visible, and "
      "nothing bypasses an ATOMIC WRITE. This is what Perdure plans for over "
      "RDMA unless `write_order = \"ordered\"` is declared; `perdure plan --all --write-order "
      "unknown` prints it whole, `perdure check --all --write-order unknown` what breaks.\n\n"
      "| responder | update | operation | published | Perdure, round trips | states explored |\n"
      "| --- | --- | --- | --- | --- | --- |\n";
  const auto infiniband = {Transport::InfiniBand};
  const auto paper = plan::all_scenarios(plan::Source::Paper, infiniband, WriteOrder::Unknown);
  const auto best = plan::all_scenarios(plan::Source::Best, infiniband, WriteOrder::Unknown);
  std::size_t broken = 0;
  for (std::size_t index = 0; index < paper.size(); ++index) {
    const plan::Scenario& theirs = paper[index];
    const plan::Scenario& ours = best[index];
    const check::Report report = check::check(theirs.method, theirs.profile);
    if (report.holds()) continue;
    ++broken;
    const check::Report proof = check::check(ours.method, ours.profile);
    remember(ours.method, glossary);
    text += fmt::format("| {} | {} | {} | `{}`: {} | {} | {} |\n", responder(ours.profile),
                        to_string(ours.shape), to_string(ours.primary), theirs.method.name,
                        to_string(*report.property), cell(ours.method),
                        proof.holds() ? std::to_string(proof.states) : "NOT PROVED");
  }
  return text + fmt::format(
                    "\nThe other {} published methods hold there as they are: one update of one "
                    "item needs no order, a message brings its own, and dmp never had one. With a "
                    "`b` that is no word of 8 bytes one more copy takes the place of the ATOMIC "
                    "WRITE: `write-send-rest-ack`, in one round trip as well, as long as it fits "
                    "into a message.\n\n",
                    paper.size() - broken);
}

/// Files whose pages an RNIC writes unnoticed.
constexpr const char* kFiles = R"(## Files under an RNIC

Before Linux 6.5 an RNIC can pin pages of a mapped file. After its first write-back such a page is clean, and what the RNIC
writes into it makes it dirty no more: msync writes nothing and returns 0. So where nothing is known (*dma dirties no*) only
methods are right whose data the responder's processor stores, and `write` and `write_imm` have none. Where the RNIC pages on
demand, the kernel takes the page from it for the write-back and notices the next write; over tcp and shm a processor stores.
How `wrong-flush-of-a-clean-page` loses data is told below.

)";

std::string steps(const Glossary& glossary) {
  std::string text =
      "## The methods, step by step\n\nBefore the bar the requester; after it, by message, the "
      "responder's processor.\n\n| method | steps |\n| --- | --- |\n";
  for (const auto& [name, line] : glossary) {
    std::string escaped;
    for (const char c : line) escaped += c == '|' ? "\\|" : std::string(1, c);
    text += fmt::format("| `{}` | {} |\n", name, escaped);
  }
  return text + "\n";
}

std::string known_unsafe() {
  std::string text =
      "## Wrong, and known unsafe\n\nEach of these is run somewhere. The checker's shortest way to "
      "lose "
      "data is kept as a story and as a diagram.\n\n";
  for (const plan::KnownUnsafe& wrong : plan::known_unsafe_methods()) {
    const std::string file = "../tests/agreement/golden/" + wrong.method.name;
    text += fmt::format("- **{}** on {}: {}. {} ([story]({}.txt), [diagram]({}.svg))",
                        plan::one_line(wrong.method), describe(wrong.profile), wrong.breaks,
                        wrong.why, file, file);
    if (wrong.right_on) text += fmt::format(" Right on {}.", describe(*wrong.right_on));
    text += "\n";
  }
  return text + "\n";
}

std::string sets() {
  std::string text =
      "## Methods that must not share a connection\n\nEach is right by itself. Beside each other, "
      "with the words of several updates at one place and places that are written again, one "
      "undoes what the other has promised. `perdure plan --set` chooses methods that may be mixed, "
      "`perdure check --set` proves it, and `tests/agreement/golden/sets.txt` has the law against "
      "the checker, pair by pair.\n\n";
  for (const WrongSet& wrong : wrong_sets()) {
    std::string names;
    for (const SetMember& member : wrong.members) {
      names += fmt::format("{}{}", names.empty() ? "" : " + ", plan::one_line(member.method));
    }
    text += fmt::format("- **{}** on {}: {} ([story](../tests/agreement/golden/{}.txt))\n", names,
                        describe(wrong.profile),
                        may_share(wrong.members, wrong.profile).error().message, wrong.name);
  }
  return text + "\n";
}

std::string iwarp() {
  std::size_t broken = 0;
  for (const plan::Scenario& scenario : plan::paper_methods(Transport::InfiniBand)) {
    ServerProfile profile = scenario.profile;
    profile.transport = Transport::Iwarp;
    if (!check::check(scenario.method, profile).holds()) ++broken;
  }
  return fmt::format(
      "## iWARP and TCP\n\nA completion there says that the data has left, not that it has "
      "arrived. "
      "{} of the 72 methods are wrong on iWARP as published for InfiniBand: the one-sided ones of "
      "wsp, and no others. They need the FLUSH of mhp, or an acknowledgement.\n\n",
      broken);
}

std::string mutated() {
  std::size_t all = 0;
  std::size_t caught = 0;
  for (const Transport transport : {Transport::InfiniBand, Transport::Iwarp}) {
    for (const plan::Scenario& scenario : plan::paper_methods(transport)) {
      for (const check::Mutant& mutant : check::mutants(scenario.method)) {
        ++all;
        if (!check::check(mutant.method, scenario.profile).holds()) ++caught;
      }
    }
  }
  return fmt::format(
      "On both transports {} mutants were generated and {} caught; the other {} are the stray "
      "FLUSH's.\n\n",
      all, caught, all - caught);
}

std::string pipelining() {
  std::string text =
      "## Several updates in flight\n\nWith every method, the acknowledgement of update n+1 "
      "promises update "
      "n as well. Whether something of update n+1 can *survive* without update n is another "
      "question, and it decides how recovery must read: where the answer is yes, it has to stop at "
      "the first hole. Messages are no exception on dmp: what several of them bring together, the "
      "responder stores before it flushes what each of them ends with. Singleton updates, two in "
      "flight:\n\n| responder | method | on the medium "
      "|\n| --- | --- | --- |\n";
  check::CheckOptions options;
  options.updates_in_flight = 2;
  options.between = check::Between::Ordered;
  for (const ServerProfile& profile : plan::paper_profiles(Transport::InfiniBand)) {
    for (const plan::Known& known :
         plan::known_methods(profile, {singleton(), Level::Durable, true})) {
      const auto report = check::check(known.method, profile, options);
      text += fmt::format("| {} | `{}` | {} |\n", responder(profile), known.method.name,
                          report.holds() ? "in order" : "may pass");
    }
  }
  return text + "\n";
}

constexpr const char* kImpossible = R"(## Where one round trip is not to be had one-sided

Every scenario has a method of one round trip, if the responder's processor may take part. Without it
there is one case that has none: *dmp, ddio on* (and *page*). The reason is short: between the cache
(or the page cache) and the domain data moves only by eviction, in any order and at no time that
anyone has an acknowledgement of; READ, FLUSH and ATOMIC WRITE are all answered from the cache. No sequence of them
changes what a power failure keeps, so no event at the requester can mean *durable*. The search of
`src/plan/search.h` over all sequences of up to four posts finds none either: `perdure plan --search --domain dmp --ddio on`
prints each of them with the property that it breaks. With *ddio off* and `b` larger than 8 bytes,
WRITEs alone take two: a posted WRITE may overtake the FLUSH before it, and only an ATOMIC WRITE,
which carries at most 8 bytes, does not.

Hardware changes that. A FLUSH with placement *persistence* (InfiniBand specification 1.6, annex A19; the
kernel's rxe has it, no RNIC yet) brings the range that it names into the domain itself: with it
`write-flush` and `write-flush-atomic-flush` are right on dmp with ddio on, in one round trip
(`perdure plan --domain dmp --ddio on --native-flush --persistent-flush`). With ordered persist (PWRITE and its persist ACK, *parallelism* section V;
no device has it) any number of epochs takes one round trip one-sided on dmp, with ddio on or off:
`src/check/persist_order_test.cc` proves it, and that nothing can be taken away. With SFLUSH (*durable RPC*
section 4.1.1; no device has it either) the responder's RNIC looks up where a SEND has gone and flushes that buffer, and what
the SFLUSH names of what was written: `send-replay-sflush` and `write-send-sflush` are right on dmp with ddio on
(`perdure plan --domain dmp --ddio on --receive-buffers pm --send-flush`). The emulated fabric runs both where its machine has them
(`ordered_persist` and `send_flush` in `configs/perdured.toml`); on other fabrics they are refused by name.

A responder that posts READs of its own takes what is to be durable from where the requester has it
(`send-read-flush-ack`), however long that is, and one that writes its acknowledgement to where the
requester polls saves the requester a receive (`send-copy-flush-ack-written`): `perdure plan --responder-posts`.
What a READ brought is visible, and no more, when it completes: the gallery above has what goes wrong.
Messages that the responder finds by polling a mailbox (`poll-copy-flush-ack`) cost it no receive: `perdure plan --polled`.
Both are for programs that run the responder themselves: `perdured` polls no mailbox and posts no READs or WRITEs, and
over it such methods are refused by name.

Between two connections there is no order at all. A method that posts its second epoch without waiting
until the first is durable is wrong as soon as they go over two: 18 of the 36 compound methods, by
`perdure check --all --connections 2`.

Ordered updates of 3, 8 and 64 epochs take one round trip on all twelve responders, as one message
with the responder copying and flushing epoch by epoch; on mhp and wsp as plain writes as well.

## Two witnesses

The planner (`src/plan`) does not know the checker, nor the other way round; `tests/agreement` compares
them. The same machine is also written out as Promela (`src/check/promela.h`), without the explorer's
reductions, and SPIN agrees on every scenario and on every wrong method above.
)";

}  // namespace

std::string taxonomy_page() {
  Glossary glossary;
  std::string text = kIntroduction;
  text += "\n";
  text += kFindings;
  text += "\n" + mutated() + "## The tables\n\n";
  text += table(singleton(), glossary) + table(compound(), glossary);
  text += without_order(glossary) + kFiles;
  text += steps(glossary) + iwarp() + known_unsafe() + sets() + pipelining();
  return text + kImpossible;
}

}  // namespace perdure
