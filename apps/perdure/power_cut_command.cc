// `perdure probe --certify PEER --power-cut arm|check`: the two phases of client/power_cut.h, with
// a file between them.
#include "client/power_cut.h"

#include <fmt/format.h>

#include <filesystem>

#include "certify.h"
#include "core/counted.h"
#include "core/random.h"
#include "core/text_file.h"
#include "core/try.h"
#include "signals.h"

namespace perdure::app {
namespace {

constexpr std::size_t kStateBytesMax = 64 * 1024;

ExitStatus refuse_usage(const std::string& message) {
  print_error({ErrorCode::InvalidArgument, message});
  return ExitStatus::Usage;
}

Result<client::PowerCutRun> load_state(const std::string& file) {
  PERDURE_TRY(text, load_text(file, kStateBytesMax));
  auto run = client::read_state(text);
  if (!run.ok()) return Error{run.code(), file + ": " + run.error().message};
  return run;
}

/// The run that the file is of, if any. Errors: one that nobody has checked yet.
Result<std::optional<client::PowerCutRun>> run_before(const CertifyCommand& command) {
  std::error_code unreadable;
  if (!std::filesystem::exists(command.state_file, unreadable))
    return std::optional<client::PowerCutRun>();
  PERDURE_TRY(before, load_state(command.state_file));
  if (!before.checked && before.acknowledged > 0) {
    return Error{
        ErrorCode::AlreadyExists,
        fmt::format("{} holds a run with {} on pool {} of {} that nobody has checked: use "
                    "--power-cut check, or remove the file",
                    command.state_file, counted(before.acknowledged, "acknowledged update"),
                    before.pool, before.peer)};
  }
  return std::optional(before);
}

std::string armed_text(const client::PowerCutRun& run, const CertifyCommand& command) {
  std::string text =
      fmt::format("{} acknowledged as durable by {}, and {} in flight\n",
                  counted(run.acknowledged, "update"), run.methods, run.begun - run.acknowledged);
  if (run.gone) {
    text +=
        run.noticed_ns
            ? fmt::format("the peer's loss showed {:.3f} s after its last answer: {} (measured)\n",
                          static_cast<double>(*run.noticed_ns) / 1e9, run.lost_reason)
            : "the peer is silent: " + run.lost_reason + "\n";
    if (!run.watched)
      text +=
          "it has not answered since: a check will find what is lost, and can not prove a cut\n";
  } else {
    if (!run.lost_reason.empty()) text += run.lost_reason + "\n";
    text +=
        "the writing ended before a loss of the peer was noticed: a cut from now on proves little, "
        "for what was written may be written back by itself. Arm again, with a longer "
        "--write-for-s, and cut its power meanwhile\n";
  }
  return text + fmt::format(
                    "when it is back, before anybody writes to the pool:\n  perdure probe "
                    "--certify {} --power-cut check --state {}\n",
                    command.peer, command.state_file);
}

ExitStatus run_arm(const CertifyCommand& command, Format format) {
  if (command.pool.empty()) {
    return refuse_usage(
        "--power-cut arm needs --pool NAME: one of the peer's, which is written over");
  }
  if (!command.overwrite) {
    return refuse_usage(
        fmt::format("the pattern is written into pool {}: give --overwrite if nobody "
                    "wants what it holds, or make another pool",
                    command.pool));
  }
  auto before = run_before(command);
  if (!before.ok()) return fail(before.error());
  client::Dialer dialer;
  auto dialed = dial(dialer, command);
  if (!dialed.ok()) return fail(dialed.error());
  client::PowerCutOptions options;
  options.timeout = std::chrono::seconds(command.timeout_s);
  const auto service = client::HttpPeer::probe(command.peer, Deadline::after(options.timeout));
  if (!service.ok()) return fail_of_peer(service.error(), command);
  options.pool = command.pool;
  options.start = client::peer_start(*service, control::kernel_up_s());
  options.before = std::move(*before);
  options.primary = command.primary;
  options.write_for = std::chrono::seconds(command.write_for_s);
  options.writer = random_secret() | 1;
  options.seed = random_secret();
  count_signals();
  options.stop = [] { return signals_received() > 0; };
  options.boot_now = [&command]() -> std::optional<client::PeerStart> {
    const Deadline soon = Deadline::after(std::chrono::seconds(1));
    const auto asked_s = control::kernel_up_s();
    const auto there = client::HttpPeer::probe(command.peer, soon);
    if (!there.ok()) return std::nullopt;
    return client::peer_start(*there, asked_s);
  };
  bool begun = false;
  bool gone = false;
  StatusLine line;
  options.save = [&](const client::PowerCutRun& run) -> Result<void> {
    // Whoever ends it because of what the file says is still told what it says.
    const bool to_end = signals_received() > 0;
    PERDURE_TRY_VOID(write_file(command.state_file, client::write_state(run)));
    if (!begun) {
      print_warning(fmt::format(
          "writing to {}: cut its power now, at the outlet, not by its button; Ctrl-C ends the "
          "writing",
          command.peer));
    }
    begun = true;
    if (run.gone && run.ended && !gone && !to_end) {
      gone = true;
      line.clear();
      print_warning(fmt::format(
          "{} {}: give it its power back. Its first answer is awaited, for an hour; Ctrl-C ends "
          "that, and then it is not proved that it was cut under the writes",
          command.peer, run.noticed_ns ? "has gone" : "is silent, as if it had no power"));
      return {};
    }
    line.show(counted(run.acknowledged, "update") + " acknowledged");
    return {};
  };
  const auto run = client::arm_power_cut(std::move(dialed).value(), options);
  line.clear();
  if (!run.ok()) return fail_of_peer(run.error(), command);
  print(format == Format::Json ? client::write_state(*run) : armed_text(*run, command));
  return ExitStatus::Ok;
}

ExitStatus run_check(const CertifyCommand& command, Format format) {
  auto run = load_state(command.state_file);
  if (!run.ok()) return fail(run.error());
  if (!command.pool.empty() && command.pool != run->pool) {
    return refuse_usage(
        fmt::format("{} is of pool {}, not of {}: leave --pool out, or name another file",
                    command.state_file, run->pool, command.pool));
  }
  client::Dialer dialer;
  const auto dialed = dial(dialer, command);
  if (!dialed.ok()) return fail(dialed.error());
  client::PowerCutOptions options;
  options.timeout = std::chrono::seconds(command.timeout_s);
  const auto asked_s = control::kernel_up_s();
  const auto service = client::HttpPeer::probe(command.peer, Deadline::after(options.timeout));
  if (!service.ok()) return fail_of_peer(service.error(), command);
  options.start = client::peer_start(*service, asked_s);
  const auto found = client::check_power_cut(**dialed, *run, options);
  if (!found.ok()) return fail_of_peer(found.error(), command);
  if (auto noted = write_file(command.state_file, client::write_state(*run)); !noted.ok())
    return fail(noted.error());
  return report_certificate(command.peer, *service, *found, format);
}

}  // namespace

Result<std::optional<PowerCutPhase>> parse_power_cut_phase(std::string_view word) {
  if (word == "arm") return std::optional(PowerCutPhase::Arm);
  if (word == "check") return std::optional(PowerCutPhase::Check);
  return Error{ErrorCode::InvalidArgument, "expected arm or check"};
}

ExitStatus run_power_cut(const CertifyCommand& command, Format format) {
  if (command.state_file.empty())
    return refuse_usage("--power-cut needs --state FILE, on this machine: it outlives the cut");
  return *command.power_cut == PowerCutPhase::Arm ? run_arm(command, format)
                                                  : run_check(command, format);
}

}  // namespace perdure::app
