// rbtree: a red-black tree (Cormen, Leiserson, Rivest, Stein, "Introduction to Algorithms", chapter
// 13). Searches for a key; inserts it if absent, removes it if found.
//
// In memory: nodes of three lines; key, colour and three pointers in the first 40 bytes, then a
// value of 128 bytes. The roots of the partitions stand before the nodes, a line each.
#include "workload/structure.h"

#include <fmt/format.h>

namespace perdure::workload {
namespace {

constexpr std::uint64_t kTreeNodeBytes = 192;
constexpr std::uint64_t kTreeLinkBytes = 40;
constexpr std::uint32_t kNil = 0;  // a node of nobody; never in memory

struct TreeNode {
  std::uint32_t key = 0;
  std::uint32_t parent = kNil;
  std::uint32_t child[2] = {kNil, kNil};  // less, greater
  bool red = false;
};

class Rbtree final : public Structure {
 public:
  Rbtree(StructureOptions options, Random& random);
  std::unique_ptr<Structure> clone() const override { return std::make_unique<Rbtree>(*this); }
  std::uint64_t footprint() const override {
    return roots_.size() * kLineBytes + (nodes_.size() - 1) * kTreeNodeBytes;
  }
  bool live(Range range) const override {
    if (range.address < links(1).address) return true;
    return slots_.taken(
        static_cast<std::uint32_t>((range.address - links(1).address) / kTreeNodeBytes));
  }
  void transact(std::uint32_t partition, Random& random, Recorder& recorder) override;
  std::string check() const override;

 private:
  // The tree and the recorder of the transaction that runs.
  struct Tree {
    std::uint32_t partition;
    Recorder& recorder;
  };

  Range links(std::uint32_t node) const {
    return {roots_.size() * kLineBytes + (node - 1) * kTreeNodeBytes, kTreeLinkBytes};
  }
  Range root_of(std::uint32_t partition) const { return {partition * kLineBytes, 8}; }
  void look(Tree tree, std::uint32_t node) const {
    if (node != kNil) tree.recorder.load(links(node));
  }
  void changed(Tree tree, std::uint32_t node) const {
    if (node != kNil) tree.recorder.write(links(node));
  }
  void paint(Tree tree, std::uint32_t node, bool red) {
    if (nodes_[node].red == red) return;
    nodes_[node].red = red;
    changed(tree, node);
  }
  void set_root(Tree tree, std::uint32_t node) {
    roots_[tree.partition] = node;
    tree.recorder.write(root_of(tree.partition));
  }
  void toggle(Tree tree, std::uint32_t key);
  void insert(Tree tree, std::uint32_t key, std::uint32_t parent);
  void repair_after_insert(Tree tree, std::uint32_t node);
  void remove(Tree tree, std::uint32_t node);
  void repair_after_remove(Tree tree, std::uint32_t node);
  void rotate(Tree tree, std::uint32_t node, int side);
  void replace(Tree tree, std::uint32_t old, std::uint32_t with);
  int side_of(std::uint32_t node) const {
    return nodes_[nodes_[node].parent].child[1] == node ? 1 : 0;
  }
  std::string check_tree(std::uint32_t node, std::uint64_t low, std::uint64_t high,
                         int& blacks) const;

  std::uint32_t nodes_each_;
  std::vector<std::uint32_t> roots_;
  std::vector<TreeNode> nodes_;
  Slots slots_;
};

Rbtree::Rbtree(StructureOptions options, Random& random)
    : nodes_each_(static_cast<std::uint32_t>((options.footprint / options.partitions - kLineBytes) /
                                             kTreeNodeBytes)),
      roots_(options.partitions, kNil),
      nodes_(std::size_t{options.partitions} * nodes_each_ + 1),
      slots_(options.partitions, nodes_each_, random) {
  Recorder nobody;
  for (std::uint32_t p = 0; p < options.partitions; ++p) {
    for (std::uint32_t key = 0; key < nodes_each_; ++key) {
      if (random.chance(1, 2)) continue;
      toggle({p, nobody}, key);
      nobody.clear();
    }
  }
}

void Rbtree::transact(std::uint32_t partition, Random& random, Recorder& recorder) {
  recorder.compute(kTransactionInstructions);
  toggle({partition, recorder}, static_cast<std::uint32_t>(random.below(nodes_each_)));
}

void Rbtree::toggle(Tree tree, std::uint32_t key) {
  tree.recorder.load(root_of(tree.partition));
  std::uint32_t parent = kNil;
  std::uint32_t node = roots_[tree.partition];
  while (node != kNil && nodes_[node].key != key) {
    tree.recorder.load(links(node));
    tree.recorder.compute(kVisitInstructions);
    parent = node;
    node = nodes_[node].child[key > nodes_[node].key ? 1 : 0];
  }
  if (node == kNil) {
    insert(tree, key, parent);
  } else {
    tree.recorder.load({links(node).address, kTreeNodeBytes});  // and its value
    remove(tree, node);
  }
  nodes_[kNil] = TreeNode{};
}

void Rbtree::insert(Tree tree, std::uint32_t key, std::uint32_t parent) {
  const std::uint32_t node = slots_.take(tree.partition) + 1;
  nodes_[node] = {key, parent, {kNil, kNil}, true};
  tree.recorder.create({links(node).address, kTreeNodeBytes});
  if (parent == kNil) {
    set_root(tree, node);
  } else {
    nodes_[parent].child[key > nodes_[parent].key ? 1 : 0] = node;
    changed(tree, parent);
  }
  repair_after_insert(tree, node);
}

void Rbtree::repair_after_insert(Tree tree, std::uint32_t node) {
  while (nodes_[nodes_[node].parent].red) {
    std::uint32_t parent = nodes_[node].parent;
    const std::uint32_t grandparent = nodes_[parent].parent;
    const int side = side_of(parent);
    const std::uint32_t uncle = nodes_[grandparent].child[1 - side];
    look(tree, uncle);
    if (nodes_[uncle].red) {
      paint(tree, parent, false);
      paint(tree, uncle, false);
      paint(tree, grandparent, true);
      node = grandparent;
      continue;
    }
    if (side_of(node) != side) {
      node = parent;
      rotate(tree, node, side);
      parent = nodes_[node].parent;
    }
    paint(tree, parent, false);
    paint(tree, grandparent, true);
    rotate(tree, grandparent, 1 - side);
  }
  paint(tree, roots_[tree.partition], false);
}

/// The node goes down to `side`, its child of the other side takes its place.
void Rbtree::rotate(Tree tree, std::uint32_t node, int side) {
  const std::uint32_t up = nodes_[node].child[1 - side];
  const std::uint32_t moved = nodes_[up].child[side];
  look(tree, moved);
  nodes_[node].child[1 - side] = moved;
  if (moved != kNil) nodes_[moved].parent = node;
  replace(tree, node, up);
  nodes_[up].child[side] = node;
  nodes_[node].parent = up;
  for (const std::uint32_t each : {node, up, moved}) changed(tree, each);
}

/// What pointed to `old` points to `with`.
void Rbtree::replace(Tree tree, std::uint32_t old, std::uint32_t with) {
  const std::uint32_t parent = nodes_[old].parent;
  look(tree, with);
  if (parent == kNil) {
    set_root(tree, with);
  } else {
    nodes_[parent].child[side_of(old)] = with;
    changed(tree, parent);
  }
  nodes_[with].parent = parent;  // of kNil too: the repair begins there
  changed(tree, with);
}

void Rbtree::remove(Tree tree, std::uint32_t node) {
  bool black = !nodes_[node].red;
  std::uint32_t repair = kNil;
  if (nodes_[node].child[0] == kNil || nodes_[node].child[1] == kNil) {
    repair = nodes_[node].child[nodes_[node].child[0] == kNil ? 1 : 0];
    replace(tree, node, repair);
  } else {
    std::uint32_t next = nodes_[node].child[1];
    tree.recorder.load(links(next));
    while (nodes_[next].child[0] != kNil) {
      next = nodes_[next].child[0];
      tree.recorder.load(links(next));
    }
    black = !nodes_[next].red;
    repair = nodes_[next].child[1];
    if (nodes_[next].parent == node) {
      look(tree, repair);
      nodes_[repair].parent = next;
    } else {
      replace(tree, next, repair);
      nodes_[next].child[1] = nodes_[node].child[1];
      nodes_[nodes_[next].child[1]].parent = next;
      changed(tree, nodes_[next].child[1]);
    }
    replace(tree, node, next);
    nodes_[next].child[0] = nodes_[node].child[0];
    look(tree, nodes_[next].child[0]);
    nodes_[nodes_[next].child[0]].parent = next;
    changed(tree, nodes_[next].child[0]);
    nodes_[next].red = nodes_[node].red;
  }
  if (black) repair_after_remove(tree, repair);
  slots_.give_back(tree.partition, node - 1);
}

/// Paths through `node` lack a black one.
void Rbtree::repair_after_remove(Tree tree, std::uint32_t node) {
  while (node != roots_[tree.partition] && !nodes_[node].red) {
    const std::uint32_t parent = nodes_[node].parent;
    const int side = nodes_[parent].child[1] == node ? 1 : 0;
    std::uint32_t sibling = nodes_[parent].child[1 - side];
    tree.recorder.load(links(sibling));
    if (nodes_[sibling].red) {
      paint(tree, sibling, false);
      paint(tree, parent, true);
      rotate(tree, parent, side);
      sibling = nodes_[parent].child[1 - side];
      look(tree, sibling);
    }
    const std::uint32_t near = nodes_[sibling].child[side];
    const std::uint32_t far = nodes_[sibling].child[1 - side];
    look(tree, near);
    look(tree, far);
    if (!nodes_[near].red && !nodes_[far].red) {
      paint(tree, sibling, true);
      node = parent;
      continue;
    }
    if (!nodes_[far].red) {
      paint(tree, near, false);
      paint(tree, sibling, true);
      rotate(tree, sibling, 1 - side);
      sibling = nodes_[parent].child[1 - side];
    }
    paint(tree, sibling, nodes_[parent].red);
    paint(tree, parent, false);
    paint(tree, nodes_[sibling].child[1 - side], false);
    rotate(tree, parent, side);
    node = roots_[tree.partition];
  }
  paint(tree, node, false);
}

std::string Rbtree::check_tree(std::uint32_t node, std::uint64_t low, std::uint64_t high,
                               int& blacks) const {
  blacks = 1;
  if (node == kNil) return "";
  const TreeNode& n = nodes_[node];
  if (n.key < low || n.key >= high) return fmt::format("key {} is out of order", n.key);
  int below[2] = {0, 0};
  for (int side = 0; side < 2; ++side) {
    const std::uint32_t child = n.child[side];
    if (child != kNil && nodes_[child].parent != node) return "a parent is wrong";
    if (n.red && nodes_[child].red) return fmt::format("{} and its child are red", n.key);
    std::string wrong = side == 0 ? check_tree(child, low, n.key, below[0])
                                  : check_tree(child, std::uint64_t{n.key} + 1, high, below[1]);
    if (!wrong.empty()) return wrong;
  }
  if (below[0] != below[1]) return fmt::format("below {} black heights differ", n.key);
  blacks = below[0] + (n.red ? 0 : 1);
  return "";
}

std::string Rbtree::check() const {
  for (const std::uint32_t root : roots_) {
    int blacks = 0;
    if (nodes_[root].red) return "a root is red";
    if (std::string wrong = check_tree(root, 0, nodes_each_, blacks); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

std::unique_ptr<Structure> make_rbtree(StructureOptions options, Random& random) {
  return std::make_unique<Rbtree>(options, random);
}

}  // namespace perdure::workload
