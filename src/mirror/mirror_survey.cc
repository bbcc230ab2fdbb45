#include "mirror/mirror_survey.h"

#include <algorithm>
#include <cstring>

#include "core/try.h"
#include "mirror/dirty_pages.h"

namespace perdure::mirror {
namespace {

void hear(SurveyedReplica& replica, client::Peer& peer, const std::string& pool,
          Nanoseconds timeout, const Clock& clock) {
  const auto described = peer.describe(pool, Deadline(clock, timeout));
  if (!described.ok()) {
    replica.error = described.error();
    return;
  }
  replica.pool_uuid = described->uuid;
  if (described->writer_present) replica.writer_name = described->writer_name;
  auto bytes = client::RemoteBytes::open(peer, pool, timeout, clock);
  if (!bytes.ok()) {
    replica.error = bytes.error();
    return;
  }
  std::vector<std::byte> beginning(kDataAt);
  if ((*bytes)->size() < kDataAt) {
    replica.error = Error{ErrorCode::InvalidArgument, "its pool is too small for a mirror"};
    replica.verdict = ReplicaVerdict::Damaged;
    return;
  }
  if (auto read = (*bytes)->read(0, beginning); !read.ok()) {
    replica.error = read.error();
    return;
  }
  auto start = decode_start(beginning);
  if (!start.ok()) {
    replica.error = start.error();
    replica.verdict = ReplicaVerdict::Damaged;
    return;
  }
  replica.start = *start;
  replica.bytes = std::move(*bytes);
}

ReplicaVerdict judge(const SurveyedReplica& replica, const Generation& newest) {
  if (replica.error) return replica.verdict;
  if (!replica.start.header) return ReplicaVerdict::Blank;
  if (!replica.start.state) return ReplicaVerdict::Damaged;
  if (!replica.start.state->complete) return ReplicaVerdict::Incomplete;
  return replica.start.state->generation == newest ? ReplicaVerdict::Newest
                                                   : ReplicaVerdict::Behind;
}

}  // namespace

std::string_view to_string(ReplicaVerdict verdict) {
  switch (verdict) {
    case ReplicaVerdict::Newest: return "newest";
    case ReplicaVerdict::Behind: return "behind";
    case ReplicaVerdict::Incomplete: return "incomplete";
    case ReplicaVerdict::Blank: return "blank";
    case ReplicaVerdict::Damaged: return "damaged";
    case ReplicaVerdict::Unreachable: return "unreachable";
  }
  return "?";
}

std::size_t MirrorSurvey::count(ReplicaVerdict verdict) const {
  return static_cast<std::size_t>(
      std::count_if(replicas.begin(), replicas.end(),
                    [&](const SurveyedReplica& each) { return each.verdict == verdict; }));
}

bool MirrorSurvey::can_be_restored() const {
  if (!header) return false;
  const std::size_t heard = count(ReplicaVerdict::Newest) + count(ReplicaVerdict::Behind) +
                            count(ReplicaVerdict::Incomplete);
  return heard >= needed(header->replicas, header->quorum) && count(ReplicaVerdict::Newest) != 0;
}

MirrorSurvey survey(std::vector<std::unique_ptr<client::Peer>>& peers, const std::string& pool,
                    Nanoseconds timeout, const Clock& clock) {
  MirrorSurvey survey;
  std::vector<std::optional<ReplicaState>> heard;
  for (const auto& peer : peers) {
    SurveyedReplica& replica = survey.replicas.emplace_back();
    replica.peer = peer->name();
    hear(replica, *peer, pool, timeout, clock);
    const bool is_replica = !replica.error && replica.start.header;
    if (is_replica && !survey.header) survey.header = replica.start.header;
    if (is_replica && *replica.start.header != *survey.header) {
      replica.error = Error{ErrorCode::InvalidArgument, "its pool holds another mirror"};
      replica.verdict = ReplicaVerdict::Damaged;
    }
    heard.push_back(is_replica && !replica.error ? replica.start.state : std::nullopt);
  }
  survey.newest = find_sources(heard).newest;
  for (SurveyedReplica& replica : survey.replicas) replica.verdict = judge(replica, survey.newest);
  return survey;
}

Result<std::vector<Difference>> compare_newest(MirrorSurvey& survey,
                                               const std::function<void(std::uint64_t)>& progress) {
  std::vector<std::size_t> newest;
  for (std::size_t index = 0; index < survey.replicas.size(); ++index) {
    if (survey.replicas[index].verdict == ReplicaVerdict::Newest) newest.push_back(index);
  }
  if (newest.empty()) {
    return Error{ErrorCode::InvalidArgument, "no replica that was heard has everything"};
  }
  constexpr std::uint64_t kPieceBytes = 64 * kPageBytes;
  std::vector<Difference> found;
  for (const std::size_t index : newest) found.push_back({index, 0, 0});
  std::vector<std::byte> first(kPieceBytes);
  std::vector<std::byte> other(kPieceBytes);
  for (std::uint64_t at = 0; at < survey.header->bytes; at += kPieceBytes) {
    const std::uint64_t length = std::min(kPieceBytes, survey.header->bytes - at);
    for (Difference& each : found) {
      auto& into = each.replica == newest.front() ? first : other;
      PERDURE_TRY_VOID(survey.replicas[each.replica].bytes->read(
          kDataAt + at, std::span(into).first(static_cast<std::size_t>(length))));
      if (each.replica == newest.front()) continue;
      for (std::uint64_t page = 0; page < length; page += kPageBytes) {
        const auto bytes = static_cast<std::size_t>(std::min(kPageBytes, length - page));
        if (std::memcmp(first.data() + page, other.data() + page, bytes) == 0) continue;
        if (each.pages++ == 0) each.first_at = at + page;
      }
    }
    progress(at + length);
  }
  return found;
}

}  // namespace perdure::mirror
