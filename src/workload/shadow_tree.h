// Short-circuit shadow paging (Condit et al., "Better I/O through byte-addressable, persistent
// memory", SOSP 2009, section 3.1), with lines for blocks: a transaction's changes are made in
// copies and become visible by one word that is written in place.
//
//   what is changed      epochs
//   one word             {new data} {the word}
//   words of one line    {new data, copy of the line} {its pointer in the node above}
//   several lines        {new data, copies of the lines and of the nodes that lead to them, up to
//                        the lowest one that is above all} {its pointer in the node above it}
//
// The lines of a structure are the leaves of a tree whose nodes are lines of eight pointers. Lines
// and nodes that are replaced become free lines of the thread that replaced them, last in its
// queue.
#pragma once

#include "workload/recorder.h"

#include <cstdint>
#include <deque>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace perdure::workload {

/// Lines that a thread may write copies to, the longest free one first.
using FreeLines = std::deque<std::uint64_t>;

class ShadowTree {
 public:
  /// Of the lines 0 to `lines`, which stand where they are numbered until they are replaced. The
  /// nodes begin at the line `nodes_at`.
  /// Requires  lines > 0.
  ShadowTree(std::uint64_t lines, std::uint64_t nodes_at);

  /// Lines that nodes of such a tree take, with the one of the pointer to its root.
  static std::uint64_t node_lines(std::uint64_t lines);

  /// Appends what the transaction asks of a processor, as append_transaction() (logging.h): loads,
  /// with those of the nodes on the way to each line, then its epochs. Changes the tree. Threads
  /// may take turns; whether they would need locks for nodes that they share is not modelled.
  /// Requires  `free` has a line for each line and node that is copied.
  void append_transaction(const Recorder& changes, FreeLines& free,
                          std::vector<Operation>& operations);

  /// All lines that are reached from the root: of the structure, nodes and the root's pointer.
  std::unordered_set<std::uint64_t> reached() const;

 private:
  static constexpr std::uint32_t kFanoutLog2 = 3;
  static constexpr std::uint64_t kFanout = 1U << kFanoutLog2;

  /// A line of the structure (level 0), a node above it, or, at levels(), the root's pointer.
  struct Place {
    std::uint32_t level = 0;
    std::uint64_t index = 0;
    bool operator==(const Place&) const = default;
    Place above(std::uint32_t levels = 1) const {
      return {level + levels, index >> (kFanoutLog2 * levels)};
    }
  };
  std::uint32_t levels() const { return static_cast<std::uint32_t>(first_.size()); }
  /// Where it stands.
  std::uint64_t line(Place place) const;
  void replace(Place place, FreeLines& free);

  std::uint64_t lines_;
  std::uint64_t nodes_at_;
  std::vector<std::uint64_t> first_;  // number of the first place of each level; the last: the root
  std::unordered_map<std::uint64_t, std::uint64_t> moved_;  // by number: the line where it stands
  std::vector<std::uint64_t> replaced_;                     // by this transaction
};

}  // namespace perdure::workload
