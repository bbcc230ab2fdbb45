#include "workload/graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "core/bytes.h"
#include "core/text_file.h"
#include "testing/temporary_directory.h"

namespace perdure::workload {
namespace {

/// Of its edges, in any order; vertices are numbered from 0 without gaps.
Graph graph_of(const std::string& edges) {
  const test::TestDirectory place;
  const std::string path = place.file("edges");
  EXPECT_TRUE(write_file(path, edges).ok());
  auto graph = read_edge_list(path);
  EXPECT_TRUE(graph.ok()) << (graph.ok() ? "" : graph.error().message);
  return graph.ok() ? std::move(*graph) : Graph{};
}

std::vector<double> ranks_by_blocks(const Graph& graph, std::size_t block_bytes,
                                    std::uint64_t iterations) {
  const std::vector<std::byte> blocks = graph_blocks(graph, block_bytes);
  PageRank ranks(graph.vertices());
  for (std::uint64_t iteration = 0; iteration < iterations; ++iteration) {
    for (std::size_t at = 0; at < blocks.size(); at += block_bytes) {
      EXPECT_EQ(load<std::uint32_t>(blocks.data() + at), at / block_bytes);
      EXPECT_TRUE(ranks.add_block(std::span(blocks).subspan(at, block_bytes)).ok());
    }
    ranks.end_iteration();
  }
  return ranks.ranks();
}

TEST(Graph, IsReadAsItStandsInItsFile) {
  const Graph graph = graph_of("# from to\n% another comment\n\n7 9\n9,7\r\n9\t 100\n7 9\n7 7\n");
  EXPECT_EQ(graph.first, (std::vector<std::uint64_t>{0, 2, 4, 4}));
  EXPECT_EQ(graph.targets, (std::vector<std::uint32_t>{0, 1, 0, 2}));
}

TEST(Graph, AFileThatIsNoneIsRefusedByTheLine) {
  const test::TestDirectory place;
  const std::string path = place.file("edges");
  EXPECT_EQ(read_edge_list(path).code(), ErrorCode::NotFound);
  EXPECT_FALSE(read_edge_list(place.path()).ok());  // a directory
  for (const char* wrong : {"1 2\n3\n", "1 2\nx 3\n", "1 2\n3 y\n", "1 2\n-3 4\n",
                            "1 2\n3 4294967296\n", "1 2\n3 4x\n", "1 2\n3x4\n"}) {
    ASSERT_TRUE(write_file(path, wrong).ok());
    const auto read = read_edge_list(path);
    ASSERT_EQ(read.code(), ErrorCode::InvalidArgument) << wrong;
    EXPECT_NE(read.error().message.find("line 2"), std::string::npos) << read.error().message;
  }
  ASSERT_TRUE(write_file(path, "# nothing\n").ok());
  EXPECT_NE(read_edge_list(path).error().message.find("no edges"), std::string::npos);
}

TEST(Graph, GeneratedOnesHaveWhatWasAskedForAndHubs) {
  const Graph graph = generate_graph(10'000, 72'000, 1);
  EXPECT_EQ(graph.vertices(), 10'000U);
  EXPECT_EQ(graph.edges(), 72'000U);
  std::vector<std::uint64_t> ends(graph.vertices());
  std::uint64_t most_begin = 0;
  for (std::uint32_t vertex = 0; vertex < graph.vertices(); ++vertex) {
    const auto edges = graph.edges_of(vertex);
    most_begin = std::max<std::uint64_t>(most_begin, edges.size());
    for (std::size_t i = 0; i < edges.size(); ++i) {
      EXPECT_NE(edges[i], vertex);
      EXPECT_TRUE(i == 0 || edges[i - 1] < edges[i]);
      ++ends[edges[i]];
    }
  }
  // By exponent 3 the hub has some sqrt(10,000) / 2 times the mean of 7.2; if all were alike, 20.
  EXPECT_GT(most_begin, 200U);
  EXPECT_GT(*std::max_element(ends.begin(), ends.end()), 200U);
  // With 4 times as many edges or more are 4 to the power of -2 of the vertices, not e to a power.
  const auto at_least = [&](std::uint64_t edges) {
    return std::count_if(ends.begin(), ends.end(), [=](auto each) { return each >= edges; });
  };
  const double tail = static_cast<double>(at_least(80)) / static_cast<double>(at_least(20));
  EXPECT_GT(tail, 1.0 / 32);
  EXPECT_LT(tail, 1.0 / 8);
  EXPECT_EQ(generate_graph(10'000, 72'000, 1).targets, graph.targets);
  EXPECT_NE(generate_graph(10'000, 72'000, 2).targets, graph.targets);
}

TEST(PageRank, IsWhatItsDefinitionSays) {
  // 0 -> 1 -> 2 -> 0, and 3 -> 2, which nothing leads to; 4 has no edge that begins there.
  const Graph graph = graph_of("0 1\n1 2\n2 0\n3 2\n0 4\n");
  const std::vector<double> once = page_rank(graph, 1);
  const double all = 0.15 / 5 + 0.85 * 0.2 / 5;  // what 4 has goes to all
  EXPECT_NEAR(once[0], all + 0.85 * 0.2, 1e-12);
  EXPECT_NEAR(once[1], all + 0.85 * 0.1, 1e-12);
  EXPECT_NEAR(once[2], all + 0.85 * 0.4, 1e-12);
  EXPECT_NEAR(once[3], all, 1e-12);
  EXPECT_NEAR(once[4], all + 0.85 * 0.1, 1e-12);
  // In the end another iteration changes nothing.
  const std::vector<double> last = page_rank(graph, 200);
  const std::vector<double> after = page_rank(graph, 201);
  for (std::size_t i = 0; i < last.size(); ++i) EXPECT_NEAR(last[i], after[i], 1e-12);
  // On a ring all have the same.
  for (const double rank : page_rank(graph_of("0 1\n1 2\n2 3\n3 0\n"), 7)) {
    EXPECT_NEAR(rank, 0.25, 1e-12);
  }
}

TEST(PageRank, ByBlocksIsThatOfTheGraph) {
  const Graph graph = generate_graph(2000, 20'000, 3);
  const std::vector<double> right = page_rank(graph, 4);
  EXPECT_NEAR(std::accumulate(right.begin(), right.end(), 0.0), 1, 1e-9);
  // In small blocks the edges of a hub are in many.
  for (const std::size_t bytes : {kGraphBlockBytesMin, std::size_t{256}, std::size_t{4096}}) {
    const std::vector<double> found = ranks_by_blocks(graph, bytes, 4);
    ASSERT_EQ(found.size(), right.size());
    for (std::size_t i = 0; i < right.size(); ++i) {
      ASSERT_NEAR(found[i], right[i], 1e-12) << bytes << ", vertex " << i;
    }
  }
}

// Each word of a block in turn is something else. Expect: that is refused, or is another graph's;
// nothing outside of the block or the ranks is touched.
TEST(PageRank, ABlockThatMakesNoSenseIsRefused) {
  const Graph graph = graph_of("0 1\n0 2\n1 2\n2 0\n");
  const std::vector<std::byte> good = graph_blocks(graph, 128);
  const auto refuses = [&](std::size_t at, std::uint32_t word) {
    std::vector<std::byte> block = good;
    store(block.data() + at, word);
    return !PageRank(graph.vertices()).add_block(block).ok();
  };
  EXPECT_FALSE(refuses(0, 7));             // whose number it is the server says
  EXPECT_TRUE(refuses(4, 128));            // longer than the block
  EXPECT_TRUE(refuses(4, 13));             // ends in a record
  EXPECT_TRUE(refuses(8, 3));              // a vertex that is not there
  EXPECT_TRUE(refuses(12, 1));             // fewer edges than follow
  EXPECT_TRUE(refuses(16, 0));             // a record of none
  EXPECT_TRUE(refuses(16, 0xffff'ffffU));  // more than there are
  EXPECT_TRUE(refuses(20, 3));             // to a vertex that is not there
  EXPECT_FALSE(PageRank(3).add_block(std::span(good).first(7)).ok());
  EXPECT_FALSE(PageRank(3).add_block({}).ok());
}

}  // namespace
}  // namespace perdure::workload
