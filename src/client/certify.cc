#include "client/certify.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <span>
#include <thread>

#include "client/certify_receive.h"
#include "client/dial.h"
#include "core/bytes.h"
#include "core/try.h"
#include "persist/requester.h"
#include "plan/catalog.h"

namespace perdure::client {
namespace {

using fabric::Completion;
using fabric::Opcode;
using fabric::WorkRequest;

constexpr std::uint64_t kLargeBytes = 64 * 1024;
constexpr std::uint64_t kWordAt = kLargeBytes;
constexpr std::uint64_t kPoolBytesMin = kLargeBytes + 4096;
constexpr std::uint64_t kInFlight = 8;  // large WRITEs at a time around a grant
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kPagesMax = 256;
constexpr std::uint64_t kLooksMax = 16;
constexpr std::uint64_t kGrantsMax = 64;
constexpr Nanoseconds kScanWithin = std::chrono::seconds(2);
/// From where on a first touch that takes longer than a later one is called a page fault: one
/// of an RNIC goes through its driver, and takes some hundred microseconds.
constexpr Nanoseconds kPageFault = std::chrono::microseconds(100);

/// A session, and memory of this side to write from and to read into.
class Wire {
 public:
  Wire(Session session, const CertifyOptions& options)
      : bytes_((2 + kInFlight) * kLargeBytes), session_(std::move(session)), options_(options) {}

  Result<void> prepare(fabric::Device& device) {
    PERDURE_TRY(memory, device.register_memory(bytes_, fabric::Access::Local));
    memory_ = std::move(memory);
    return {};
  }

  Session& session() { return session_; }

  /// Writes `length` bytes of words of `value` at `at`. Returns what its completion is awaited by.
  Result<std::uint64_t> post_write(std::uint64_t at, std::uint64_t length, std::uint64_t value) {
    std::byte* from = bytes_.data() + (at == kWordAt ? kLargeBytes - 8 : 0);
    for (std::uint64_t word = 0; word < length; word += sizeof value) store(from + word, value);
    return post(Opcode::Write, at, {from, length, memory_.get()});
  }

  /// A large WRITE at the start of the pool, from memory that no other of kInFlight in a row has.
  Result<void> post_large(std::uint64_t value) {
    std::byte* const from = bytes_.data() + (2 + value % kInFlight) * kLargeBytes;
    for (std::uint64_t at = 0; at < kLargeBytes; at += sizeof value) store(from + at, value);
    PERDURE_TRY_VOID(post(Opcode::Write, 0, {from, kLargeBytes, memory_.get()}));
    return {};
  }

  /// What came of requests, as far as it is known.
  struct Outcomes {
    std::uint64_t completed = 0;
    std::uint64_t refused = 0;  // by the peer, which must have seen it
    std::uint64_t lost = 0;     // nobody says whether it left this machine
  };
  /// Looks once at what has completed; errors are outcomes here.
  void look(Outcomes& outcomes) {
    std::array<Completion, 2 * kInFlight> done;
    const std::size_t count = session_.endpoint->poll(done);
    for (std::size_t i = 0; i < count; ++i) {
      completed_ = std::max(completed_, done[i].context);
      if (!done[i].error)
        ++outcomes.completed;
      else if (*done[i].error == ErrorCode::OutOfRange)
        ++outcomes.refused;
      else
        ++outcomes.lost;
    }
  }
  std::uint64_t in_flight() const { return posted_ - completed_; }

  /// Reads into this side's memory; the bytes are good until the next call.
  Result<std::span<const std::byte>> read(std::uint64_t at, std::uint64_t length) {
    std::byte* to = bytes_.data() + kLargeBytes;
    PERDURE_TRY(number, post(Opcode::Read, at, {to, length, memory_.get()}));
    PERDURE_TRY_VOID(await(number));
    return std::span<const std::byte>(to, length);
  }

  Result<std::uint64_t> read_word(std::uint64_t at) {
    PERDURE_TRY(bytes, read(at, sizeof(std::uint64_t)));
    return load<std::uint64_t>(bytes.data());
  }

  Result<void> await(std::uint64_t number) {
    const Deadline deadline(*options_.clock, options_.timeout);
    while (completed_ < number) {
      Completion completion;
      if (session_.endpoint->poll({&completion, 1}) == 1) {
        if (completion.error) return Error{*completion.error, "a request failed"};
        completed_ = std::max(completed_, completion.context);
      } else if (deadline.passed()) {
        return Error{ErrorCode::TimedOut, "the peer stopped answering"};
      } else if (!session_.endpoint->connected()) {
        return Error{ErrorCode::Disconnected, "the connection was lost"};
      }
    }
    return {};
  }

 private:
  Result<std::uint64_t> post(Opcode opcode, std::uint64_t at, const fabric::Segment& segment) {
    WorkRequest request;
    request.opcode = opcode;
    request.segment_count = 1;
    request.segments[0] = segment;
    request.remote = session_.remote;
    request.remote_offset = at;
    request.context = ++posted_;
    const Deadline deadline(*options_.clock, options_.timeout);
    while (true) {
      PERDURE_TRY(taken, session_.endpoint->post({&request, 1}));
      if (taken == 1) return posted_;
      if (deadline.passed()) return Error{ErrorCode::TimedOut, "the send queue stays full"};
      PERDURE_TRY_VOID(await(completed_ + 1));
    }
  }

  std::vector<std::byte> bytes_;
  std::unique_ptr<fabric::Memory> memory_;
  Session session_;  // goes before the memory that its requests name
  const CertifyOptions& options_;
  std::uint64_t posted_ = 0;
  std::uint64_t completed_ = 0;
};

/// Ends a connection before the memory goes that is posted on it.
class LastUse {
 public:
  explicit LastUse(fabric::Endpoint& endpoint) : endpoint_(endpoint) {}
  ~LastUse() { endpoint_.disconnect(); }
  LastUse(const LastUse&) = delete;
  LastUse& operator=(const LastUse&) = delete;

 private:
  fabric::Endpoint& endpoint_;
};

class Run {
 public:
  Run(Peer& peer, const CertifyOptions& options) : peer_(peer), options_(options) {}

  Result<Certificate> run() {
    PERDURE_TRY(described, peer_.describe(options_.pool, deadline()));
    if (described.bytes < kPoolBytesMin) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("pool {} has {} bytes, the list needs {}", options_.pool,
                               described.bytes, kPoolBytesMin)};
    }
    epoch_ = described.epoch;
    PERDURE_TRY_VOID(have(writer_, true));
    const ServerProfile profile = writer_->session().pool.profile;
    Certificate certificate{writer_->session().pool, peer_.device().describe(), {}};
    std::vector<CertifyCheck>& checks = certificate.checks;
    // From here on whatever happens is a finding.
    Orders orders;
    const auto ordered = write_order(orders);
    checks.push_back(unless_failed(judge(orders, profile), ordered));
    Grants grants;
    const auto granted = after_a_grant(grants);
    checks.push_back(unless_failed(judge(grants, granted), granted));
    checks.push_back(grants.fenced.empty()
                         ? unless_failed({"fencing-time", Proof::NotProved, "", {}}, granted)
                         : fencing_time(grants, certificate.pool.bytes));
    checks.push_back(attempt("first-touch", [this] { return first_touch(); }));
    checks.push_back(attempt("immediate-length", [this] { return immediate_length(); }));
    checks.push_back(attempt("cqe-payload", [this] { return payloads(); }));
    checks.push_back(dead_peer_time(profile.transport, default_endpoints(), std::nullopt, false));
    checks.push_back({"power-cut",
                      Proof::NotHere,
                      "needs a power cut: `perdure probe --certify PEER --power-cut arm --state "
                      "FILE` writes until you cut it, and `--power-cut check` looks afterwards, at "
                      "least twenty times",
                      {}});
    return certificate;
  }

 private:
  Deadline deadline() const { return Deadline(*options_.clock, options_.timeout); }

  /// Why a step ended; where it waited for too long, what that is.
  std::string why(const Error& error) const {
    std::string text = "not found out: " + error.message;
    if (error.code != ErrorCode::TimedOut) return text;
    return text + fmt::format("; it had {:g} s for an answer", to_seconds(options_.timeout));
  }
  /// What was found stands, if it is that something is broken; else it is told why the step ended.
  CertifyCheck unless_failed(CertifyCheck check, const Result<void>& tried) const {
    if (tried.ok() || check.proof == Proof::Broken) return check;
    check.proof = Proof::NotProved;
    check.finding = why(tried.error());
    return check;
  }
  template <typename Step>
  CertifyCheck attempt(const char* name, Step step) const {
    Result<CertifyCheck> check = step();
    if (check.ok()) return std::move(check).value();
    return unless_failed({name, Proof::NotProved, "", {}}, check.error());
  }

  /// Asks as often as it takes longer than one answer may, as long as the peer is there and says
  /// so: what an earlier writer left is made durable first, which can take minutes.
  template <typename Ask>
  auto ask_again(Ask ask) -> decltype(ask()) {
    const Deadline over(*options_.clock, options_.patience);
    for (;;) {
      auto answer = ask();
      if (answer.ok() || answer.code() != ErrorCode::TimedOut || over.passed()) return answer;
      if (!peer_.describe(options_.pool, deadline()).ok()) return answer;
    }
  }

  /// Opens what there is not, or not any more.
  Result<void> have(std::unique_ptr<Wire>& wire, bool write) {
    if (wire != nullptr && wire->session().endpoint->connected()) return {};
    wire.reset();
    PERDURE_TRY(opened, open(write));
    wire = std::move(opened);
    return {};
  }
  Result<void> have_both() {
    PERDURE_TRY_VOID(have(writer_, true));
    return have(reader_, false);
  }

  Result<std::unique_ptr<Wire>> open(bool write) {
    control::SessionRequest request;
    request.pool = options_.pool;
    request.write = write;
    if (write) {
      request.epoch = Epoch{++epoch_.value};
      request.writer = options_.writer;
      request.writer_name = "perdure probe --certify";
      request.take_over = writes_;  // only from this run
      writes_ = true;
    }
    PERDURE_TRY(session, ask_again([&] { return peer_.open_session(request, deadline()); }));
    auto wire = std::make_unique<Wire>(std::move(session), options_);
    PERDURE_TRY_VOID(wire->prepare(peer_.device()));
    return wire;
  }

  /// What the rounds of write_order() saw.
  struct Orders {
    std::uint64_t rounds = 0;
    std::uint64_t met = 0;     // rounds whose word was there before they ended
    std::uint64_t passed = 0;  // of them: with bytes missing that were written before it
  };

  /// A large WRITE, then a word; another connection reads the word first.
  Result<void> write_order(Orders& orders) {
    PERDURE_TRY_VOID(have_both());
    const Deadline over(*options_.clock, kScanWithin);
    for (; orders.rounds < options_.rounds && !over.passed(); ++orders.rounds) {
      const std::uint64_t value = orders.rounds + 1;
      PERDURE_TRY_VOID(writer_->post_write(0, kLargeBytes - 8, value));
      PERDURE_TRY(last, writer_->post_write(kWordAt, 8, value));
      for (std::uint64_t look = 0; look < kLooksMax; ++look) {
        PERDURE_TRY(word, reader_->read_word(kWordAt));
        if (word != value) continue;
        ++orders.met;
        PERDURE_TRY(large, reader_->read(0, kLargeBytes - 8));
        bool whole = true;
        for (std::uint64_t at = 0; at < large.size(); at += 8) {
          whole = whole && load<std::uint64_t>(large.data() + at) == value;
        }
        orders.passed += whole ? 0 : 1;
        break;
      }
      PERDURE_TRY_VOID(writer_->await(last));
      PERDURE_TRY_VOID(writer_->read_word(kWordAt));  // all is placed before the next round
    }
    return {};
  }

  static CertifyCheck judge(const Orders& orders, const ServerProfile& profile) {
    CertifyCheck check{"write-order", Proof::NotProved, "", {}};
    check.numbers = {{"rounds", static_cast<double>(orders.rounds)},
                     {"rounds_looked_at", static_cast<double>(orders.met)},
                     {"later_write_seen_first", static_cast<double>(orders.passed)}};
    if (orders.passed == 0) {
      check.finding =
          "no WRITE was seen before the one that was posted before it; that proves no "
          "order, only the network's operator knows";
      if (placed_by_cpu(profile.transport)) {
        check.proof = Proof::Held;
        check.finding = "the responder's processor places WRITEs, in order";
      }
    } else if (keeps_write_order(profile)) {
      check.proof = Proof::Broken;
      check.finding =
          "WRITEs are placed in another order, and write_order = \"ordered\" is "
          "declared: withdraw it";
    } else {
      check.proof = Proof::Held;
      check.finding =
          "no method counts on an order here, and rightly: WRITEs are placed in another one";
    }
    return check;
  }

  /// What the rounds of after_a_grant() saw.
  struct Grants {
    std::uint64_t rounds = 0;
    std::uint64_t in_flight = 0;  // WRITEs, when the next writer asked
    std::uint64_t meanwhile = 0;  // WRITEs that completed while the one before was fenced
    std::uint64_t cut_off = 0;    // WRITEs that had set out, and ended by that
    std::uint64_t after = 0;      // WRITEs that the connection took after the grant
    std::uint64_t looks = 0;
    std::uint64_t changed = 0;        // looks at which bytes were others than at the grant
    std::vector<Nanoseconds> fenced;  // until nobody from before could write any more
    std::vector<Nanoseconds> took;    // from there until the next writer was granted
  };

  /// Another writer takes over under large WRITEs of the first one, who goes on writing until its
  /// connection is cut off, and longer if it takes them: from the grant on nothing may change. Many
  /// times, each writer after the one before.
  Result<void> after_a_grant(Grants& grants) {
    PERDURE_TRY_VOID(have_both());
    const Deadline over(*options_.clock, kScanWithin);
    std::uint64_t value = 1;
    while (grants.rounds < std::min(options_.rounds, kGrantsMax) && !over.passed()) {
      PERDURE_TRY_VOID(grant_once(value, grants));
      ++grants.rounds;
    }
    return {};
  }

  /// The writer before is fenced first, as a take-over does, so that this can be timed by itself.
  Result<void> grant_once(std::uint64_t& value, Grants& grants) {
    constexpr int kLooks = 4;
    Wire& before = *writer_;
    for (std::uint64_t i = 0; i < kInFlight; ++i) PERDURE_TRY_VOID(before.post_large(value++));
    Wire::Outcomes meanwhile;
    const auto write_on = [&] {
      if (meanwhile.refused + meanwhile.lost > 0) return;  // what is posted now does not set out
      if (before.in_flight() < kInFlight && before.post_large(value).ok()) ++value;
      before.look(meanwhile);
    };
    grants.in_flight += before.in_flight();
    const Nanoseconds asked = options_.clock->now();
    ++epoch_.value;
    Result<void> fence;
    options_.beside(write_on, [&] {
      fence = ask_again([this] { return peer_.fence(options_.pool, epoch_, deadline()); });
    });
    if (!fence.ok()) return fence.error();
    const Nanoseconds fenced = options_.clock->now();
    grants.fenced.push_back(fenced - asked);
    PERDURE_TRY(seen, reader_->read(0, kLargeBytes));
    const std::vector<std::byte> found(seen.begin(), seen.end());
    PERDURE_TRY(granted, open(true));
    grants.took.push_back(options_.clock->now() - fenced);
    Wire::Outcomes afterwards;
    for (int look = 0; look < kLooks; ++look) {
      // It may be refused, or take what will never arrive; both are right.
      if (before.in_flight() < kInFlight && before.post_large(value).ok()) {
        ++value;
        ++grants.after;
      }
      before.look(afterwards);
      PERDURE_TRY(now, granted->read(0, kLargeBytes));
      ++grants.looks;
      grants.changed += std::equal(now.begin(), now.end(), found.begin()) ? 0U : 1U;
    }
    const bool early = completes_early(granted->session().pool.profile.transport);
    grants.meanwhile += meanwhile.completed;
    // That one had set out the peer says, or those before it, which had come there until then.
    if (early) grants.cut_off += meanwhile.refused + afterwards.refused;
    if (!early && meanwhile.completed > 0) grants.cut_off += meanwhile.refused + meanwhile.lost;
    writer_ = std::move(granted);
    return {};
  }

  static CertifyCheck judge(const Grants& grants, const Result<void>& tried) {
    CertifyCheck check{"bytes-after-a-grant", Proof::NotProved, "", {}};
    check.numbers = {{"rounds", static_cast<double>(grants.rounds)},
                     {"bytes_each", static_cast<double>(kLargeBytes)},
                     {"writes_in_flight", static_cast<double>(grants.in_flight)},
                     {"writes_meanwhile", static_cast<double>(grants.meanwhile)},
                     {"writes_cut_off", static_cast<double>(grants.cut_off)},
                     {"writes_after", static_cast<double>(grants.after)},
                     {"looks", static_cast<double>(grants.looks)},
                     {"looks_changed", static_cast<double>(grants.changed)}};
    if (grants.changed > 0) {
      check.proof = Proof::Broken;
      check.finding =
          "bytes of a writer arrived after the next one was granted: the device does not take "
          "rights away in time";
    } else if (!tried.ok() && tried.code() == ErrorCode::SystemError) {
      check.proof = Proof::Broken;
      check.finding = "the peer can not take a writer's rights away: " + tried.error().message;
    } else if (grants.cut_off > 0) {
      check.proof = Proof::Held;
      check.finding =
          "after a writer was granted, nothing of the one before arrived, though it wrote until "
          "its connection was cut off. What arrives while the peer's answer is in flight is not "
          "seen";
    } else {
      check.finding =
          "of no WRITE it is known that it was in flight when its writer was fenced, so nothing "
          "was tried: go over the RNIC, or try again with less to do on this machine";
    }
    return check;
  }

  struct Spread {
    double median = 0;
    double most = 0;
  };
  static Spread spread(std::vector<Nanoseconds> took) {
    if (took.empty()) return {};
    std::sort(took.begin(), took.end());
    return {static_cast<double>(took[took.size() / 2].count()),
            static_cast<double>(took.back().count())};
  }

  static CertifyCheck fencing_time(const Grants& grants, std::uint64_t pool_bytes) {
    const Spread fenced = spread(grants.fenced);
    const Spread took = spread(grants.took);
    return {"fencing-time",
            Proof::NotProved,  // a number; how long is too long its reader knows
            fmt::format("fencing the writer of a pool of {} bytes took {:.3f} ms (median of {}), "
                        "{:.3f} ms at most; granting the next one, with what the one before left "
                        "made durable, {:.3f} ms more (median of {}), {:.3f} ms at most",
                        pool_bytes, fenced.median / 1e6, grants.fenced.size(), fenced.most / 1e6,
                        took.median / 1e6, grants.took.size(), took.most / 1e6),
            {{"fencing_ns", fenced.median},
             {"fencing_ns_max", fenced.most},
             {"fencing_samples", static_cast<double>(grants.fenced.size())},
             {"grant_ns", took.median},
             {"grant_ns_max", took.most},
             {"grant_samples", static_cast<double>(grants.took.size())},
             {"pool_bytes", static_cast<double>(pool_bytes)}}};
  }

  /// Each page is written and read back, twice: what the first time alone takes long is faulted in.
  /// Judged by the median, since any single touch may wait for a busy processor. Of a large pool
  /// pages that nothing here has touched.
  Result<CertifyCheck> first_touch() {
    PERDURE_TRY_VOID(have(writer_, true));
    Wire& wire = *writer_;
    if (placed_by_cpu(wire.session().pool.profile.transport)) {
      return CertifyCheck{"first-touch",
                          Proof::NotHere,
                          "no RNIC touches a page here: over this transport a processor does. Try "
                          "it over the RNIC",
                          {}};
    }
    const std::uint64_t all = wire.session().pool.bytes / kPageBytes;
    constexpr std::uint64_t kTouched = kPoolBytesMin / kPageBytes;
    const std::uint64_t from = all >= 2 * kTouched ? kTouched : 0;
    const std::uint64_t pages = std::min(all - from, kPagesMax);
    std::array<std::vector<Nanoseconds>, 2> took;
    for (auto& each : took) {
      for (std::uint64_t page = from; page < from + pages; ++page) {
        const Nanoseconds begun = options_.clock->now();
        PERDURE_TRY_VOID(wire.post_write(page * kPageBytes, 8, page));
        PERDURE_TRY_VOID(wire.read_word(page * kPageBytes));
        each.push_back(options_.clock->now() - begun);
      }
      std::sort(each.begin(), each.end());
    }
    const Nanoseconds first = took[0][pages / 2];
    const Nanoseconds again = took[1][pages / 2];
    const bool faults = first > kPageFault && first > 4 * again;
    CertifyCheck check{"first-touch", faults ? Proof::Broken : Proof::Held, "", {}};
    check.numbers = {{"pages", static_cast<double>(pages)},
                     {"median_first_ns", static_cast<double>(first.count())},
                     {"median_again_ns", static_cast<double>(again.count())},
                     {"slowest_first_ns", static_cast<double>(took[0].back().count())},
                     {"slowest_again_ns", static_cast<double>(took[1].back().count())}};
    check.finding = faults ? "the first touch of a page waits for the responder's kernel: the RNIC "
                             "pages this pool on demand"
                           : "most pages do not wait for the responder's kernel at the first touch";
    return check;
  }

  Result<CertifyCheck> immediate_length() {
    PERDURE_TRY_VOID(have(writer_, true));
    CertifyCheck check{"immediate-length", Proof::NotHere, "", {}};
    const ServerProfile profile = writer_->session().pool.profile;
    std::optional<Method> method;
    for (plan::Known& known : plan::known_methods(profile, {singleton(), Level::Visible, false})) {
      if (known.method.name == "write_imm-ack") method = std::move(known.method);
    }
    if (!method) {
      check.finding =
          "no method may write into this pool by WRITE_WITH_IMM: on a file under an RNIC all data "
          "arrives by SEND. Try it on another pool";
      return check;
    }
    const auto tried = write_with_immediate(*writer_, *method);
    writer_.reset();  // it was the last that it was used for
    if (tried.ok()) {
      check.proof = Proof::NotProved;
      check.finding =
          "the completion of a WRITE_WITH_IMM gives a length, and a responder that repeats it says "
          "the right one; of an older responder the conformance suite tells";
    } else if (tried.code() == ErrorCode::Unsupported) {
      check.finding = why(tried.error());
    } else if (!have(writer_, true).ok()) {
      check.proof = Proof::NotProved;  // the peer has gone, whatever it had done with it
      check.finding = why(tried.error());
    } else {
      check.proof = Proof::Broken;
      check.finding =
          "a WRITE_WITH_IMM is not acknowledged (a completion without a length ends the "
          "session; see the log of perdured): " +
          tried.error().message;
    }
    return check;
  }

  /// On a connection of which no message was sent. The other one is busy meanwhile: so time passes,
  /// in an emulated world as well.
  Result<CertifyCheck> payloads() {
    writer_.reset();
    PERDURE_TRY_VOID(have_both());
    const auto pass = [this]() -> Result<void> {
      PERDURE_TRY_VOID(reader_->read_word(kWordAt));
      return {};
    };
    CertifyCheck check = cqe_payload(writer_->session(), peer_.device(), *options_.clock, pass);
    writer_.reset();
    return check;
  }

  /// The last that the wire is used for.
  Result<void> write_with_immediate(Wire& wire, const Method& method) {
    Session& session = wire.session();
    persist::Requester::Options options;
    options.remote = session.remote;
    options.queue.depth = session.receive_depth;
    options.queue.message_bytes_max = session.message_bytes_max;
    options.session = static_cast<std::uint32_t>(session.id);
    std::vector<std::byte> bytes(512);
    PERDURE_TRY(memory, peer_.device().register_memory(bytes, fabric::Access::Local));
    PERDURE_TRY(requester, persist::Requester::open(*session.endpoint, peer_.device(),
                                                    session.pool.profile, {method}, options));
    const LastUse last(*session.endpoint);
    const persist::UpdateItem item{0, {bytes.data(), bytes.size(), memory.get()}};
    PERDURE_TRY(number, requester->begin(0, std::span(&item, 1)));
    const Deadline over = deadline();
    while (requester->resolved() < number) {
      PERDURE_TRY_VOID(requester->poll());
      if (over.passed()) return Error{ErrorCode::TimedOut, "the peer stopped answering"};
    }
    return {};
  }

  Peer& peer_;
  const CertifyOptions& options_;
  Epoch epoch_;
  bool writes_ = false;
  std::unique_ptr<Wire> writer_;
  std::unique_ptr<Wire> reader_;
};

}  // namespace

std::string_view to_string(Proof proof) {
  switch (proof) {
    case Proof::Held: return "held";
    case Proof::Broken: return "broken";
    case Proof::NotProved: return "not-proved";
    case Proof::NotHere: return "not-here";
  }
  return "unknown";
}

void call_beside(const std::function<void()>& step, const std::function<void()>& call) {
  const std::jthread calling([&step](const std::stop_token& over) {
    while (!over.stop_requested()) step();
  });
  call();
}

Result<Certificate> certify(Peer& peer, const CertifyOptions& options) {
  return Run(peer, options).run();
}

}  // namespace perdure::client
