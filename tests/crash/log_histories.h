// The judge of walks over accepted losses: what the log may be, given what was acknowledged and
// read. It knows nothing of how the log works, but what scan_log() finds on a medium.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/crash/log_cluster.h"

namespace perdure {

/// What is readable on one replica.
struct Content {
  std::uint64_t head = 0;  ///< index of the first record
  std::vector<std::string> records;
  std::vector<Lsn> committed;  ///< where those are that its committed word covers

  std::uint64_t end() const { return head + records.size(); }
};

/// Nothing where the replica is not readable.
inline std::optional<Content> content_of(Cluster& cluster, std::size_t index) {
  std::optional<Content> result;
  cluster.on_medium(index, [&](std::span<std::byte> bytes) {
    LocalBytes local(bytes);
    Content content;
    std::vector<std::pair<Lsn, std::uint64_t>> places;
    const auto report = log::scan_log(local, [&](const log::RecordView& record) {
      if (record.header.type != log::RecordType::Data) return;
      const std::size_t size = record.payload.size();
      content.records.emplace_back(reinterpret_cast<const char*>(record.payload.data()), size);
      places.emplace_back(record.header.lsn, record.header.lsn.value + log::record_bytes(size));
    });
    if (!report.ok()) return;
    content.head = report->start.state().head.index;
    const std::uint64_t word = report->start.committed_word.value_or(Lsn{}).value;
    for (const auto& [at, end] : places) {
      if (end < word) content.committed.push_back(at);
    }
    result = std::move(content);
  });
  return result;
}

/// Every history that the committed log may have. It is one, but between an acceptance of unknown
/// outcome and the next epoch, which decides. Asked for are
///   law 1  an epoch that begins without a named loss has one of them as its beginning;
///   law 3  an index has one record, among the acknowledged and for each reader;
///   law 4  a reader gets no record that contradicts all of them, skips none, and does not go on
///          over one that was replaced;
///   law 5  an older writer acknowledges nothing that the current epoch does not have.
/// Law 7 is for the walk to ask. Not asked for: what a loss that is named gives up, whether it was
/// needed, law 2, and whether a record that nobody acknowledged is kept.
class Histories {
 public:
  /// An epoch began whose history is `content`; with `loss` it names what it gives up.
  void begin(const Content& content, bool loss) {
    const History* matched = nullptr;
    for (const History& each : possible_) {
      if (is_beginning(each, content) && (matched == nullptr || each.size() > matched->size())) {
        matched = &each;
      }
    }
    if (matched == nullptr && !loss) {
      violate(
          fmt::format("an epoch begins with {} records and lacks committed ones", content.end()));
    }
    History now = with_trimmed(content, matched != nullptr ? *matched : possible_.front());
    for (const std::string& record : now) once_committed_.insert(record);
    possible_ = {std::move(now)};
  }
  /// What a replica has that may have been chosen, or not.
  void may_be(const Content& content) {
    possible_.push_back(with_trimmed(content, possible_.front()));
  }

  void acknowledged(std::uint64_t index, const std::string& record) {
    if (possible_.size() != 1) return violate("acknowledged before an epoch decided");
    History& history = possible_.front();
    if (history.size() <= index) history.resize(index + 1, kTrimmed);
    if (!fits(history[index], record)) violate("an index was acknowledged for two records");
    history[index] = record;
    once_committed_.insert(record);
  }
  void old_writer_acknowledged(std::uint64_t index, const std::string& record) {
    const History& history = possible_.front();
    if (possible_.size() == 1 && index < history.size() && history[index] == record) return;
    violate("an old writer acknowledged what the new epoch does not have");
  }

  void new_reader() { read_.clear(); }
  void read(std::uint64_t index, const std::string& record) {
    if (!read_.empty() && index != read_.rbegin()->first + 1) violate("skipped, or read twice");
    read_[index] = record;
    if (once_committed_.count(record) == 0) read_first(index, record);
    const History& history = possible_.front();
    const bool current =
        possible_.size() == 1 && index < history.size() && history[index] == record;
    if (current && !reader_agrees()) violate("a reader went on over what was replaced");
  }
  /// All that the reader got is in the one history.
  bool reader_agrees() const {
    return std::all_of(read_.begin(), read_.end(), [&](const auto& each) {
      const History& history = possible_.front();
      return each.first < history.size() && fits(history[each.first], each.second);
    });
  }
  bool reader_is_at_end() const {
    return !read_.empty() && read_.rbegin()->first + 1 >= possible_.front().size();
  }

  void violate(const std::string& text) {
    if (violation_.empty()) violation_ = text;
  }
  const std::string& violation() const { return violation_; }

 private:
  using History = std::vector<std::string>;
  /// Stands for a record of which only the index is known.
  static inline const std::string kTrimmed = "?";

  static bool fits(const std::string& known, const std::string& record) {
    return known == kTrimmed || known == record;
  }
  static bool is_beginning(const History& history, const Content& content) {
    if (history.size() > content.end()) return false;
    for (std::uint64_t index = content.head; index < history.size(); ++index) {
      if (!fits(history[index], content.records[index - content.head])) return false;
    }
    return true;
  }
  static History with_trimmed(const Content& content, History before) {
    before.resize(content.head, kTrimmed);
    before.insert(before.end(), content.records.begin(), content.records.end());
    return before;
  }
  /// Nobody acknowledged it, so it is the reader who says that it is committed.
  void read_first(std::uint64_t index, const std::string& record) {
    const bool possible = std::any_of(possible_.begin(), possible_.end(), [&](const auto& each) {
      return index >= each.size() || fits(each[index], record);
    });
    if (!possible) return violate("a reader got what is not committed");
    if (possible_.size() > 1 || possible_.front().size() != index) return;
    possible_.front().push_back(record);
    once_committed_.insert(record);
  }

  std::vector<History> possible_{History{}};
  std::set<std::string> once_committed_;
  std::map<std::uint64_t, std::string> read_;
  std::string violation_;
};

}  // namespace perdure
