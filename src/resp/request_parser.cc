// Requests of Redis's protocol: see request_parser.h.
#include "resp/request_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

namespace perdure::resp {
namespace {

// "*" or "$", a sign, the digits of an int64, and the carriage return.
constexpr std::size_t kNumberBytesMax = 32;

/// The number of a line such as "*12".
std::optional<std::int64_t> number_of(std::string_view line) {
  std::int64_t number = 0;
  const char* const begin = line.data() + 1;
  const char* const end = line.data() + line.size();
  const auto [stop, error] = std::from_chars(begin, end, number);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return number;
}

bool is_space(char letter) { return letter == ' ' || (letter >= '\t' && letter <= '\r'); }

int hex_digit(char letter) {
  if (letter >= '0' && letter <= '9') return letter - '0';
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  if (letter >= 'A' && letter <= 'F') return letter - 'A' + 10;
  return -1;
}

/// What stands behind a backslash within double quotes, from `at`; `at` is then its last letter.
char escaped(std::string_view line, std::size_t& at) {
  if (line[at] == 'x' && at + 2 < line.size()) {
    const int high = hex_digit(line[at + 1]);
    const int low = hex_digit(line[at + 2]);
    if (high >= 0 && low >= 0) {
      at += 2;
      return static_cast<char>(high * 16 + low);
    }
  }
  switch (line[at]) {
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    case 'b': return '\b';
    case 'a': return '\a';
    default: return line[at];
  }
}

/// A quoted part from behind its opening quote; `at` is then behind the closing one.
bool take_quoted(std::string_view line, char quote, std::size_t& at, std::string& word) {
  for (; at < line.size() && line[at] != quote; ++at) {
    if (line[at] == '\\' && at + 1 < line.size()) {
      if (quote == '"') {
        ++at;
        word += escaped(line, at);
        continue;
      }
      if (line[at + 1] == quote) ++at;
    }
    word += line[at];
  }
  if (at == line.size()) return false;
  ++at;
  return at == line.size() || is_space(line[at]);  // nothing may touch the closing quote
}

}  // namespace

bool split_words(std::string_view line, std::vector<std::string>& words) {
  std::size_t at = 0;
  while (true) {
    while (at < line.size() && is_space(line[at])) ++at;
    if (at == line.size()) return true;
    std::string word;
    while (at < line.size() && !is_space(line[at])) {
      const char letter = line[at++];
      if (letter != '"' && letter != '\'') {
        word += letter;
      } else if (!take_quoted(line, letter, at, word)) {
        return false;
      }
    }
    words.push_back(std::move(word));
  }
}

RequestParser::Step RequestParser::fail(std::string text) {
  state_ = State::Broken;
  error_ = "Protocol error: " + std::move(text);
  arguments_.clear();
  line_.clear();
  return Step::Broken;
}

/// Moves bytes to line_ until it has ended; its end is left out. False: it has not ended yet, or is
/// longer than `bytes_max`.
bool RequestParser::take_line(std::string_view& input, std::size_t bytes_max) {
  const std::size_t room = bytes_max - std::min(bytes_max, line_.size());
  const std::string_view near = input.substr(0, room);
  const std::size_t end = near.find('\n');
  line_ended_ = end != std::string_view::npos;
  const std::size_t taken = line_ended_ ? end + 1 : near.size();
  line_.append(near.substr(0, line_ended_ ? end : taken));
  input.remove_prefix(taken);
  if (line_ended_ && !line_.empty() && line_.back() == '\r') line_.pop_back();
  return line_ended_;
}

RequestParser::Step RequestParser::take(std::string_view& input) {
  if (state_ == State::Broken) return Step::Broken;
  if (state_ == State::Begin && line_.empty()) {
    arguments_.clear();
    request_bytes_ = 0;
  }
  while (!input.empty()) {
    Step step = Step::More;
    switch (state_) {
      case State::Begin: state_ = input.front() == '*' ? State::Count : State::Inline; break;
      case State::Count:
        if (take_line(input, kNumberBytesMax))
          step = take_count();
        else if (line_.size() >= kNumberBytesMax)
          step = fail("too big mbulk count string");
        break;
      case State::Length:
        if (take_line(input, kNumberBytesMax))
          step = take_length();
        else if (line_.size() >= kNumberBytesMax)
          step = fail("too big bulk count string");
        break;
      case State::Body: take_body(input); break;
      case State::BodyEnd: step = take_body_end(input); break;
      case State::Inline:
        if (take_line(input, limits_.inline_bytes_max))
          step = take_inline();
        else if (line_.size() >= limits_.inline_bytes_max)
          step = fail("too big inline request");
        break;
      case State::Broken: return Step::Broken;
    }
    if (step != Step::More) return step;
  }
  return Step::More;
}

RequestParser::Step RequestParser::take_count() {
  const auto count = number_of(line_);
  line_.clear();
  if (!count || *count > static_cast<std::int64_t>(limits_.arguments_max)) {
    return fail("invalid multibulk length");
  }
  state_ = *count > 0 ? State::Length : State::Begin;
  arguments_left_ = *count > 0 ? static_cast<std::size_t>(*count) : 0;
  return Step::More;
}

RequestParser::Step RequestParser::take_length() {
  if (line_.empty() || line_.front() != '$') {
    const char got = line_.empty() ? '\r' : line_.front();
    const bool shown = got > ' ' && got < 127;
    return fail(fmt::format("expected '$', got '{}'", shown ? got : ' '));
  }
  const auto length = number_of(line_);
  line_.clear();
  if (!length || *length < 0) return fail("invalid bulk length");
  if (*length > static_cast<std::int64_t>(limits_.argument_bytes_max)) {
    return fail(fmt::format("invalid bulk length: {}, and {} at most", *length,
                            limits_.argument_bytes_max));
  }
  body_left_ = static_cast<std::size_t>(*length);
  if (body_left_ > limits_.request_bytes_max - request_bytes_) {
    return fail(fmt::format("a request of more than {} bytes", limits_.request_bytes_max));
  }
  arguments_.emplace_back();
  state_ = body_left_ > 0 ? State::Body : State::BodyEnd;
  return Step::More;
}

void RequestParser::take_body(std::string_view& input) {
  const std::size_t taken = std::min(body_left_, input.size());
  arguments_.back().append(input.substr(0, taken));
  input.remove_prefix(taken);
  request_bytes_ += taken;
  body_left_ -= taken;
  if (body_left_ == 0) state_ = State::BodyEnd;
}

/// The line end behind a body: nothing else may stand there, so a wrong length is found at once.
RequestParser::Step RequestParser::take_body_end(std::string_view& input) {
  const char wanted = line_.empty() ? '\r' : '\n';
  if (input.front() != wanted) return fail("expected a line end behind a bulk string");
  input.remove_prefix(1);
  if (line_.empty()) {
    line_ = "\r";
    return Step::More;
  }
  line_.clear();
  return finish_argument();
}

RequestParser::Step RequestParser::finish_argument() {
  --arguments_left_;
  state_ = arguments_left_ > 0 ? State::Length : State::Begin;
  return arguments_left_ > 0 ? Step::More : Step::Request;
}

RequestParser::Step RequestParser::take_inline() {
  const std::string line = std::exchange(line_, {});
  state_ = State::Begin;
  if (!split_words(line, arguments_)) return fail("unbalanced quotes in request");
  return arguments_.empty() ? Step::More : Step::Request;
}

}  // namespace perdure::resp
