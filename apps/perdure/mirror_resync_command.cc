// `perdure mirror resync` and `perdure mirror restore`: a mirror opened as its writer, for as long
// as it takes to bring all replicas, or the lost local memory, to what is newest.
#include "core/byte_text.h"
#include "core/clock.h"
#include "core/descriptor.h"
#include "core/errno_error.h"
#include "core/json.h"
#include "core/try.h"
#include "mirror/local_state.h"
#include "mirror_commands.h"
#include "output.h"
#include "pmem/sync_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <vector>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

constexpr std::chrono::milliseconds kLook{200};
constexpr const char* kHalfSuffix = ".restoring";

struct ResyncCommand {
  PeerOptions peers;
  std::string local;
  bool overwrite = false;
  bool take_over = false;
  bool without_missing = false;
  Format format = Format::Text;
};

MirrorOptions mirror_options(const ResyncCommand& command, MirrorStart start) {
  MirrorOptions options;
  options.peers = command.peers.peers;
  options.pool = command.peers.pool;
  options.transport = command.peers.transport;
  options.rnic.name = command.peers.rnic;
  options.start = start;
  options.only_copies = start == MirrorStart::Replicas;
  options.take_over = command.take_over;
  options.without_missing = command.without_missing;
  options.peer_timeout = command.peers.timeout();
  options.measure_costs = false;  // it writes for a short time
  return options;
}

std::string progress_text(const MirrorStatus& status) {
  std::string text = fmt::format("{} of {} in sync", status.in_sync, status.replicas.size());
  for (const MirrorReplicaStatus& each : status.replicas) {
    if (each.state == MirrorReplicaState::Comparing) {
      text += fmt::format("; {}: compared {} of {}", each.peer, format_bytes(each.compared),
                          format_bytes(status.bytes));
    } else if (each.state == MirrorReplicaState::Copying) {
      text += fmt::format("; {}: {} copied, {} to go", each.peer, format_bytes(each.copied_bytes),
                          format_bytes(each.dirty_bytes));
    }
  }
  return text;
}

/// Until all replicas are in sync, or nothing gets on for `patience`: then not all are.
/// Errors: Fenced.
Result<void> await_replicas(Mirror& mirror, std::chrono::milliseconds patience) {
  StatusLine line;
  std::uint64_t before = 0;
  Deadline stalled = Deadline::after(patience);
  for (;;) {
    auto in_sync = mirror.wait_in_sync(kLook);
    if (in_sync.ok()) return {};
    if (in_sync.code() != ErrorCode::TimedOut && in_sync.code() != ErrorCode::QuorumLost) {
      return in_sync;
    }
    const MirrorStatus status = mirror.status();
    line.show(progress_text(status));
    std::uint64_t far = status.in_sync;
    for (const MirrorReplicaStatus& each : status.replicas)
      far += each.compared + each.copied_bytes;
    if (far != before) stalled = Deadline::after(patience);
    before = far;
    if (stalled.passed()) return {};
  }
}

ordered_json status_json(const MirrorStatus& status, const Result<void>& ended) {
  ordered_json json{{"format", 1},
                    {"bytes", status.bytes},
                    {"epoch", status.epoch.value},
                    {"quorum", status.quorum},
                    {"in_sync", status.in_sync},
                    {"of", status.replicas.size()}};
  json["replicas"] = replicas_json(status);
  if (!ended.ok()) {
    json["error"] = {{"code", to_string(ended.code())}, {"message", ended.error().message}};
  }
  json["ok"] = ended.ok() && status.in_sync == status.replicas.size();
  return json;
}

std::string status_text(const MirrorStatus& status) {
  std::string text;
  for (const MirrorReplicaStatus& each : status.replicas) {
    const bool in_sync = each.state == MirrorReplicaState::InSync;
    text += fmt::format("{}: {}, {} copied{}{}\n", each.peer, to_string(each.state),
                        format_bytes(each.copied_bytes), in_sync ? "" : ": ",
                        in_sync ? "" : each.down_reason);
  }
  return text +
         fmt::format("{} of {} replicas have everything\n", status.in_sync, status.replicas.size());
}

struct Brought {
  MirrorStatus status;
  Result<void> ended;  // not ok: what was brought may lack something at a replica
};

/// Opens the mirror, brings all that come back to equal, and closes it.
/// Errors: those of Mirror::open.
Result<Brought> bring(MirrorMemory memory, const MirrorOptions& options,
                      std::chrono::milliseconds patience) {
  auto opened = Mirror::open(std::move(memory), options);
  if (!opened.ok()) return opened.error();
  Mirror mirror = std::move(*opened);
  Result<void> ended = await_replicas(mirror, patience);
  MirrorStatus status = mirror.status();
  const auto closed = mirror.close();
  if (ended.ok()) ended = closed;
  return Brought{std::move(status), ended};
}

ExitStatus report(const Brought& brought, const std::string& what, Format format) {
  print(format == Format::Json ? json_text(status_json(brought.status, brought.ended), 2) + "\n"
                               : what + status_text(brought.status));
  if (!brought.ended.ok()) print_error(brought.ended.error());
  const bool all = brought.status.in_sync == brought.status.replicas.size();
  return all && brought.ended.ok() ? ExitStatus::Ok : ExitStatus::Failed;
}

/// A file of `perdure mirror run` may be shorter than its mirror, which the run takes care of.
Result<void> check_length(const std::string& local, std::uint64_t mirrored) {
  std::error_code failed;
  if (!std::filesystem::is_regular_file(local, failed)) return {};
  const std::uint64_t bytes = std::filesystem::file_size(local, failed);
  if (failed || bytes >= mirrored) return {};
  return Error{ErrorCode::InvalidArgument,
               fmt::format("'{}' has {} B, and the mirror {}: if it is a file of `perdure mirror "
                           "run`, its next run brings the replicas to equal, as resync does "
                           "without --local",
                           local, bytes, mirrored)};
}

ExitStatus run_resync(const ResyncCommand& command) {
  std::uint64_t bytes = 0;
  {
    const auto heard = hear_mirror(command.peers);
    if (!heard.ok()) return refuse(heard.error(), command.format);
    bytes = (*heard)->survey.header->bytes;
  }
  std::unique_ptr<std::byte[]> scratch;  // outlives the mirror
  std::optional<Result<MirrorMemory>> memory;
  if (!command.local.empty()) {
    if (const auto fits = check_length(command.local, bytes); !fits.ok()) {
      return refuse(fits.error(), command.format);
    }
    memory.emplace(MirrorMemory::file(command.local));
  } else {
    scratch.reset(new (std::nothrow) std::byte[bytes]());
    if (scratch == nullptr) {
      return refuse({ErrorCode::SystemError,
                     fmt::format("no memory for the {} of the mirror: name its file with --local",
                                 format_bytes(bytes))},
                    command.format);
    }
    memory.emplace(MirrorMemory::bytes({scratch.get(), bytes}));
  }
  if (!memory->ok()) return refuse(memory->error(), command.format);
  const MirrorStart start = command.local.empty() ? MirrorStart::Replicas : MirrorStart::Local;
  const auto brought =
      bring(std::move(**memory), mirror_options(command, start), command.peers.timeout());
  if (!brought.ok()) return refuse(brought.error(), command.format);
  return report(*brought, "", command.format);
}

/// Whether nothing but zeros is in the file from there on.
Result<bool> is_zeros_behind(const Descriptor& file, std::uint64_t at) {
  std::vector<char> piece(std::size_t{1} << 20);
  for (;;) {
    const auto offset = static_cast<off_t>(at);
    const ssize_t read = ::pread(file.number(), piece.data(), piece.size(), offset);
    if (read < 0) return errno_error("the restored file can not be read", errno);
    if (read == 0) return true;
    const auto end = piece.begin() + read;
    if (std::any_of(piece.begin(), end, [](char each) { return each != 0; })) return false;
    at += static_cast<std::uint64_t>(read);
  }
}

/// Cuts off the zeros behind the end of a file that had so many bytes, as its replicas tell.
/// Durable. False: something else is there, and nothing is cut off.
Result<bool> cut_to(const std::string& half, const std::string& path, std::uint64_t bytes) {
  const Descriptor file(::open(half.c_str(), O_RDWR | O_CLOEXEC));
  if (file.number() < 0) return errno_error(half, errno);
  PERDURE_TRY(zeros, is_zeros_behind(file, bytes));
  if (!zeros) {
    print_warning(
        fmt::format("'{}' had {} B, as its replicas tell, and they hold something behind "
                    "that: it is as long as the mirror",
                    path, bytes));
    return false;
  }
  const bool cut =
      ::ftruncate(file.number(), static_cast<off_t>(bytes)) == 0 && ::fsync(file.number()) == 0;
  if (!cut) return errno_error(fmt::format("can not cut '{}'", half), errno);
  return true;
}

/// Of a file whose length no replica tells, as those of earlier builds: what was kept beside it, if
/// nothing else lies behind that (the file may have grown since). 0: nothing is known.
Result<std::uint64_t> length_before(const std::string& half, const std::string& path,
                                    std::uint64_t mirrored, std::uint64_t bytes) {
  if (bytes == 0 || bytes >= mirrored) return bytes;
  const Descriptor file(::open(half.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.number() < 0) return errno_error(half, errno);
  PERDURE_TRY(zeros, is_zeros_behind(file, bytes));
  if (!zeros) return std::uint64_t{0};
  print_warning(
      fmt::format("'{0}' had {1} B once when it was mirrored, and is as long as the mirror now: "
                  "`truncate -s {1} '{0}'` cuts off the zeros behind that",
                  path, bytes));
  return bytes;
}

/// The name of a file that is whole, durable before anybody is told. Returns how long it is.
Result<std::uint64_t> give_name(const std::string& half, const std::string& path,
                                std::uint64_t mirrored) {
  const mirror::LocalStateFile of_half(half);
  const mirror::LocalStateFile of_path(path);
  PERDURE_TRY(state, of_half.read());
  std::uint64_t length = mirrored;
  if (state && state->bytes != 0 && state->bytes < mirrored) {
    PERDURE_TRY(cut, cut_to(half, path, state->bytes));
    if (cut) length = state->bytes;
  }
  if (state) {
    const auto before = of_path.read();
    if (state->bytes == 0 && before.ok() && *before && (*before)->id == state->id) {
      PERDURE_TRY(bytes, length_before(half, path, mirrored, (*before)->bytes));
      state->bytes = bytes;
    }
    // What is said of a file must never be said of the one before it.
    PERDURE_TRY_VOID(of_path.write({state->id, state->epoch, false, state->bytes}));
  }
  if (std::rename(half.c_str(), path.c_str()) != 0) {
    return errno_error(fmt::format("can not call '{}' '{}'", half, path), errno);
  }
  PERDURE_TRY_VOID(pmem::sync_directory_of(path));
  if (state) PERDURE_TRY_VOID(of_path.write(*state));
  PERDURE_TRY_VOID(of_half.remove());
  return length;
}

/// What an earlier restore left is taken over, unless that one still runs.
Result<MirrorMemory> half_file(const std::string& half, std::uint64_t bytes) {
  std::error_code none;
  if (std::filesystem::exists(half, none)) {
    PERDURE_TRY(left, MirrorMemory::file(half));
    if (std::filesystem::file_size(half, none) == bytes) return left;
    std::filesystem::remove(half, none);
  }
  return MirrorMemory::create_file(half, bytes);
}

ExitStatus run_restore(const ResyncCommand& command) {
  const std::string local = mirror::path_behind(command.local);  // replaced, not a link to it
  if (!command.overwrite && ::access(local.c_str(), F_OK) == 0) {
    return refuse({ErrorCode::AlreadyExists,
                   fmt::format("'{}' is there: --overwrite replaces it when all is restored, and "
                               "`perdure mirror resync --local` takes it for what counts",
                               command.local)},
                  command.format);
  }
  std::uint64_t bytes = 0;
  {
    const auto heard = hear_mirror(command.peers);
    if (!heard.ok()) return refuse(heard.error(), command.format);
    bytes = (*heard)->survey.header->bytes;
  }
  const std::string half = local + kHalfSuffix;
  auto memory = half_file(half, bytes);
  if (!memory.ok()) return refuse(memory.error(), command.format);
  const auto brought = bring(std::move(*memory), mirror_options(command, MirrorStart::Replicas),
                             command.peers.timeout());
  if (!brought.ok()) {
    if (brought.code() != ErrorCode::Busy) {
      ::unlink(half.c_str());
      (void)mirror::LocalStateFile(half).remove();
    }
    return refuse(brought.error(), command.format);
  }
  const auto length = give_name(half, local, bytes);
  if (!length.ok()) return refuse(length.error(), command.format);
  const std::string what = fmt::format("restored {} to {}\n", format_bytes(*length), command.local);
  const ExitStatus status = report(*brought, what, command.format);
  if (status == ExitStatus::Ok || !brought->ended.ok()) return status;
  print_warning("the file is whole, and a replica is still away: resync when it is back");
  return ExitStatus::Ok;
}

Option add_writer(Command command, const std::shared_ptr<ResyncCommand>& options,
                  const std::string& local) {
  add_peers_option(command, options->peers);
  add_pool_option(command, options->peers);
  add_transport_option(command, options->peers);
  add_timeout_option(command, options->peers);
  const Option file =
      command.add_option("--local", options->local, local).option_text("FILE").group("Writer");
  command
      .add_flag("--take-over", options->take_over,
                "End the session of another writer that is still there")
      .group("Writer");
  command
      .add_flag("--without-missing", options->without_missing,
                "Go on although too few replicas are there to be sure which is the newest: those "
                "that are away have nothing newer")
      .group("Writer");
  add_format_option(command, options->format);
  return file;
}

}  // namespace

ordered_json replicas_json(const MirrorStatus& status) {
  ordered_json replicas = ordered_json::array();
  for (const MirrorReplicaStatus& each : status.replicas) {
    replicas.push_back({{"replica", each.peer},
                        {"pool_uuid", each.pool_uuid},
                        {"state", to_string(each.state)},
                        {"reason", each.down_reason},
                        {"copied_bytes", each.copied_bytes},
                        {"to_copy_bytes", each.dirty_bytes}});
  }
  return replicas;
}

ExitStatus refuse(const Error& error, Format format) {
  if (format == Format::Json) {
    print(json_text(ordered_json{{"format", 1},
                                 {"refused",
                                  {{"code", to_string(error.code)}, {"message", error.message}}}},
                    2) +
          "\n");
  }
  print_error(error);
  return error.code == ErrorCode::Corrupt ? ExitStatus::Damaged : ExitStatus::Failed;
}

void add_mirror_resync(Command mirror) {
  const auto resync = std::make_shared<ResyncCommand>();
  const Command syncing = mirror.add_subcommand(
      "resync", "Become the mirror's writer, and bring every replica to equal");
  add_writer(syncing, resync,
             "The local memory counts, as when the program opens it (the newest replica)");
  add_examples(
      syncing,
      "  perdure mirror resync --peers a:7470,b:7470 --pool tree --local /data/tree\n"
      "  perdure mirror resync --peers a:7470,b:7470 --pool tree\n"
      "Only pages that differ are copied. Exit status: 0 all replicas have everything, 1 it\n"
      "could not be opened, or a replica is still away, 4 what a pool says is damaged.");
  run_with(syncing, [resync] { return run_resync(*resync); });

  const auto restore = std::make_shared<ResyncCommand>();
  const Command restoring = mirror.add_subcommand(
      "restore", "Bring a lost local file back from the newest replica, byte for byte");
  add_writer(restoring, restore, "The file; it gets its name when it is whole").required();
  restoring
      .add_flag("--overwrite", restore->overwrite, "Replace the file that is there by the restored")
      .group("Writer");
  add_examples(restoring,
               "  perdure mirror restore --peers a:7470,b:7470 --pool tree --local /data/tree\n"
               "A file of `perdure mirror run` is as long as it was mirrored last; if all was\n"
               "written by a build that kept no length, it is as long as the mirror, with zeros\n"
               "behind its end (truncate).\n"
               "Exit status: 0 the file is whole, 1 it could not be restored and the file is as\n"
               "it was, 4 what a pool says is damaged.");
  run_with(restoring, [restore] { return run_restore(*restore); });
}

}  // namespace perdure::app
