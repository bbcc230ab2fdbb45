// Opening and reading replicas.
#include "replica_survey.h"

#include "core/assert.h"
#include "core/try.h"
#include "pmem/pool.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace perdure::app {
namespace {

/// The exported part of a pool's file, read with pread.
class FileLogBytes final : public ByteSource {
 public:
  static Result<std::unique_ptr<ByteSource>> open(const std::string& path) {
    PERDURE_TRY(info, pmem::Pool::inspect(path));
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return system_error("can not open", path);
    return std::unique_ptr<ByteSource>(new FileLogBytes(path, descriptor, info.header.data_bytes));
  }
  ~FileLogBytes() override { ::close(descriptor_); }
  FileLogBytes(const FileLogBytes&) = delete;
  FileLogBytes& operator=(const FileLogBytes&) = delete;

  std::uint64_t size() const override { return size_; }

  Result<void> read(std::uint64_t at, std::span<std::byte> to) override {
    while (!to.empty()) {
      const ssize_t got = ::pread(descriptor_, to.data(), to.size(),
                                  static_cast<off_t>(pmem::kPoolDataOffset + at));
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return system_error("can not read", path_);
      if (got == 0) {
        return Error{ErrorCode::Corrupt,
                     fmt::format("'{}' ends before the pool does: it was truncated", path_)};
      }
      to = to.subspan(static_cast<std::size_t>(got));
      at += static_cast<std::uint64_t>(got);
    }
    return {};
  }

 private:
  FileLogBytes(std::string path, int descriptor, std::uint64_t size)
      : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

  static Error system_error(std::string_view what, const std::string& path) {
    return Error{ErrorCode::SystemError,
                 fmt::format("{} '{}': {}", what, path, std::generic_category().message(errno))};
  }

  const std::string path_;
  const int descriptor_;
  const std::uint64_t size_;
};

std::uint64_t log_id_of(const SurveyedReplica& replica) {
  return replica.survey->report->start.anchor->log_id;
}

}  // namespace

void ReplicaSurvey::open_peers(const PeerOptions& options) {
  (void)dialer_.use_rnic({.name = options.rnic});  // a name alone is always taken
  for (const std::string& address : options.peers) {
    SurveyedReplica& replica = replicas_.emplace_back();
    replica.name = address;
    auto peer = dialer_.dial(address, options.transport);
    if (!peer.ok()) {
      replica.error = peer.error();
      continue;
    }
    peers_.push_back(std::move(peer).value());
    auto bytes = client::RemoteBytes::open(*peers_.back(), options.pool, options.timeout(),
                                           Clock::monotonic());
    if (!bytes.ok()) {
      replica.error = bytes.error();
      continue;
    }
    const client::Session& session = (*bytes)->session();
    replica.pool_uuid = session.pool.uuid;
    replica.profile = session.pool.profile;
    replica.message_bytes_max = session.message_bytes_max;
    replica.epoch = session.pool.epoch;
    replica.writer_present = session.pool.writer_present;
    replica.writer_name = session.pool.writer_name;
    replica.bytes = std::move(bytes).value();
  }
}

std::optional<Error> ReplicaSurvey::missing_pool() const {
  const auto lacks = [](const SurveyedReplica& replica) {
    return replica.error && replica.error->code == ErrorCode::NotFound;
  };
  if (replicas_.empty() || !std::all_of(replicas_.begin(), replicas_.end(), lacks)) return {};
  return replicas_.front().error;
}

void ReplicaSurvey::open_file(const std::string& path) {
  SurveyedReplica& replica = replicas_.emplace_back();
  replica.name = path;
  auto bytes = FileLogBytes::open(path);
  if (!bytes.ok()) {
    replica.error = bytes.error();
    return;
  }
  replica.bytes = std::move(bytes).value();
  const auto info = pmem::Pool::inspect(path);
  if (info.ok()) replica.pool_uuid = pmem::to_string(info->header.uuid);
}

void ReplicaSurvey::read_all() {
  StatusLine line;
  for (SurveyedReplica& replica : replicas_) {
    if (!replica.bytes) continue;
    line.show(fmt::format("reading {}", replica.name));
    auto found = log::survey(*replica.bytes);
    if (found.ok()) {
      replica.survey = std::move(found).value();
    } else {
      replica.error = found.error();
    }
  }
}

void ReplicaSurvey::read_starts() {
  for (SurveyedReplica& replica : replicas_) {
    if (!replica.bytes) continue;
    auto start = log::read_start(*replica.bytes);
    log::Survey found;
    if (!start.ok() && start.code() == ErrorCode::Corrupt) found.damage = start.error();
    if (start.ok() && start->anchor) found.report.emplace().start = *start;
    if (start.ok() || found.damage) {
      replica.survey = std::move(found);
    } else {
      replica.error = start.error();
    }
  }
}

std::optional<std::size_t> ReplicaSurvey::best() const {
  std::vector<std::optional<log::Survey>> surveys;
  for (const SurveyedReplica& replica : replicas_) surveys.push_back(replica.survey);
  return log::choose_history(surveys);
}

Result<void> ReplicaSurvey::require_one_log(const std::string& pool) const {
  const SurveyedReplica* first = nullptr;
  std::string alike;
  std::string others;
  for (const SurveyedReplica& replica : replicas_) {
    const bool has_log = replica.survey && replica.survey->report;
    if (!has_log || replica.survey->state().marks.creating) continue;  // may never have begun
    if (first == nullptr) first = &replica;
    std::string& names = log_id_of(replica) == log_id_of(*first) ? alike : others;
    names += (names.empty() ? "" : ", ") + replica.name;
  }
  if (others.empty()) return {};
  return Error{
      ErrorCode::InvalidArgument,
      fmt::format(
          "pool '{}' on {} holds another log than on {}; name the peers of one log (`perdure "
          "log verify` says which log each holds), and where a pool is left of a log that "
          "was deleted, delete it too (`perdure pool delete`)",
          pool, others, alike)};
}

log::Configurations ReplicaSurvey::configurations() const {
  const auto from = best();
  if (!from) return {};
  log::Statements statements;
  for (const SurveyedReplica& replica : replicas_) {
    if (!replica.survey || !replica.survey->report) continue;
    if (log_id_of(replica) != log_id_of(replicas_[*from])) continue;
    statements.all.push_back(log::statement_of(*replica.survey));
  }
  const log::Configuration known = log::newest_known(statements, log::newest_stated(statements));
  return log::in_play_by(known, log::statement_of(*replicas_[*from].survey));
}

bool ReplicaSurvey::is_member(const SurveyedReplica& replica) const {
  const auto pool = log::parse_uuid(replica.pool_uuid);
  const log::Configurations in_play = configurations();
  return !pool || std::any_of(in_play.begin(), in_play.end(),
                              [&](const log::Configuration& each) { return each.has(*pool); });
}

log::Choice ReplicaSurvey::choice() const {
  const log::Configurations in_play = configurations();
  PERDURE_ASSERT(!in_play.empty());
  std::vector<log::Candidate> candidates;
  for (const SurveyedReplica& replica : replicas_) {
    const auto pool = log::parse_uuid(replica.pool_uuid);
    if (!pool || !replica.survey) continue;
    candidates.push_back(log::candidate_of(*pool, *replica.survey, log_id_of(replicas_[*best()])));
  }
  return log::choose(candidates, in_play);
}

std::vector<std::string> ReplicaSurvey::not_asked() const {
  std::vector<std::string> names;
  for (const log::Configuration& configuration : configurations()) {
    for (const log::Member& member : configuration.members) {
      const std::string uuid = pmem::to_string(member.pool);
      // One that does not answer is known by its address alone.
      const bool asked =
          std::any_of(replicas_.begin(), replicas_.end(), [&](const SurveyedReplica& each) {
            return each.pool_uuid == uuid || (each.pool_uuid.empty() && each.name == member.name);
          });
      const bool named = std::find(names.begin(), names.end(), member.name) != names.end();
      if (!asked && !named) names.push_back(member.name);
    }
  }
  return names;
}

}  // namespace perdure::app
