// `perdure mirror run`: a program that knows nothing of mirrors, whose mapped files have them.
#include "mirror_run_command.h"
#include "commands.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/try.h"
#include "interposed_program.h"
#include "mirror_channel.h"
#include "mirror_commands.h"
#include "mirrored_file.h"
#include "output.h"
#include "peer_options.h"
#include "testing/temporary_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace perdure::app {
namespace {

constexpr const char* kInlineFlushes =
    "flushes that a program has inline (CLWB) are not seen, and not mirrored";

/// FILE=POOL of the command line.
struct MapOption {
  std::string path;
  std::string pool;
};

struct MirrorRunOptions {
  PeerOptions peers;
  std::vector<std::string> maps;
  std::vector<std::string> program;
  std::string scratch = "/var/tmp";
  std::uint64_t quorum = 0;
  bool take_over = false;
  bool without_missing = false;
  Format format = Format::Text;
};

/// What came of a run.
struct Ran {
  test::ChildEnd end;
  nlohmann::ordered_json files = nlohmann::ordered_json::array();
  std::uint64_t flushes = 0;
  std::uint64_t drains = 0;
  Result<void> mirrored;  // why the copies are not whole
};

Result<MapOption> parse_map(const std::string& word) {
  const std::size_t equals = word.rfind('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == word.size()) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("'{}' is not FILE=POOL, as in /mnt/pmem/tree=tree", word)};
  }
  std::error_code error;
  const auto path = std::filesystem::absolute(word.substr(0, equals), error);
  if (path.string().size() >= interpose::kChannelPathMax) {
    return Error{ErrorCode::InvalidArgument, fmt::format("the path '{}' is too long", word)};
  }
  return MapOption{path.string(), word.substr(equals + 1)};
}

Result<std::vector<MapOption>> parse_maps(const std::vector<std::string>& words) {
  std::vector<MapOption> maps;
  for (const std::string& word : words) {
    PERDURE_TRY(map, parse_map(word));
    for (const MapOption& other : maps) {
      if (other.path == map.path || other.pool == map.pool) {
        return Error{ErrorCode::InvalidArgument,
                     fmt::format("--map {}: its file or its pool is that of another --map", word)};
      }
    }
    if (!std::filesystem::is_directory(std::filesystem::path(map.path).parent_path())) {
      return Error{ErrorCode::NotFound,
                   fmt::format("no program can make '{}': its directory is not there", map.path)};
    }
    maps.push_back(std::move(map));
  }
  if (maps.size() > interpose::kMirroredMax) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("at most {} files can be mirrored at once", interpose::kMirroredMax)};
  }
  return maps;
}

MirrorOptions mirror_options(const MirrorRunOptions& options, const MapOption& map) {
  MirrorOptions mirror;
  mirror.peers = options.peers.peers;
  mirror.pool = map.pool;
  mirror.quorum = options.quorum;
  mirror.transport = options.peers.transport;
  mirror.rnic.name = options.peers.rnic;
  mirror.take_over = options.take_over;
  mirror.without_missing = options.without_missing;
  mirror.peer_timeout = options.peers.timeout();
  return mirror;
}

/// Says on standard error, where the program's own output is not, what came of it.
/// Errors  what keeps the copies from being whole.
Result<void> close_files(MirrorChannel::Files& files, const MirrorChannel& channel,
                         nlohmann::ordered_json& told) {
  std::optional<Error> first;
  bool any_mapped = false;
  for (const auto& file : files) {
    file->let_replicas_catch_up();
    const MirrorStatus status = file->status();
    const auto closed = file->close();
    if (!closed.ok() && !first) first = closed.error();
    any_mapped = any_mapped || file->was_mapped();
    told.push_back({{"file", file->path()},
                    {"pool", file->pool()},
                    {"mapped", file->was_mapped()},
                    {"epoch", status.epoch.value},
                    {"quorum", status.quorum},
                    {"in_sync", status.in_sync},
                    {"of", status.replicas.size()},
                    {"replicas", replicas_json(status)}});
    print_warning(fmt::format("'{}' is mirrored in pool '{}': {} of {} in sync{}", file->path(),
                              file->pool(), status.in_sync,
                              counted(status.replicas.size(), "replica"),
                              file->was_mapped() ? "" : "; the program did not map it"));
  }
  if (first) return *first;
  if (!any_mapped) {
    return Error{ErrorCode::InvalidArgument,
                 "nothing was mirrored: the program mapped none of the files, shared and opened "
                 "for writing"};
  }
  if (channel.flushes() == 0) {
    return Error{ErrorCode::InvalidArgument,
                 fmt::format("nothing was mirrored while the program ran: it made nothing durable "
                             "by libpmem, libpmem2, libpmemobj or msync; {}",
                             kInlineFlushes)};
  }
  return {};
}

Result<Ran> run_mirrored(const MirrorRunOptions& options, const std::vector<MapOption>& maps) {
  PERDURE_TRY(program, find_interposable(options.program.front()));
  MirrorChannel::Files files;
  for (const MapOption& map : maps) {
    PERDURE_TRY(file, MirroredFile::open(map.path, mirror_options(options, map)));
    files.push_back(std::move(file));
  }
  PERDURE_TRY(directory, test::TemporaryDirectory::make(options.scratch));
  const std::string path = directory.path() + "/channel";
  PERDURE_TRY(channel, MirrorChannel::create(path, files));
  InterposedRun run;
  run.command = options.program;
  run.command.front() = program;
  run.backend = "mirror:" + path;
  run.output_to_error = options.format == Format::Json;
  Ran ran;
  PERDURE_TRY(end, run_interposed(run));
  ran.end = end;
  // What its processes still wait for, nobody needs; without a quorum it would be waited for.
  for (const auto& file : files) file->give_up();
  ran.mirrored = close_files(files, *channel, ran.files);
  ran.flushes = channel->flushes();
  ran.drains = channel->drains();
  return ran;
}

nlohmann::ordered_json run_json(const Ran& ran) {
  nlohmann::ordered_json json{{"format", 1},
                              {"program", {{"status", ran.end.status}, {"signal", ran.end.signal}}},
                              {"flushes", ran.flushes},
                              {"drains", ran.drains},
                              {"files", ran.files}};
  if (!ran.mirrored.ok()) {
    const Error& error = ran.mirrored.error();
    json["error"] = {{"code", to_string(error.code)}, {"message", error.message}};
  }
  json["ok"] = ran.mirrored.ok() && ran.end.status == 0;
  return json;
}

ExitStatus run_mirror_run(const MirrorRunOptions& options) {
  const auto maps = parse_maps(options.maps);
  if (!maps.ok()) {
    const ExitStatus refused = refuse(maps.error(), options.format);
    return maps.code() == ErrorCode::InvalidArgument ? ExitStatus::Usage : refused;
  }
  const auto ran = run_mirrored(options, *maps);
  if (!ran.ok()) return refuse(ran.error(), options.format);
  if (options.format == Format::Json) print(json_text(run_json(*ran), 2) + "\n");
  if (!ran->mirrored.ok()) return fail(ran->mirrored.error());
  if (ran->end.status == 0) return ExitStatus::Ok;
  print_error(
      {ErrorCode::SystemError,
       fmt::format("'{}' ended {}; its replicas have what it had made durable, and may have "
                   "what it stored since or not",
                   options.program.front(), describe(ran->end))});
  return ExitStatus::Failed;
}

}  // namespace

void add_mirror_run(Command mirror) {
  const auto options = std::make_shared<MirrorRunOptions>();
  const Command command = mirror.add_subcommand(
      "run", "Run a program on libpmem, libpmem2 or libpmemobj with its files mirrored");
  command.add_option("program", options->program, "The program and its arguments, after --")
      .required()
      .option_text("PROGRAM ARGUMENTS");
  command
      .add_option("--map", options->maps,
                  "A file that it maps, and its pool on every peer; again for more")
      .required()
      .one_word_each()
      .option_text("FILE=POOL");
  add_peers_option(command, options->peers).one_word_each();
  command
      .add_option("--quorum", options->quorum,
                  "Replicas that must be in sync (those of the mirror)")
      .option_text("N");
  command.add_flag("--take-over", options->take_over, "End the session of another writer");
  command.add_flag("--without-missing", options->without_missing,
                   "Also while peers are away that may be newer");
  add_transport_option(command, options->peers);
  add_timeout_option(command, options->peers);
  add_format_option(command, options->format);
  command.add_option("--scratch", options->scratch, "Where the channel to the program is")
      .option_text("DIR")
      .capture_default();
  add_examples(
      command,
      "  perdure mirror run --peers a:7470,b:7470 --map /mnt/pmem/tree=tree -- ./tree "
      "/mnt/pmem/tree\n"
      "Each drain and msync of the program returns when its ranges are durable here and on the "
      "replicas.\nInline flushes (CLWB) are not seen. docs/mirror-run.md describes it. Exit "
      "status: 0 "
      "the program ended well\nand is mirrored, 1 it did not, or nothing was, 2 wrong command "
      "line.");
  run_with(command, [options] { return run_mirror_run(*options); });
}

}  // namespace perdure::app
