// btree: a B+ tree. Searches for a key; inserts it if absent, removes it if found. A node that is
// full is split; one that runs empty stays, as in many trees in persistent memory.
//
// In memory: the roots of the partitions, a line each, then nodes of six lines: a header, 16 keys
// of 8 bytes, 17 children or 16 values of 8 bytes.
#include "workload/structure.h"

#include "workload/shuffle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace perdure::workload {
namespace {

constexpr std::uint32_t kFanout = 16;
constexpr std::uint64_t kNodeBytes = 384;
constexpr std::uint64_t kHeaderBytes = 64;
constexpr std::uint64_t kKeysBytes = 8 * kFanout;
constexpr std::size_t kDepthMax = 16;

struct Node {
  std::array<std::uint32_t, kFanout> keys{};
  std::array<std::uint32_t, kFanout + 1> children{};
  std::uint16_t count = 0;  // of keys
  bool leaf = true;
};

class Btree final : public Structure {
 public:
  Btree(StructureOptions options, Random& random);
  std::unique_ptr<Structure> clone() const override { return std::make_unique<Btree>(*this); }
  std::uint64_t footprint() const override {
    return roots_.size() * kLineBytes + nodes_.size() * kNodeBytes;
  }
  bool live(Range range) const override {
    if (range.address < at(0)) return true;
    return slots_.taken(static_cast<std::uint32_t>((range.address - at(0)) / kNodeBytes));
  }
  void transact(std::uint32_t partition, Random& random, Recorder& recorder) override;
  std::string check() const override;

 private:
  struct Tree {
    std::uint32_t partition;
    Recorder& recorder;
  };
  /// From the root to a leaf; in inner nodes the child that was taken.
  struct Path {
    std::array<std::uint32_t, kDepthMax> node{};
    std::array<std::uint32_t, kDepthMax> slot{};
    std::size_t depth = 0;
  };

  std::uint64_t at(std::uint32_t node) const {
    return roots_.size() * kLineBytes + node * kNodeBytes;
  }
  Range root_of(std::uint32_t partition) const { return {partition * kLineBytes, 8}; }
  /// Of a node: `count` children or values.
  Range children(std::uint32_t node, std::uint64_t first, std::uint64_t count) const {
    return {at(node) + kHeaderBytes + kKeysBytes + 8 * first, 8 * count};
  }
  void visit(Tree tree, std::uint32_t node) const;
  void changed_from(Tree tree, std::uint32_t node, std::uint32_t slot) const;
  Path find(Tree tree, std::uint32_t key) const;
  void toggle(Tree tree, std::uint32_t key);
  void insert_into_leaf(Tree tree, const Path& path, std::uint32_t key);
  std::uint32_t split(Tree tree, std::uint32_t node, std::uint32_t& middle);
  void add_child(Tree tree, const Path& path, std::size_t level, std::uint32_t key,
                 std::uint32_t child);
  std::string check_node(std::uint32_t node, std::uint64_t low, std::uint64_t high,
                         std::size_t level, std::size_t& depth) const;

  std::uint32_t nodes_each_;
  std::uint32_t keys_each_;
  std::vector<std::uint32_t> roots_;
  std::vector<Node> nodes_;
  Slots slots_;
};

Btree::Btree(StructureOptions options, Random& random)
    : nodes_each_(static_cast<std::uint32_t>((options.footprint / options.partitions - kLineBytes) /
                                             kNodeBytes)),
      // A split leaves two halves, and ranges of keys that are never removed keep them: the nodes
      // suffice when every leaf has half its keys of the whole range.
      keys_each_(nodes_each_ * kFanout / 4),
      nodes_(std::size_t{options.partitions} * nodes_each_),
      slots_(options.partitions, nodes_each_, random) {
  Recorder nobody;
  for (std::uint32_t p = 0; p < options.partitions; ++p) roots_.push_back(slots_.take(p));
  std::vector<std::uint32_t> keys(keys_each_);
  for (std::uint32_t p = 0; p < options.partitions; ++p) {
    for (std::uint32_t i = 0; i < keys_each_; ++i) keys[i] = i;
    shuffle(keys, random);
    for (std::uint32_t i = 0; i < keys_each_ / 2; ++i) {
      toggle({p, nobody}, keys[i]);
      nobody.clear();
    }
  }
}

void Btree::transact(std::uint32_t partition, Random& random, Recorder& recorder) {
  recorder.compute(kTransactionInstructions);
  toggle({partition, recorder}, static_cast<std::uint32_t>(random.below(keys_each_)));
}

/// A search in a node: its header, and of the keys the lines that a binary search meets.
void Btree::visit(Tree tree, std::uint32_t node) const {
  tree.recorder.load({at(node), 8});
  tree.recorder.load({at(node) + kHeaderBytes, kKeysBytes});
  tree.recorder.compute(4 * kVisitInstructions);
}

/// Keys from `slot` on were moved, with what is beside them, and the count is another. The old ones
/// are read for that, which of header and keys the search did.
void Btree::changed_from(Tree tree, std::uint32_t node, std::uint32_t slot) const {
  const std::uint64_t count = std::max<std::uint64_t>(nodes_[node].count, slot + 1);
  tree.recorder.write({at(node), 8});
  tree.recorder.write({at(node) + kHeaderBytes + 8 * slot, 8 * (count - slot)});
  // A key of an inner node has its child on its right.
  const Range moved = children(node, nodes_[node].leaf ? slot : slot + 1, count - slot);
  tree.recorder.load(moved);
  tree.recorder.write(moved);
}

Btree::Path Btree::find(Tree tree, std::uint32_t key) const {
  Path path;
  tree.recorder.load(root_of(tree.partition));
  std::uint32_t node = roots_[tree.partition];
  for (;; ++path.depth) {
    visit(tree, node);
    const Node& n = nodes_[node];
    const auto* const end = n.keys.begin() + n.count;
    const auto* const found = n.leaf ? std::lower_bound(n.keys.begin(), end, key)
                                     : std::upper_bound(n.keys.begin(), end, key);
    path.node.at(path.depth) = node;
    path.slot.at(path.depth) = static_cast<std::uint32_t>(found - n.keys.begin());
    const std::uint32_t slot = path.slot.at(path.depth);
    const bool has_key = n.leaf && found != end && *found == key;
    if (!n.leaf || has_key) tree.recorder.load(children(node, slot, 1));
    if (n.leaf) return path;
    node = n.children.at(slot);
  }
}

void Btree::toggle(Tree tree, std::uint32_t key) {
  const Path path = find(tree, key);
  const std::uint32_t leaf = path.node.at(path.depth);
  const std::uint32_t slot = path.slot.at(path.depth);
  Node& n = nodes_[leaf];
  if (slot == n.count || n.keys.at(slot) != key) return insert_into_leaf(tree, path, key);
  std::move(n.keys.begin() + slot + 1, n.keys.begin() + n.count, n.keys.begin() + slot);
  --n.count;
  changed_from(tree, leaf, slot);
}

void Btree::insert_into_leaf(Tree tree, const Path& path, std::uint32_t key) {
  std::uint32_t leaf = path.node.at(path.depth);
  std::uint32_t slot = path.slot.at(path.depth);
  if (nodes_[leaf].count == kFanout) {
    std::uint32_t middle = 0;
    const std::uint32_t right = split(tree, leaf, middle);
    add_child(tree, path, path.depth, middle, right);
    if (key >= middle) {
      leaf = right;
      slot -= kFanout / 2;
    }
  }
  Node& n = nodes_[leaf];
  std::move_backward(n.keys.begin() + slot, n.keys.begin() + n.count, n.keys.begin() + n.count + 1);
  n.keys.at(slot) = key;
  ++n.count;
  changed_from(tree, leaf, slot);
}

/// The upper half of a full node in a new one. `middle`: what parts them.
std::uint32_t Btree::split(Tree tree, std::uint32_t node, std::uint32_t& middle) {
  const std::uint32_t right = slots_.take(tree.partition);
  Node& from = nodes_[node];
  Node& to = nodes_[right];
  to = Node{};
  to.leaf = from.leaf;
  const std::uint32_t half = kFanout / 2;
  middle = from.keys.at(half);
  // Of inner nodes the middle key goes up and is in neither.
  const std::uint32_t first = from.leaf ? half : half + 1;
  std::copy(from.keys.begin() + first, from.keys.end(), to.keys.begin());
  std::copy(from.children.begin() + first, from.children.end(), to.children.begin());
  to.count = static_cast<std::uint16_t>(kFanout - first);
  from.count = static_cast<std::uint16_t>(half);
  tree.recorder.load(children(node, first, kFanout + (from.leaf ? 0 : 1) - first));
  tree.recorder.create({at(right), kNodeBytes});
  tree.recorder.write({at(node), 8});
  return right;
}

/// A child right of the one that the path took above `level`, parted from it by `key`.
void Btree::add_child(Tree tree, const Path& path, std::size_t level, std::uint32_t key,
                      std::uint32_t child) {
  if (level == 0) {
    const std::uint32_t root = slots_.take(tree.partition);
    Node& n = nodes_[root];
    n = Node{};
    n.leaf = false;
    n.count = 1;
    n.keys[0] = key;
    n.children[0] = roots_[tree.partition];
    n.children[1] = child;
    tree.recorder.create({at(root), kNodeBytes});
    tree.recorder.write(root_of(tree.partition));
    roots_[tree.partition] = root;
    return;
  }
  std::uint32_t parent = path.node.at(level - 1);
  std::uint32_t slot = path.slot.at(level - 1);
  if (nodes_[parent].count == kFanout) {
    std::uint32_t middle = 0;
    const std::uint32_t right = split(tree, parent, middle);
    add_child(tree, path, level - 1, middle, right);
    if (slot > kFanout / 2) {
      parent = right;
      slot -= kFanout / 2 + 1;
    }
  }
  Node& n = nodes_[parent];
  std::move_backward(n.keys.begin() + slot, n.keys.begin() + n.count, n.keys.begin() + n.count + 1);
  std::move_backward(n.children.begin() + slot + 1, n.children.begin() + n.count + 1,
                     n.children.begin() + n.count + 2);
  n.keys.at(slot) = key;
  n.children.at(slot + 1) = child;
  ++n.count;
  changed_from(tree, parent, slot);
}

std::string Btree::check_node(std::uint32_t node, std::uint64_t low, std::uint64_t high,
                              std::size_t level, std::size_t& depth) const {
  const Node& n = nodes_[node];
  for (std::uint32_t i = 0; i < n.count; ++i) {
    if (n.keys.at(i) < low || n.keys.at(i) >= high) return fmt::format("key {}", n.keys.at(i));
    if (i > 0 && n.keys.at(i - 1) >= n.keys.at(i)) return "keys of a node are not ascending";
  }
  if (n.leaf) {
    if (depth != 0 && depth != level) return "leaves of different depth";
    depth = level;
    return "";
  }
  for (std::uint32_t i = 0; i <= n.count; ++i) {
    const std::uint64_t from = i == 0 ? low : n.keys.at(i - 1);
    const std::uint64_t to = i == n.count ? high : n.keys.at(i);
    std::string wrong = check_node(n.children.at(i), from, to, level + 1, depth);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

std::string Btree::check() const {
  for (const std::uint32_t root : roots_) {
    std::size_t depth = 0;
    if (std::string wrong = check_node(root, 0, keys_each_, 1, depth); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

std::unique_ptr<Structure> make_btree(StructureOptions options, Random& random) {
  return std::make_unique<Btree>(options, random);
}

}  // namespace perdure::workload
