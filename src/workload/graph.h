// Directed graphs and PageRank over them (Page et al., 1999), for programs that keep a graph in
// blocks elsewhere and fetch those again and again: figure 10 of *durable RPC*.
#pragma once

#include <perdure/result.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace perdure::workload {

/// Vertices from 0 on. Of vertex v go edges to targets[first[v]] up to targets[first[v + 1]].
struct Graph {
  std::vector<std::uint64_t> first = {0};  // one more than there are vertices
  std::vector<std::uint32_t> targets;

  std::uint32_t vertices() const { return static_cast<std::uint32_t>(first.size() - 1); }
  std::uint64_t edges() const { return targets.size(); }
  std::span<const std::uint32_t> edges_of(std::uint32_t vertex) const {
    return std::span(targets).subspan(first[vertex], first[vertex + 1] - first[vertex]);
  }
};

/// So many vertices, and so many edges between different ones, each once. How many edges begin, and
/// how many end, at a vertex has the distribution of a power law with exponent 3, as graphs that
/// grow by preference have it (Barabasi and Albert, 1999). The same seed gives the same graph.
/// Requires  edges <= vertices * (vertices - 1) / 8.
Graph generate_graph(std::uint32_t vertices, std::uint64_t edges, std::uint64_t seed);

/// Of a text file with an edge in each line: the numbers of two vertices, from and to, below 2^32,
/// with blanks, tabs or a comma between. Lines that begin with # or % are comments. Vertices are
/// numbered anew in the order of their numbers; an edge that comes twice is there once.
/// Errors: NotFound, PermissionDenied, SystemError: it can not be read; InvalidArgument: naming the
/// line, or there are no edges, or more than kGraphEdgesMax.
Result<Graph> read_edge_list(const std::string& path);
inline constexpr std::uint64_t kGraphEdgesMax = std::uint64_t{1} << 28;

/// The graph in blocks of so many bytes, one behind another, little-endian:
///
///   0     4    its number, from 0
///   4     4    bytes of its records
///   8     ..   records: u32 vertex, u32 how many edges the vertex has, u32 how many of them follow
///              here, u32 target of each; vertices without an edge have none
///
/// Requires  block_bytes >= kGraphBlockBytesMin, a multiple of 4.
std::vector<std::byte> graph_blocks(const Graph& graph, std::size_t block_bytes);
inline constexpr std::size_t kGraphBlockBytesMin = 64;

inline constexpr double kPageRankDamping = 0.85;

/// Ranks, by blocks that come in their order, all of them once in an iteration.
class PageRank {
 public:
  explicit PageRank(std::uint32_t vertices);
  /// Errors: Corrupt: it is no block of a graph with so many vertices.
  Result<void> add_block(std::span<const std::byte> block);
  void end_iteration();
  /// Of each vertex, after the last iteration that has ended; their sum is 1.
  const std::vector<double>& ranks() const { return ranks_; }

 private:
  std::vector<double> ranks_;
  std::vector<double> given_;  // to each vertex in this iteration
  double given_on_ = 0;        // ranks of those that have edges
};

/// The same of a graph that is here, computed from where edges end.
std::vector<double> page_rank(const Graph& graph, std::uint64_t iterations);

}  // namespace perdure::workload
