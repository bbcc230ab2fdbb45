// Fuzzes the requests of Redis's clients. The first byte says in what pieces they come: whatever
// they are, the requests are those of the whole, and what is kept stays within the limits.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "resp/reply.h"
#include "resp/request_parser.h"

namespace {

using perdure::resp::RequestLimits;
using perdure::resp::RequestParser;

constexpr RequestLimits kLimits{64, 256, 512, 128};

std::vector<std::vector<std::string>> read(std::string_view stream, std::size_t piece,
                                           std::string& error) {
  RequestParser parser(kLimits);
  std::vector<std::vector<std::string>> requests;
  while (!stream.empty() && error.empty()) {
    std::string_view input = stream.substr(0, piece);
    stream.remove_prefix(input.size());
    while (!input.empty() && error.empty()) {
      const std::size_t before = input.size();
      const auto step = parser.take(input);
      if (input.size() >= before && step != RequestParser::Step::Broken) std::abort();
      if (parser.kept_bytes() > kLimits.request_bytes_max + kLimits.inline_bytes_max) std::abort();
      if (step == RequestParser::Step::Broken) error = parser.error();
      if (step != RequestParser::Step::Request) continue;
      if (parser.arguments().empty()) std::abort();
      if (parser.arguments().size() > kLimits.arguments_max) std::abort();
      requests.push_back(parser.arguments());
    }
  }
  return requests;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const std::string_view stream(reinterpret_cast<const char*>(data + 1), size - 1);
  std::string error;
  std::string error_in_pieces;
  const auto requests = read(stream, stream.size(), error);
  if (requests != read(stream, std::max<std::size_t>(1, data[0]), error_in_pieces)) std::abort();
  if (error != error_in_pieces) std::abort();
  for (const auto& words : requests) {
    std::string reply;
    perdure::resp::append_error(reply, words.back());
    if (reply.find('\n') != reply.size() - 1) std::abort();
    (void)perdure::resp::matches(words.front(), words.back());
  }
  return 0;
}
