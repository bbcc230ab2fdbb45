#include "suite.h"

#include "core/crc32c.h"
#include "core/try.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

namespace perdure::rpc::models {
namespace {

/// Rounds of pumping both ends without a reply after which a call counts as lost. Each lets the
/// emulated world go on by some dozen events.
constexpr int kIdleRoundsMax = 20'000;
/// Rounds in which what is still in flight after the last reply arrives.
constexpr int kLastRounds = 200;

Error failed(const std::string& message) { return {ErrorCode::ProtocolError, message}; }

/// A client and a server of a design, and the calls that are in flight.
class SuiteRun {
 public:
  static Result<void> run(const Design& design, Link& link, const SuiteOptions& options) {
    SuiteRun suite(design, options);
    PERDURE_TRY_VOID(suite.open(link));
    PERDURE_TRY_VOID(suite.run_calls());
    PERDURE_TRY_VOID(suite.settle());
    PERDURE_TRY_VOID(suite.compare_registers());
    PERDURE_TRY_VOID(suite.compare_counts(At::Client, suite.client_->counts()));
    return suite.compare_counts(At::Server, suite.server_->counts());
  }

 private:
  SuiteRun(const Design& design, const SuiteOptions& options)
      : design_(design),
        options_(options),
        calls_(round_up(options.calls, period(design))),
        random_(options.seed) {}

  Result<void> open(Link& link) {
    EndOptions ends;
    ends.window = options_.window;
    ends.payload_bytes_max = options_.payload_bytes_max;
    ends.confounders = options_.confounders;
    ends.device = link.client().device;
    ends.endpoint = link.client().endpoint;
    PERDURE_TRY(client, open_client(design_, ends));
    ends.device = link.server().device;
    ends.endpoint = link.server().endpoint;
    PERDURE_TRY(server, open_server(design_, ends, remote_));
    PERDURE_TRY_VOID(server->start(client->memory()));
    PERDURE_TRY_VOID(client->start(server->memory()));
    client_ = std::move(client);
    server_ = std::move(server);
    return {};
  }

  /// The sizes at which something may go wrong come often: 1 byte, all, and about a cache line.
  std::size_t request_bytes() {
    const std::size_t most = options_.payload_bytes_max;
    switch (random_.below(6)) {
      case 0: return 1;
      case 1: return most;
      case 2: return most - 1;
      case 3: return std::min<std::size_t>(most, 1 + random_.below(2 * kCacheLineBytes));
      default: return 1 + random_.below(most);
    }
  }

  std::vector<std::byte> next_request() {
    constexpr std::array kOperations{Registers::Read, Registers::Write, Registers::Echo};
    const Registers::Operation operation = kOperations[random_.below(kOperations.size())];
    std::size_t bytes = operation == Registers::Read ? 1 : request_bytes();
    // A value is read behind a count of 8 bytes.
    if (operation == Registers::Write) {
      bytes = std::min(bytes, options_.payload_bytes_max - sizeof(std::uint64_t));
    }
    std::vector<std::byte> request(bytes);
    for (std::byte& byte : request) byte = static_cast<std::byte>(random_.below(256));
    request[0] = static_cast<std::byte>(operation | random_.below(8));
    return request;
  }

  Result<void> begin_calls() {
    while (begun_ < calls_) {
      if (next_.empty()) next_ = next_request();
      const auto begun = client_->begin(next_);
      if (!begun.ok() && begun.error().code == ErrorCode::QueueFull) return {};
      PERDURE_TRY_VOID(begun);
      std::vector<std::byte> reply(options_.payload_bytes_max);
      reply.resize(local_.handle(next_, reply));
      expected_.push_back(std::move(reply));
      next_.clear();
      ++begun_;
      if (client_->in_flight() > options_.window) return failed("the window was exceeded");
    }
    return {};
  }

  Result<void> run_calls() {
    std::uint64_t taken = 0;
    std::vector<std::byte> reply;
    for (int idle = 0; taken < calls_; ++idle) {
      PERDURE_TRY_VOID(begin_calls());
      PERDURE_TRY_VOID(client_->pump());
      PERDURE_TRY_VOID(server_->pump());
      PERDURE_TRY(came, client_->take(reply));
      if (came) {
        if (reply != expected_.front()) {
          return failed(fmt::format("the reply of call {} is not its own", taken + 1));
        }
        expected_.pop_front();
        ++taken;
        idle = 0;
      }
      if (idle > kIdleRoundsMax) {
        return failed(fmt::format("call {} got no reply", taken + 1));
      }
    }
    return {};
  }

  Result<void> settle() {
    std::vector<std::byte> reply;
    for (int i = 0; i < kLastRounds; ++i) {
      PERDURE_TRY_VOID(client_->pump());
      PERDURE_TRY_VOID(server_->pump());
      PERDURE_TRY(came, client_->take(reply));
      if (came) return failed("a reply came that nobody asked for");
    }
    return {};
  }

  Result<void> compare_registers() {
    for (std::size_t i = 0; i < 8; ++i) {
      if (remote_.value(i) != local_.value(i)) {
        return failed(fmt::format("register {} does not hold the last acknowledged write", i));
      }
    }
    return {};
  }

  Result<void> compare_counts(At at, const VerbCounts& counts) {
    for (const Verb verb : kVerbs) {
      const Declared wanted = declared(design_, at, verb, calls_);
      const bool as_declared =
          wanted.or_more ? counts[verb] >= wanted.count : counts[verb] == wanted.count;
      if (!as_declared) {
        return failed(fmt::format("{} {}s of the {} in {} calls, declared {}{}", counts[verb],
                                  to_string(verb), to_string(at), calls_, wanted.count,
                                  wanted.or_more ? " or more" : ""));
      }
    }
    return {};
  }

  const Design& design_;
  const SuiteOptions options_;
  const std::uint64_t calls_;
  Random random_;
  Registers remote_;
  Registers local_;
  std::unique_ptr<Client> client_;
  std::unique_ptr<Server> server_;
  std::vector<std::byte> next_;
  std::deque<std::vector<std::byte>> expected_;  // replies of the calls in flight
  std::uint64_t begun_ = 0;
};

}  // namespace

std::size_t Registers::handle(std::span<const std::byte> request, std::span<std::byte> reply) {
  ++executed_;
  const auto operation = std::to_integer<unsigned>(request[0]) & ~7u;
  std::vector<std::byte>& value = values_[std::to_integer<std::size_t>(request[0]) & 7u];
  if (operation == Echo) {
    std::copy(request.begin(), request.end(), reply.begin());
    return request.size();
  }
  store(reply.data(), executed_);
  if (operation == Write) {
    value.assign(request.begin() + 1, request.end());
    store(reply.data() + sizeof executed_, crc32c(value));
    return sizeof executed_ + sizeof(std::uint32_t);
  }
  std::copy(value.begin(), value.end(), reply.begin() + sizeof executed_);
  return sizeof executed_ + value.size();
}

std::string run_suite(const Design& design, Link& link, const SuiteOptions& options) {
  const auto passed = SuiteRun::run(design, link, options);
  return passed.ok() ? "" : passed.error().message;
}

}  // namespace perdure::rpc::models
