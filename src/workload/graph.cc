// Graphs and PageRank: see graph.h.
#include "workload/graph.h"

#include "core/assert.h"
#include "core/bytes.h"
#include "core/random.h"
#include "core/try.h"
#include "workload/shuffle.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <numeric>
#include <optional>
#include <string_view>
#include <system_error>

namespace perdure::workload {
namespace {

constexpr std::size_t kBlockHead = 8;
constexpr std::size_t kRecordHead = 12;
constexpr std::size_t kTargetBytes = 4;

using Edge = std::uint64_t;  // from, to: so they are in the order in which a graph has them
Edge edge(std::uint32_t from, std::uint32_t to) { return Edge{from} << 32 | to; }
std::uint32_t from_of(Edge each) { return static_cast<std::uint32_t>(each >> 32); }
std::uint32_t to_of(Edge each) { return static_cast<std::uint32_t>(each); }

void sort_once_each(std::vector<Edge>& edges) {
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
}

/// Of edges in their order.
Graph graph_of(std::uint32_t vertices, const std::vector<Edge>& edges) {
  Graph graph;
  graph.first.assign(std::size_t{vertices} + 1, 0);
  graph.targets.reserve(edges.size());
  for (const Edge each : edges) {
    ++graph.first[std::size_t{from_of(each)} + 1];
    graph.targets.push_back(to_of(each));
  }
  std::partial_sum(graph.first.begin(), graph.first.end(), graph.first.begin());
  return graph;
}

std::vector<std::uint32_t> shuffled(std::uint32_t count, Random& random) {
  std::vector<std::uint32_t> numbers(count);
  std::iota(numbers.begin(), numbers.end(), 0U);
  shuffle(numbers, random);
  return numbers;
}

/// Place i of `count` is drawn as often as 1 / sqrt(i + 1): then degrees have exponent 3.
std::uint32_t draw(std::uint32_t count, Random& random) {
  constexpr double kWhole = 0x1p53;
  const double part = static_cast<double>(random.next() >> 11) / kWhole;
  return static_cast<std::uint32_t>(part * part * count);
}

/// The next number of a line, which it is taken off.
std::optional<std::uint32_t> take_number(std::string_view& line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t,"), line.size()));
  std::uint32_t number = 0;
  const auto [end, wrong] = std::from_chars(line.data(), line.data() + line.size(), number);
  const bool apart =
      end == line.data() + line.size() || std::string_view(" \t,\r").find(*end) != line.npos;
  if (wrong != std::errc() || !apart) return std::nullopt;
  line.remove_prefix(static_cast<std::size_t>(end - line.data()));
  return number;
}

Error unreadable(const std::string& path) {
  const std::error_code why(errno, std::generic_category());
  ErrorCode code = ErrorCode::SystemError;
  if (errno == ENOENT) code = ErrorCode::NotFound;
  if (errno == EACCES) code = ErrorCode::PermissionDenied;
  return {code, fmt::format("{}: {}", path, why.message())};
}

/// Numbers vertices anew, without gaps. Returns how many there are.
std::uint32_t number_anew(std::vector<Edge>& edges) {
  std::vector<std::uint32_t> known;
  known.reserve(edges.size() * 2);
  for (const Edge each : edges) {
    known.push_back(from_of(each));
    known.push_back(to_of(each));
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  const auto place = [&](std::uint32_t number) {
    const auto at = std::lower_bound(known.begin(), known.end(), number);
    return static_cast<std::uint32_t>(at - known.begin());
  };
  for (Edge& each : edges) each = edge(place(from_of(each)), place(to_of(each)));
  return static_cast<std::uint32_t>(known.size());
}

/// Everybody gets the same of what is not given on, and of what vertices without edges have.
void finish(std::vector<double>& ranks, double given_on) {
  const auto count = static_cast<double>(ranks.size());
  const double all = (1 - kPageRankDamping + kPageRankDamping * (1 - given_on)) / count;
  for (double& rank : ranks) rank = all + kPageRankDamping * rank;
}

}  // namespace

Graph generate_graph(std::uint32_t vertices, std::uint64_t edges, std::uint64_t seed) {
  PERDURE_ASSERT(vertices > 1 && edges <= std::uint64_t{vertices} * (vertices - 1) / 8);
  Random random(seed);
  const auto sources = shuffled(vertices, random);
  const auto ends = shuffled(vertices, random);
  std::vector<Edge> drawn;
  while (drawn.size() < edges) {
    const std::uint64_t missing = edges - drawn.size();
    for (std::uint64_t i = 0; i < missing; ++i) {
      const std::uint32_t from = sources[draw(vertices, random)];
      const std::uint32_t to = ends[draw(vertices, random)];
      if (from != to) drawn.push_back(edge(from, to));
    }
    sort_once_each(drawn);
  }
  return graph_of(vertices, drawn);
}

Result<Graph> read_edge_list(const std::string& path) {
  errno = 0;
  std::ifstream file(path);
  if (!file) return unreadable(path);
  std::vector<Edge> edges;
  std::string text;
  for (std::uint64_t number = 1; std::getline(file, text); ++number) {
    std::string_view line = text;
    line.remove_prefix(std::min(line.find_first_not_of(" \t\r"), line.size()));
    if (line.empty() || line.front() == '#' || line.front() == '%') continue;
    const auto from = take_number(line);
    const auto to = from ? take_number(line) : std::nullopt;
    if (!to) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{}, line {}: it has not the numbers of two vertices, from and to, "
                               "below 2^32",
                               path, number)};
    }
    if (edges.size() == kGraphEdgesMax) {
      return Error{ErrorCode::InvalidArgument,
                   fmt::format("{} has more than {} edges", path, kGraphEdgesMax)};
    }
    edges.push_back(edge(*from, *to));
  }
  if (file.bad()) return unreadable(path);
  if (edges.empty()) return Error{ErrorCode::InvalidArgument, path + " has no edges"};
  const std::uint32_t vertices = number_anew(edges);
  sort_once_each(edges);
  return graph_of(vertices, edges);
}

std::vector<std::byte> graph_blocks(const Graph& graph, std::size_t block_bytes) {
  PERDURE_ASSERT(block_bytes >= kGraphBlockBytesMin && block_bytes % kTargetBytes == 0);
  std::vector<std::byte> blocks;
  std::size_t begin = 0;
  std::size_t at = block_bytes;  // in the block at `begin`
  std::uint32_t number = 0;
  const auto end_block = [&] {
    if (number == 0) return;
    store(blocks.data() + begin + 4, static_cast<std::uint32_t>(at - kBlockHead));
  };
  const auto add = [&](std::uint32_t word) {
    store(blocks.data() + begin + at, word);
    at += sizeof word;
  };
  for (std::uint32_t vertex = 0; vertex < graph.vertices(); ++vertex) {
    std::span<const std::uint32_t> left = graph.edges_of(vertex);
    const auto all = static_cast<std::uint32_t>(left.size());
    while (!left.empty()) {
      if (at + kRecordHead + kTargetBytes > block_bytes) {
        end_block();
        begin = blocks.size();
        blocks.resize(begin + block_bytes);
        store(blocks.data() + begin, number++);
        at = kBlockHead;
      }
      const std::size_t room = (block_bytes - at - kRecordHead) / kTargetBytes;
      const auto here = left.first(std::min(left.size(), room));
      add(vertex);
      add(all);
      add(static_cast<std::uint32_t>(here.size()));
      for (const std::uint32_t target : here) add(target);
      left = left.subspan(here.size());
    }
  }
  end_block();
  return blocks;
}

PageRank::PageRank(std::uint32_t vertices)
    : ranks_(vertices, 1.0 / std::max(vertices, 1U)), given_(vertices, 0) {}

Result<void> PageRank::add_block(std::span<const std::byte> block) {
  const Error wrong{ErrorCode::Corrupt, "no block of this graph"};
  if (block.size() < kBlockHead) return wrong;
  const std::size_t bytes = load<std::uint32_t>(block.data() + 4);
  if (bytes > block.size() - kBlockHead) return wrong;
  std::span<const std::byte> records = block.subspan(kBlockHead, bytes);
  while (!records.empty()) {
    if (records.size() < kRecordHead) return wrong;
    const auto vertex = load<std::uint32_t>(records.data());
    const auto edges = load<std::uint32_t>(records.data() + 4);
    const std::size_t here = load<std::uint32_t>(records.data() + 8);
    records = records.subspan(kRecordHead);
    const bool fits = here <= records.size() / kTargetBytes && here <= edges;
    if (vertex >= ranks_.size() || here == 0 || !fits) return wrong;
    const double each = ranks_[vertex] / edges;
    given_on_ += each * static_cast<double>(here);
    for (std::size_t i = 0; i < here; ++i) {
      const auto target = load<std::uint32_t>(records.data() + i * kTargetBytes);
      if (target >= given_.size()) return wrong;
      given_[target] += each;
    }
    records = records.subspan(here * kTargetBytes);
  }
  return {};
}

void PageRank::end_iteration() {
  finish(given_, given_on_);
  ranks_.swap(given_);
  std::fill(given_.begin(), given_.end(), 0);
  given_on_ = 0;
}

std::vector<double> page_rank(const Graph& graph, std::uint64_t iterations) {
  const std::uint32_t vertices = graph.vertices();
  std::vector<Edge> backwards;
  backwards.reserve(graph.edges());
  for (std::uint32_t from = 0; from < vertices; ++from) {
    for (const std::uint32_t to : graph.edges_of(from)) backwards.push_back(edge(to, from));
  }
  std::sort(backwards.begin(), backwards.end());
  const Graph sources = graph_of(vertices, backwards);
  std::vector<double> ranks(vertices, 1.0 / std::max(vertices, 1U));
  for (std::uint64_t iteration = 0; iteration < iterations; ++iteration) {
    std::vector<double> next(vertices, 0);
    double given_on = 0;
    for (std::uint32_t vertex = 0; vertex < vertices; ++vertex) {
      if (!graph.edges_of(vertex).empty()) given_on += ranks[vertex];
      for (const std::uint32_t source : sources.edges_of(vertex)) {
        next[vertex] += ranks[source] / static_cast<double>(graph.edges_of(source).size());
      }
    }
    finish(next, given_on);
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace perdure::workload
