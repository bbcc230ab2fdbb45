// Structures keep their own laws, and protocols of logging have the epochs that their table says.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "workload/transactions.h"

namespace perdure::workload {
namespace {

using enum OperationKind;

constexpr std::array kKinds{StructureKind::Hash, StructureKind::Rbtree, StructureKind::Sps,
                            StructureKind::Btree, StructureKind::Ssca2};
constexpr StructureOptions kSmall{std::uint64_t{1} << 18, 4};

/// A letter or sign for each kind, and of loads and persists the number of the line.
std::string words(const std::vector<Operation>& operations) {
  std::string text;
  for (const Operation& each : operations) {
    switch (each.kind) {
      case Compute: break;
      case Load: text += "L" + std::to_string(each.value / kLineBytes) + " "; break;
      case Store: text += "S "; break;
      case Persist: text += "P" + std::to_string(each.value / kLineBytes) + " "; break;
      case Barrier: text += "| "; break;
      case Fence: text += "F "; break;
      case Unlock: text += "U "; break;
      case Commit: text += "E "; break;
      case Strand: text += "/ "; break;
    }
  }
  return text;
}

std::string logged(Logging logging) {
  // A new item in line 40; two words of lines 10 and 20 are changed; the log is lines 100 to 115.
  Recorder changes;
  changes.load({10 * 64, 8});
  changes.create({40 * 64, 64});
  changes.write({10 * 64, 8});
  changes.write({20 * 64 + 8, 8});
  changes.write({10 * 64, 8});  // the same word again
  LogArea log(100 * 64, 16 * 64, 64);
  std::vector<Operation> operations;
  append_transaction(logging, changes, log, operations);
  return words(operations);
}

TEST(Logging, HasTheEpochsOfItsTable) {
  EXPECT_EQ(logged(Logging::Undo), "L10 P40 | P101 | P10 | P102 | P20 | P100 | ");
  EXPECT_EQ(logged(Logging::UndoBatched), "L10 P40 P101 P102 | P100 | P10 P20 | P100 | ");
  EXPECT_EQ(logged(Logging::Redo), "L10 P40 P101 P102 P100 | P10 P20 | P100 | ");
}

TEST(Logging, ATransactionThatChangesNothingHasNoEpochs) {
  for (const Logging logging : {Logging::Undo, Logging::UndoBatched, Logging::Redo}) {
    Recorder changes;
    changes.load({0, 8});
    LogArea log(6400, 640, 64);
    std::vector<Operation> operations;
    append_transaction(logging, changes, log, operations);
    EXPECT_EQ(words(operations), "L0 ");
  }
}

TEST(Logging, RecordsGoRoundBehindTheHeader) {
  LogArea log(6400, 4 * 64, 0);
  EXPECT_EQ(log.record(1), (Range{6400 + 64, 64}));
  EXPECT_EQ(log.record(65), (Range{6400 + 128, 128}));
  EXPECT_EQ(log.record(64), (Range{6400 + 64, 64}));
}

/// What a transaction asks of a tree of 512 lines, whose nodes begin at the line 600: 64 above the
/// lines, then 8, then the root (672), and its pointer (673).
std::string shadowed(ShadowTree& tree, const Recorder& changes) {
  FreeLines free = {1000, 1001, 1002, 1003, 1004, 1005, 1006, 1007};
  std::vector<Operation> operations;
  tree.append_transaction(changes, free, operations);
  return words(operations);
}

TEST(Shadow, AWordIsWrittenInPlace) {
  ShadowTree tree(512, 600);
  EXPECT_EQ(ShadowTree::node_lines(512), 74u);
  Recorder changes;
  changes.load({10 * 64, 8});
  changes.create({40 * 64, 64});
  changes.write({10 * 64 + 8, 8});
  EXPECT_EQ(shadowed(tree, changes), "L673 L672 L664 L601 L10 L605 P40 | P10 | ");
}

TEST(Shadow, ALineIsCopiedAndItsPointerWritten) {
  ShadowTree tree(512, 600);
  Recorder changes;
  changes.load({10 * 64, 16});
  changes.write({10 * 64, 16});
  EXPECT_EQ(shadowed(tree, changes), "L673 L672 L664 L601 L10 P1000 | P601 | ");
  EXPECT_EQ(shadowed(tree, changes), "L673 L672 L664 L601 L1000 P1000 | P601 | ")
      << "the next one finds the copy";
}

// Lines 10 and 20 have their nodes 601 and 602 and the node above both, 664, between them.
TEST(Shadow, OfSeveralLinesAllBelowOnePointerIsCopied) {
  ShadowTree tree(512, 600);
  Recorder changes;
  changes.load({10 * 64, 8});
  changes.load({20 * 64, 8});
  changes.write({10 * 64, 8});
  changes.write({20 * 64, 8});
  EXPECT_EQ(shadowed(tree, changes),
            "L673 L672 L664 L601 L10 L602 L20 P1000 P1001 P1002 P1003 P1004 | P672 | ");
  Recorder far;
  far.load({0, 8});
  far.load({511 * 64, 8});
  far.write({0, 8});
  far.write({511 * 64, 8});
  EXPECT_EQ(shadowed(tree, far),
            "L673 L672 L1004 L600 L0 L671 L663 L511 "
            "P1000 P1001 P1002 P1003 P1004 P1005 P1006 | P673 | ");
}

// Whatever changes: until the last epoch, nothing that readers can reach is written, but what the
// transaction made; and the last epoch is one line, that of a pointer or a word.
TEST(Shadow, WhatReadersReachIsNotWrittenBeforeTheOnePointer) {
  for (const StructureKind kind : kKinds) {
    Random random(9);
    const auto structure = make_structure(kind, kSmall, random);
    const std::uint64_t lines = structure->footprint() / kLineBytes + 1;
    constexpr std::uint64_t kFree = 80;  // so that each is used again and again
    ShadowTree tree(lines, lines + kFree);
    FreeLines free;
    for (std::uint64_t i = 0; i < kFree; ++i) free.push_back(lines + i);
    std::unordered_set<std::uint64_t> just_freed;
    int copied = 0;
    for (int i = 0; i < 300; ++i) {
      Recorder changes;
      structure->transact(1, random, changes);
      const std::unordered_set<std::uint64_t> before = tree.reached();
      std::vector<Operation> operations;
      tree.append_transaction(changes, free, operations);
      std::vector<std::set<std::uint64_t>> epochs(1);
      for (const Operation& each : operations) {
        if (each.kind == Persist) epochs.back().insert(each.value / kLineBytes);
        if (each.kind == Load) {
          ASSERT_TRUE(before.contains(each.value / kLineBytes));
        }
        if (each.kind == Barrier) epochs.emplace_back();
      }
      ASSERT_TRUE(epochs.back().empty()) << "a barrier behind the last one";
      epochs.pop_back();
      ASSERT_FALSE(epochs.empty()) << to_string(kind);
      ASSERT_EQ(epochs.back().size(), 1u) << to_string(kind);
      ASSERT_LE(epochs.size(), 2u) << to_string(kind);
      if (epochs.size() == 1) continue;
      // New data stands where it was made: it is what may be written of all that is reached.
      std::set<std::uint64_t> made;
      for (const Range& each : changes.created()) {
        for (std::uint64_t at = each.first_line(); at <= each.last_line(); ++at) made.insert(at);
      }
      std::uint64_t reached = 0;
      for (const std::uint64_t line : epochs.front()) {
        reached += before.contains(line) ? 1 : 0;
        ASSERT_FALSE(just_freed.contains(line)) << "the longest free ones come first";
      }
      ASSERT_EQ(reached, made.size()) << to_string(kind);
      ASSERT_TRUE(before.contains(*epochs.back().begin())) << to_string(kind);
      copied += epochs.front().size() > made.size() ? 1 : 0;
      // Nothing is lost, and nothing is free that is reached: as many lines as there were.
      const std::unordered_set<std::uint64_t> after = tree.reached();
      ASSERT_EQ(after.size() + free.size(), before.size() + kFree);
      for (const std::uint64_t line : free) ASSERT_FALSE(after.contains(line));
      just_freed.clear();
      for (const std::uint64_t line : free) {
        if (before.contains(line)) just_freed.insert(line);
      }
    }
    EXPECT_EQ(copied > 0, kind != StructureKind::Hash) << to_string(kind) << ": a word each";
  }
}

TEST(Shadow, NewDataPersistsWithTheCopies) {
  ShadowTree tree(512, 600);
  Recorder changes;
  changes.create({40 * 64, 64});
  changes.write({10 * 64, 8});
  changes.write({20 * 64, 8});
  EXPECT_EQ(shadowed(tree, changes),
            "L673 L672 L664 L605 P40 P1000 P1001 P1002 P1003 P1004 | P672 | ");
}

// Its free lines are as many as it copies. Expect: none of what it replaces is written.
TEST(Shadow, WhatIsReplacedIsNotFreeBeforeTheTransactionIsOver) {
  ShadowTree tree(512, 600);
  Recorder changes;
  changes.write({10 * 64, 16});
  changes.write({20 * 64, 16});
  FreeLines free = {1000, 1001, 1002, 1003, 1004};
  std::vector<Operation> operations;
  tree.append_transaction(changes, free, operations);
  EXPECT_EQ(words(operations), "P1000 P1001 P1002 P1003 P1004 | P672 | ");
  EXPECT_EQ(free, (FreeLines{10, 20, 601, 602, 664}));
}

TEST(Shadow, WhatATransactionChangesOfItsOwnNewDataIsNew) {
  ShadowTree tree(512, 600);
  Recorder changes;
  changes.create({40 * 64, 128});
  changes.write({40 * 64 + 8, 64});
  changes.write({10 * 64, 8});
  EXPECT_EQ(shadowed(tree, changes), "L673 L672 L664 L605 P40 P41 | P10 | ");
}

// In the memory of a program each line is of the structure or its tree, a lock, or free to one
// thread, whatever has been done; and nothing outside of it is asked for.
TEST(Shadow, NoLineOfAProgramHasTwoUses) {
  for (const StructureKind kind : kKinds) {
    Random random(5);
    TransactionsOptions options;
    options.logging = Logging::Shadow;
    options.partitions = kSmall.partitions;
    options.log_gap = 3072;
    Transactions program(make_structure(kind, kSmall, random), options);
    for (std::uint32_t i = 0; i < 1600; ++i) {
      const std::uint32_t thread = i % options.threads;
      std::vector<Operation> operations;
      ASSERT_TRUE(program.start(thread).has_value());
      program.run(thread, operations);
      for (const Operation& each : operations) {
        const bool of_memory = each.kind == Load || each.kind == Persist;
        ASSERT_TRUE(!of_memory || each.value < program.bytes()) << each.value;
      }
    }
    std::unordered_set<std::uint64_t> used = program.tree().reached();
    const std::size_t reached = used.size();
    for (std::uint32_t thread = 0; thread < options.threads; ++thread) {
      std::optional<Program::Start> start = program.start(thread);
      const std::uint64_t lock = start->lock->address / kLineBytes;
      ASSERT_FALSE(used.contains(lock)) << to_string(kind);
      for (const std::uint64_t line : program.free_lines(thread)) {
        ASSERT_TRUE(used.insert(line).second) << to_string(kind) << ", line " << line;
        ASSERT_LT(line * kLineBytes, program.bytes());
      }
    }
    EXPECT_EQ(used.size(), reached + options.threads * (Transactions::kLogBytes / kLineBytes));
  }
}

TEST(Structures, KeepTheirOwnLawsOverManyTransactions) {
  for (const StructureKind kind : kKinds) {
    Random random(7);
    const auto structure = make_structure(kind, kSmall, random);
    ASSERT_EQ(structure->check(), "") << to_string(kind) << " as it was made";
    EXPECT_LE(structure->footprint(), kSmall.footprint) << to_string(kind);
    EXPECT_GE(structure->footprint(), kSmall.footprint / 2) << to_string(kind);
    Recorder recorder;
    for (int i = 0; i < 20'000; ++i) {
      recorder.clear();
      structure->transact(static_cast<std::uint32_t>(random.below(4)), random, recorder);
      ASSERT_FALSE(recorder.written().empty()) << to_string(kind);
      if (i % 1000 != 0) continue;
      ASSERT_EQ(structure->check(), "") << to_string(kind) << " after " << i;
    }
    EXPECT_EQ(structure->check(), "") << to_string(kind);
  }
}

TEST(Structures, TouchOnlyTheirMemoryAndWriteOnlyWhatTheyReadOrMade) {
  for (const StructureKind kind : kKinds) {
    Random random(3);
    const auto structure = make_structure(kind, kSmall, random);
    for (int i = 0; i < 2'000; ++i) {
      Recorder recorder;
      const auto before = structure->clone();
      structure->transact(1, random, recorder);
      std::set<std::uint64_t> known;  // lines that were read or made
      for (const Operation& each : recorder.reads()) {
        if (each.kind == Load) known.insert(each.value / kLineBytes);
      }
      for (const Range& each : recorder.created()) {
        ASSERT_FALSE(before->live(each)) << to_string(kind) << " makes " << each.address;
        ASSERT_TRUE(structure->live(each)) << to_string(kind) << " made " << each.address;
        for (auto line = each.first_line(); line <= each.last_line(); ++line) known.insert(line);
      }
      for (const Range& each : recorder.written()) {
        for (auto line = each.first_line(); line <= each.last_line(); ++line) {
          ASSERT_TRUE(known.contains(line)) << to_string(kind) << " writes line " << line;
        }
      }
      for (const auto* ranges : {&recorder.written(), &recorder.created()}) {
        for (const Range& each : *ranges) {
          ASSERT_LE(each.address + each.bytes, structure->footprint()) << to_string(kind);
        }
      }
      for (const Operation& each : recorder.reads()) {
        if (each.kind != Load) continue;
        ASSERT_LT(each.value, structure->footprint()) << to_string(kind);
      }
    }
  }
}

TEST(Structures, ACopyGoesItsOwnWay) {
  for (const StructureKind kind : kKinds) {
    Random random(3);
    const auto first = make_structure(kind, kSmall, random);
    const auto second = first->clone();
    Random a(5);
    Random b(5);
    for (int i = 0; i < 200; ++i) {
      Recorder one;
      Recorder two;
      first->transact(0, a, one);
      second->transact(0, b, two);
      ASSERT_EQ(one.reads(), two.reads()) << to_string(kind);
      ASSERT_EQ(one.written(), two.written()) << to_string(kind);
    }
  }
}

// Hand-computed: ssca2 writes an edge over the oldest one, and how many there are: 2 k + 1 = 5
// epochs when both lie in lines of their own, under undo logging.
TEST(Transactions, OfSsca2LogTheEdgeThatTheyOverwrite) {
  Random random(1);
  const auto structure = make_structure(StructureKind::Ssca2, kSmall, random);
  Recorder recorder;
  structure->transact(0, random, recorder);
  EXPECT_TRUE(recorder.created().empty());
  EXPECT_EQ(recorder.written().size(), 2U);
  LogArea log(structure->footprint(), 4096, 64);
  std::vector<Operation> operations;
  append_transaction(Logging::Undo, recorder, log, operations);
  EXPECT_EQ(std::count(operations.begin(), operations.end(), Operation{Barrier, 0}), 5);
}

// A key that is found has a value, which a search reads: the lines of its item behind the first.
TEST(Structures, ReadTheValueOfTheKeyThatTheyFind) {
  for (const StructureKind kind : {StructureKind::Hash, StructureKind::Rbtree}) {
    Random random(3);
    const auto structure = make_structure(kind, kSmall, random);
    int found = 0;
    for (int i = 0; i < 200; ++i) {
      Recorder recorder;
      structure->transact(0, random, recorder);
      if (!recorder.created().empty()) continue;
      ++found;
      bool value = false;
      const std::vector<Operation>& reads = recorder.reads();
      for (std::size_t at = 2; at < reads.size(); ++at) {
        value = value || (reads[at].kind == Load && reads[at - 1].kind == Load &&
                          reads[at - 2].kind == Load &&
                          reads[at].value == reads[at - 1].value + kLineBytes &&
                          reads[at - 1].value == reads[at - 2].value + kLineBytes);
      }
      EXPECT_TRUE(value) << to_string(kind);
    }
    EXPECT_GT(found, 50) << to_string(kind);
  }
}

// From the root's line on, each level of a B+ tree is its header, two lines of keys and the child
// that is followed; nodes have six lines, the children begin in the fourth.
TEST(Structures, ABtreeReadsTheChildThatItFollows) {
  Random random(3);
  const auto structure = make_structure(StructureKind::Btree, kSmall, random);
  const std::uint64_t nodes_at = kSmall.partitions;  // in lines: a root's line for each
  int inner = 0;
  for (int i = 0; i < 200; ++i) {
    Recorder recorder;
    structure->transact(0, random, recorder);
    std::vector<std::uint64_t> lines;
    for (const Operation& each : recorder.reads()) {
      if (each.kind == Load) lines.push_back(each.value / kLineBytes);
    }
    ASSERT_GE(lines.size(), 5U);
    const std::uint64_t root = lines[1];
    EXPECT_EQ((root - nodes_at) % 6, 0U);
    EXPECT_EQ(lines[2], root + 1);
    EXPECT_EQ(lines[3], root + 2);
    EXPECT_GE(lines[4], root + 3);
    EXPECT_LT(lines[4], root + 6);
    if (lines.size() > 5) ++inner;
  }
  EXPECT_GT(inner, 100);
}

// Hand-computed: sps under undo logging reads two lines, and has 2 k + 1 = 5 epochs of two log
// records of two lines (64 bytes and a header), two entries and the commit.
TEST(Transactions, OfSpsUnderUndoLoggingHaveFiveEpochs) {
  Random random(1);
  TransactionsOptions options;
  options.partitions = 4;
  options.threads = 1;
  Transactions program(make_structure(StructureKind::Sps, kSmall, random), options);
  const auto start = program.start(0);
  ASSERT_TRUE(start && start->lock);
  EXPECT_EQ(start->lock->address, (std::uint64_t{1} << 18) + start->lock->number * 64);
  std::vector<Operation> operations;
  program.run(0, operations);
  std::map<OperationKind, int> count;
  for (const Operation& each : operations) ++count[each.kind];
  EXPECT_EQ(count[Load], 2);
  EXPECT_EQ(count[Persist], 2 + 1 + 2 + 1 + 1);
  EXPECT_EQ(count[Barrier], 5);
  EXPECT_EQ(count[Fence], 0);
  EXPECT_EQ(operations[operations.size() - 3].kind, Unlock);
  EXPECT_EQ(operations[operations.size() - 2].kind, Commit);
  EXPECT_EQ(operations.back().kind, Strand) << "the next transaction is independent of this one";
}

// Banks of NVM-A: rows of 2048 bytes take turns in eight of them. Under undo logging the last line
// that a transaction persists is the header of its thread's log.
TEST(Transactions, AGapBetweenLogsBringsTheirHeadersIntoDifferentBanks) {
  const auto most_in_a_bank = [](std::uint64_t log_gap) {
    Random random(1);
    TransactionsOptions options;
    options.partitions = 4;
    options.threads = 8;
    options.log_gap = log_gap;
    Transactions program(make_structure(StructureKind::Sps, kSmall, random), options);
    std::map<std::uint64_t, int> in_bank;
    for (std::uint32_t thread = 0; thread < options.threads; ++thread) {
      EXPECT_TRUE(program.start(thread));
      std::vector<Operation> operations;
      program.run(thread, operations);
      std::uint64_t header = 0;
      for (const Operation& each : operations) {
        if (each.kind != Persist) continue;
        EXPECT_LT(each.value, program.bytes());
        header = each.value;
      }
      ++in_bank[header / 2048 % 8];
    }
    int most = 0;
    for (const auto& [bank, headers] : in_bank) most = std::max(most, headers);
    return most;
  };
  EXPECT_EQ(most_in_a_bank(0), 8);
  EXPECT_EQ(most_in_a_bank(2048), 1);
  EXPECT_EQ(most_in_a_bank(3072), 2) << "PMDK's lanes";
}

TEST(Transactions, NamesAreReadAsTheyAreWritten) {
  for (const StructureKind kind : kKinds) {
    EXPECT_EQ(*parse_structure(to_string(kind)), kind);
  }
  EXPECT_EQ(*parse_logging("undo-batched"), Logging::UndoBatched);
  EXPECT_EQ(parse_structure("heap").error().code, ErrorCode::InvalidArgument);
  EXPECT_EQ(parse_logging("").error().code, ErrorCode::InvalidArgument);
}

}  // namespace
}  // namespace perdure::workload
