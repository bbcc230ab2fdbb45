// `perdure pool`: creates, lists, describes, opens, closes, fences and deletes pools on peers, all
// of them at once.
#include <perdure/pool.h>

#include "client/http_peer.h"
#include "commands.h"
#include "core/byte_text.h"
#include "core/json.h"
#include "core/required_domain.h"
#include "core/try.h"
#include "missing_pool.h"
#include "output.h"
#include "peer_options.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace perdure::app {
namespace {

using nlohmann::ordered_json;

struct PoolCommand {
  PeerOptions peers;
  Format format = Format::Text;
  PoolOptions made;  // create: without the name
  std::uint32_t epoch = 0;
  double wait_s = 0;
};

/// What one peer answered.
using Answer = Result<std::vector<PoolDescription>>;
using AskPeer = std::function<Answer(const std::string& peer, std::chrono::milliseconds within)>;

constexpr int kAskAgainMs = 50;

std::string yes_no(bool value) { return value ? "yes" : "no"; }

std::string describe_text(const PoolDescription& pool) {
  std::string text =
      fmt::format("  pool            {}\n  state           {}{}\n", pool.name,
                  to_string(pool.state), pool.reason.empty() ? "" : ": " + pool.reason);
  if (pool.state != control::PoolStatus::Open) return text;
  text += fmt::format("  uuid            {}\n  size            {} ({} bytes)\n", pool.uuid,
                      format_bytes(pool.bytes), pool.bytes);
  text += fmt::format("  profile         {}\n  evidence        {}\n", describe(pool.profile),
                      pool.evidence);
  text += fmt::format("  epoch           {}\n", pool.epoch.value);
  if (pool.writer != 0) {
    text += fmt::format("  last writer     {}, has a session: {}\n", pool.writer_name,
                        yes_no(pool.writer_present));
  }
  return text;
}

std::string list_line(const PoolDescription& pool) {
  if (pool.state != control::PoolStatus::Open) {
    return fmt::format("  {:<20} {}: {}\n", pool.name, to_string(pool.state), pool.reason);
  }
  return fmt::format("  {:<20} {:>10}  {:<44} epoch {}{}\n", pool.name, format_bytes(pool.bytes),
                     describe(pool.profile), pool.epoch.value,
                     (pool.writer_present ? ", has a writer" : "") +
                         (pool.reason.empty() ? "" : "; " + pool.reason));
}

ordered_json pool_json(const PoolDescription& pool) {
  ordered_json json{{"pool", pool.name}, {"state", to_string(pool.state)}};
  if (!pool.reason.empty()) json["reason"] = pool.reason;
  if (pool.state != control::PoolStatus::Open) return json;
  json["uuid"] = pool.uuid;
  json["bytes"] = pool.bytes;
  json["profile"] = {{"domain", to_string(pool.profile.domain)},
                     {"ddio", to_string(pool.profile.ddio)},
                     {"receive_buffers", to_string(pool.profile.receive_buffers)},
                     {"transport", to_string(pool.profile.transport)},
                     {"write_order", to_string(pool.profile.write_order)},
                     {"dma_dirties", to_string(pool.profile.dma_dirties)}};
  json["evidence"] = pool.evidence;
  json["epoch"] = pool.epoch.value;
  json["writer_name"] = pool.writer_name;
  json["writer_present"] = pool.writer_present;
  return json;
}

/// `said`: messages of errors that need not be said again.
void print_answers(const PoolCommand& command, const std::vector<Answer>& answers, bool brief,
                   std::set<std::string> said = {}) {
  ordered_json peers = ordered_json::array();
  for (std::size_t index = 0; index < answers.size(); ++index) {
    const std::string& name = command.peers.peers[index];
    const Answer& answer = answers[index];
    ordered_json json{{"peer", name}};
    if (!answer.ok()) {
      // What is wrong with the request itself is said once.
      if (said.insert(answer.error().message).second) print_error(answer.error());
      json["error"] = {{"code", to_string(answer.code())}, {"message", answer.error().message}};
      peers.push_back(std::move(json));
      continue;
    }
    json["pools"] = ordered_json::array();
    std::string text = fmt::format("{}\n", name);
    for (const PoolDescription& pool : *answer) {
      text += brief ? list_line(pool) : describe_text(pool);
      json["pools"].push_back(pool_json(pool));
    }
    if (answer->empty()) text += "  no pools\n";
    if (command.format == Format::Text) print(text);
    peers.push_back(std::move(json));
  }
  if (command.format == Format::Json) {
    print(json_text(ordered_json{{"format", 1}, {"peers", std::move(peers)}}, 2) + "\n");
  }
}

/// Asks one peer; while it does not answer, again for as long as the user wants to wait.
Answer ask_one(const PoolCommand& command, const std::string& address, const AskPeer& ask) {
  const Deadline patience =
      Deadline::after(Nanoseconds(static_cast<std::int64_t>(command.wait_s * 1e9)));
  while (true) {
    Answer answer = ask(address, command.peers.timeout());
    if (answer.ok() || answer.code() != ErrorCode::Disconnected || patience.passed()) {
      return answer;
    }
    (void)::poll(nullptr, 0, kAskAgainMs);
  }
}

/// Asks every peer, also after one of them failed: what can be done is done, and the rest said.
ExitStatus ask_all(const PoolCommand& command, bool brief, const AskPeer& ask) {
  std::vector<Answer> answers;
  bool all = true;
  for (const std::string& address : command.peers.peers) {
    answers.push_back(ask_one(command, address, ask));
    all = all && answers.back().ok();
  }
  const bool none_has_it = std::all_of(answers.begin(), answers.end(), [](const Answer& answer) {
    return !answer.ok() && answer.code() == ErrorCode::NotFound;
  });
  if (none_has_it && command.format == Format::Text) {
    return fail(explain_missing_pool(answers.front().error(), command.peers));
  }
  print_answers(command, answers, brief);
  return all ? ExitStatus::Ok : ExitStatus::Failed;
}

Answer one(Result<PoolDescription> pool) {
  if (!pool.ok()) return pool.error();
  return std::vector<PoolDescription>{std::move(pool).value()};
}

ExitStatus run_create(const PoolCommand& command) {
  PoolOptions options = command.made;
  options.name = command.peers.pool;
  return ask_all(command, true, [&options](const std::string& peer, auto within) {
    return one(create_pool(peer, options, within));
  });
}

ExitStatus run_list(const PoolCommand& command) {
  return ask_all(command, true,
                 [](const std::string& peer, auto within) { return list_pools(peer, within); });
}

ExitStatus run_describe(const PoolCommand& command) {
  return ask_all(command, false, [&command](const std::string& peer, auto within) {
    return one(describe_pool(peer, command.peers.pool, within));
  });
}

ExitStatus run_fence(const PoolCommand& command) {
  return ask_all(command, true, [&command](const std::string& address, auto within) -> Answer {
    const Deadline deadline = Deadline::after(within);
    PERDURE_TRY(peer, client::HttpPeer::open(address, nullptr));  // no session, so no device
    PERDURE_TRY(now, peer->describe(command.peers.pool, deadline));
    const Epoch epoch{command.epoch != 0 ? command.epoch : now.epoch.value + 1};
    PERDURE_TRY_VOID(peer->fence(command.peers.pool, epoch, deadline));
    return one(peer->describe(command.peers.pool, deadline));
  });
}

ExitStatus run_close(const PoolCommand& command) {
  return ask_all(command, true, [&command](const std::string& peer, auto within) -> Answer {
    PERDURE_TRY_VOID(close_pool(peer, command.peers.pool, within));
    return one(describe_pool(peer, command.peers.pool, within));
  });
}

ExitStatus run_open(const PoolCommand& command) {
  return ask_all(command, true, [&command](const std::string& peer, auto within) {
    return one(open_pool(peer, command.peers.pool, within));
  });
}

/// The pool of each peer by its UUID, which is empty where what is there can not be read; nothing
/// where there is none.
using FoundPools = std::vector<std::optional<std::string>>;

/// The pool at one peer, if that would delete it now.
Answer find_deletable(const PoolCommand& command, const std::string& address,
                      std::chrono::milliseconds within) {
  const Deadline deadline = Deadline::after(within);
  PERDURE_TRY(peer, client::HttpPeer::open(address, nullptr));  // no session, so no device
  PERDURE_TRY(pool, peer->describe(command.peers.pool, deadline));
  if (pool.writer_present) {
    return Error{ErrorCode::Busy,
                 fmt::format("'{}' writes to pool '{}': end it first, or close the pool (perdure "
                             "pool close)",
                             pool.writer_name, pool.name)};
  }
  auto may_go = peer->check_deletion(pool.name, pool.uuid, deadline);
  const bool is_told = may_go.ok() || may_go.code() != ErrorCode::InvalidArgument;  // older daemons
  if (is_told) PERDURE_TRY_VOID(std::move(may_go));
  return one(std::move(pool));
}

/// Looks everywhere before anything goes: with some replicas deleted the others may be too few for
/// their log. Errors: one can not be asked, or would refuse.
Result<FoundPools> find_what_goes(const PoolCommand& command) {
  FoundPools pools;
  for (const std::string& address : command.peers.peers) {
    const Answer found = ask_one(command, address, [&](const std::string& peer, auto within) {
      return find_deletable(command, peer, within);
    });
    if (!found.ok() && found.code() != ErrorCode::NotFound) {
      return Error{
          found.code(),
          fmt::format(
              "{}: {}; nothing was deleted on any peer{}", address, found.error().message,
              found.code() == ErrorCode::Disconnected ? ": name only those that answer" : "")};
    }
    pools.push_back(found.ok() ? std::optional(found->front().uuid) : std::nullopt);
  }
  return pools;
}

/// What was found at one peer is gone from there afterwards, whoever deleted it.
Result<void> delete_found(const PoolCommand& command, const std::string& address,
                          const std::string& uuid) {
  const auto deleted = ask_one(command, address, [&](const std::string& peer, auto within) {
    const auto gone = delete_pool(peer, command.peers.pool, uuid, within);
    return gone.ok() ? Answer(std::vector<PoolDescription>{}) : Answer(gone.error());
  });
  if (deleted.ok()) return {};
  if (deleted.code() != ErrorCode::NotFound) return deleted.error();
  const auto there = describe_pool(address, command.peers.pool, command.peers.timeout());
  if (there.code() == ErrorCode::NotFound) return {};
  return deleted.error();  // another one of that name, made meanwhile
}

/// What is left at each peer is answered. Ends at the first that refuses.
ExitStatus run_delete(const PoolCommand& command) {
  const auto found = find_what_goes(command);
  if (!found.ok()) return fail(found.error());
  const std::string& pool = command.peers.pool;
  const bool any = std::any_of(found->begin(), found->end(), [](const auto& uuid) { return uuid; });
  const Error missing{ErrorCode::NotFound, fmt::format("no pool '{}' on any of the peers", pool)};
  if (!any && command.format == Format::Text) {
    return fail(explain_missing_pool(missing, command.peers));
  }
  std::vector<Answer> answers;
  std::set<std::string> said;
  std::string refused;
  for (std::size_t index = 0; index < found->size(); ++index) {
    const std::string& peer = command.peers.peers[index];
    const std::optional<std::string>& uuid = (*found)[index];
    if (!any) {
      answers.emplace_back(missing);
      continue;
    }
    if (uuid && !refused.empty()) {
      answers.emplace_back(Error{
          ErrorCode::Busy,
          fmt::format("{}: pool '{}' is not deleted, since {} refused", peer, pool, refused)});
      continue;
    }
    const auto deleted = uuid ? delete_found(command, peer, *uuid) : Result<void>();
    if (!deleted.ok()) refused = peer;
    Answer left = deleted.ok() ? list_pools(peer, command.peers.timeout()) : deleted.error();
    if (deleted.ok() && !left.ok()) {  // which is no reason to say that it is there still
      left = Error{left.code(), fmt::format("{}: pool '{}' is not there any more; which others are "
                                            "is not known: {}",
                                            peer, pool, left.error().message)};
      print_warning(left.error().message);
      said.insert(left.error().message);
    }
    answers.push_back(std::move(left));
  }
  print_answers(command, answers, true, std::move(said));
  return any && refused.empty() ? ExitStatus::Ok : ExitStatus::Failed;
}

struct PoolSubcommand {
  Command app;
  std::shared_ptr<PoolCommand> options;
};

/// What a command names. InWords: on the command line, whatever the environment or a profile say.
enum class Names { Peers, Pool, PoolInWords };

PoolSubcommand add_subcommand(Command pool, const std::string& name, const std::string& description,
                              Names names = Names::Pool) {
  PoolSubcommand added{pool.add_subcommand(name, description), std::make_shared<PoolCommand>()};
  const bool in_words = names == Names::PoolInWords;
  const Needed needed = in_words ? Needed::Never : Needed::Yes;
  add_peers_option(added.app, added.options->peers, needed).required(true);
  if (names != Names::Peers) {
    add_pool_option(added.app, added.options->peers, needed).required(true);
  }
  add_timeout_option(added.app, added.options->peers);
  added.app
      .add_option("--wait", added.options->wait_s,
                  "Ask a peer that is not there yet again, for this long (0)")
      .range(0.0, 3600.0)
      .option_text("SECONDS");
  add_format_option(added.app, added.options->format);
  return added;
}

Result<std::optional<ReceiveBuffers>> parse_buffers(std::string_view word) {
  PERDURE_TRY(buffers, parse_receive_buffers(word));
  return std::optional(buffers);
}

void add_create(Command pool) {
  const auto [app, options] = add_subcommand(pool, "create", "Make a pool on every peer");
  PoolOptions& made = options->made;
  add_word_option(app, "--bytes", made.bytes, parse_bytes, "Size of the pool, for example 64MiB",
                  "SIZE")
      .required();
  app.add_flag("--small", made.small, "Also where no log fits in");
  add_word_option(app, "--require-domain", made.required_domain, parse_required_domain,
                  "Refuse a peer where less than this survives a power failure (any will do)",
                  "page|dmp|mhp|wsp");
  add_word_option(app, "--receive-buffers", made.receive_buffers, parse_buffers,
                  "Where a writer's messages arrive (as the peer is configured)", "dram|pm");
  add_examples(app,
               "  perdure pool create --peers 127.0.0.1:7470,127.0.0.1:7480 --pool orders \\\n"
               "      --bytes 1GiB\n"
               "On persistent memory, or not at all:\n"
               "  perdure pool create --peers 127.0.0.1:7470 --pool orders --bytes 1GiB \\\n"
               "      --require-domain dmp");
  run_with(app, [options = options] { return run_create(*options); });
}

}  // namespace

void add_pool_commands(Command app) {
  const Command pool =
      app.add_subcommand("pool", "Create, list, describe, open, close, fence and delete pools");
  pool.require_subcommand();
  add_create(pool);
  const auto list = add_subcommand(pool, "list", "The pools of every peer", Names::Peers);
  add_examples(list.app, "  perdure pool list --peers 127.0.0.1:7470");
  run_with(list.app, [options = list.options] { return run_list(*options); });

  const auto describe = add_subcommand(pool, "describe", "All that peers know of a pool");
  add_examples(describe.app, "  perdure pool describe --peers 127.0.0.1:7470 --pool orders");
  run_with(describe.app, [options = describe.options] { return run_describe(*options); });

  const auto fence = add_subcommand(
      pool, "fence", "End the sessions of writers of a pool, and refuse their epoch for good");
  fence.app
      .add_option("--epoch", fence.options->epoch,
                  "Refuse writers below this epoch (one above the present)")
      .option_text("N");
  add_examples(fence.app, "  perdure pool fence --peers 127.0.0.1:7470 --pool orders");
  run_with(fence.app, [options = fence.options] { return run_fence(*options); });

  const auto closing = add_subcommand(
      pool, "close", "End all sessions with a pool and close it on every peer, until it is opened");
  add_examples(closing.app, "  perdure pool close --peers 127.0.0.1:7470 --pool orders");
  run_with(closing.app, [options = closing.options] { return run_close(*options); });

  const auto opening = add_subcommand(
      pool, "open", "Open a pool that was closed, or was not available, on every peer");
  add_examples(opening.app, "  perdure pool open --peers 127.0.0.1:7470 --pool orders");
  run_with(opening.app, [options = opening.options] { return run_open(*options); });

  const auto deletion = add_subcommand(
      pool, "delete", "Destroy a pool, and all that is in it, on every peer", Names::PoolInWords);
  add_examples(
      deletion.app,
      "  perdure pool delete --peers 127.0.0.1:7470 --pool orders\n"
      "Peers and pool are taken from the command line alone. All are asked first: where one does\n"
      "not answer, or would refuse (somebody has a session with the pool, another process has its\n"
      "file, it lies on a device), nothing is deleted on any. The first that refuses after all\n"
      "ends it; to repeat it deletes the rest.");
  run_with(deletion.app, [options = deletion.options] { return run_delete(*options); });
}

}  // namespace perdure::app
