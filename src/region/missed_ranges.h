// MissedRanges: which bytes of a region a replica lacks, while it is away and while they are
// copied.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace perdure::region {

/// Bytes of a region.
struct Extent {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  bool overlaps(const Extent& other) const { return begin < other.end && other.begin < end; }
};

/// Never less than what was added and not taken out; more where there would be too many pieces.
/// Threads: one caller at a time.
class MissedRanges {
 public:
  static constexpr std::size_t kPiecesMax = 4096;

  /// So many are remembered apart from each other.
  explicit MissedRanges(std::size_t pieces_max) : pieces_max_(pieces_max) {}
  MissedRanges() : MissedRanges(kPiecesMax) {}

  void add(Extent extent) {
    auto next = pieces_.upper_bound(extent.begin);
    if (next != pieces_.begin()) {
      const auto before = std::prev(next);
      if (before->second >= extent.begin) {
        extent.begin = before->first;
        next = before;
      }
    }
    while (next != pieces_.end() && next->first <= extent.end) {
      if (next->second > extent.end) extent.end = next->second;
      bytes_ -= next->second - next->first;
      next = pieces_.erase(next);
    }
    pieces_.emplace(extent.begin, extent.end);
    bytes_ += extent.end - extent.begin;
    if (pieces_.size() > pieces_max_) join_neighbours();
  }

  /// It need not be copied any more. False: it is kept, since that would be too many pieces.
  bool remove(Extent extent) {
    auto piece = pieces_.upper_bound(extent.begin);
    if (piece != pieces_.begin()) --piece;
    while (piece != pieces_.end() && piece->first < extent.end) {
      const Extent held{piece->first, piece->second};
      if (!held.overlaps(extent)) {
        ++piece;
        continue;
      }
      const bool splits = held.begin < extent.begin && extent.end < held.end;
      if (splits && pieces_.size() >= pieces_max_) return false;
      bytes_ -= held.end - held.begin;
      piece = pieces_.erase(piece);
      if (held.begin < extent.begin) insert({held.begin, extent.begin});
      if (extent.end < held.end) insert({extent.end, held.end});
    }
    return true;
  }

  /// The first bytes of it, at most so many, that are not in `others`.
  std::optional<Extent> first_outside(const MissedRanges& others, std::uint64_t bytes_max) const {
    for (const auto& [begin, end] : pieces_) {
      std::uint64_t at = begin;
      auto other = others.pieces_.upper_bound(at);
      if (other != others.pieces_.begin()) at = std::max(at, std::prev(other)->second);
      while (at < end && other != others.pieces_.end() && other->first == at)
        at = (other++)->second;
      if (at >= end) continue;
      const std::uint64_t until = other == others.pieces_.end() ? end : std::min(end, other->first);
      return Extent{at, std::min(until, at + bytes_max)};
    }
    return std::nullopt;
  }

  /// The first bytes of it, at most so many, that are in `range`.
  std::optional<Extent> first_inside(const Extent& range, std::uint64_t bytes_max) const {
    auto piece = pieces_.upper_bound(range.begin);
    if (piece != pieces_.begin() && std::prev(piece)->second > range.begin) --piece;
    if (piece == pieces_.end() || piece->first >= range.end) return std::nullopt;
    const std::uint64_t begin = std::max(piece->first, range.begin);
    return Extent{begin, std::min({piece->second, range.end, begin + bytes_max})};
  }

  /// These bytes, which are in one piece of it, are taken out: that may make one piece more.
  void take(const Extent& extent) {
    const auto piece = std::prev(pieces_.upper_bound(extent.begin));
    const Extent held{piece->first, piece->second};
    bytes_ -= held.end - held.begin;
    pieces_.erase(piece);
    if (held.begin < extent.begin) insert({held.begin, extent.begin});
    if (extent.end < held.end) insert({extent.end, held.end});
  }

  bool touches(const Extent& extent) const {
    auto piece = pieces_.lower_bound(extent.end);
    if (piece == pieces_.begin()) return false;
    return std::prev(piece)->second > extent.begin;
  }

  /// Whether it has ever had bytes that were not added, but lay between others.
  bool has_more() const { return has_more_; }
  bool empty() const { return pieces_.empty(); }
  std::uint64_t bytes() const { return bytes_; }
  std::size_t pieces() const { return pieces_.size(); }

 private:
  void insert(const Extent& extent) {
    pieces_.emplace(extent.begin, extent.end);
    bytes_ += extent.end - extent.begin;
  }

  /// Each two become one, with what is between them.
  void join_neighbours() {
    has_more_ = true;
    for (auto piece = pieces_.begin(); piece != pieces_.end(); ++piece) {
      const auto next = std::next(piece);
      if (next == pieces_.end()) break;
      bytes_ += next->first - piece->second;
      piece->second = next->second;
      pieces_.erase(next);
    }
  }

  std::size_t pieces_max_;
  bool has_more_ = false;
  std::map<std::uint64_t, std::uint64_t> pieces_;  // by begin: end; they do not touch
  std::uint64_t bytes_ = 0;
};

}  // namespace perdure::region
