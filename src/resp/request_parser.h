// Requests of Redis's protocol (RESP2), read from a stream in whatever pieces it comes.
//
//   *2\r\n$3\r\nGET\r\n$1\r\nk\r\n     an array of byte strings: the name of a command, its
//   arguments GET "k"\r\n                        inline: words, with quotes as redis-cli has them
//
// Nothing of the stream is trusted. What is kept is what has come, and at most the limits below: a
// length that is announced reserves nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perdure::resp {

struct RequestLimits {
  std::size_t arguments_max = 4096;  // of one request, the command among them
  std::size_t argument_bytes_max = 1024 * 1024;
  std::size_t request_bytes_max = 2 * 1024 * 1024;  // of all arguments of one request
  std::size_t inline_bytes_max = 4096;
};

/// Threads: one caller at a time.
class RequestParser {
 public:
  enum class Step {
    More,     // all of the input is taken, and no request ends in it
    Request,  // arguments() has one, of at least one word
    Broken,   // error() says why; nothing that follows can be read any more
  };

  explicit RequestParser(const RequestLimits& limits = {}) : limits_(limits) {}

  /// Takes bytes from the front of `input`, up to the end of one request. Empty requests are
  /// skipped, as Redis does. Cost: each byte is copied once.
  Step take(std::string_view& input);

  /// Of the last request; valid until the next take(), and may be moved from.
  std::vector<std::string>& arguments() { return arguments_; }
  /// "Protocol error: ...", worded as Redis words it where Redis knows the case.
  const std::string& error() const { return error_; }
  /// Whether it is within a request: silence now is that of half a command.
  bool within_request() const { return state_ != State::Begin || !line_.empty(); }
  /// Bytes of an unfinished request that are kept.
  std::size_t kept_bytes() const { return line_.size() + request_bytes_; }

 private:
  enum class State { Begin, Count, Length, Body, BodyEnd, Inline, Broken };

  bool take_line(std::string_view& input, std::size_t bytes_max);
  Step take_count();
  Step take_length();
  void take_body(std::string_view& input);
  Step take_body_end(std::string_view& input);
  Step take_inline();
  Step fail(std::string text);
  Step finish_argument();

  RequestLimits limits_;
  State state_ = State::Begin;
  std::string line_;  // of a count, a length or an inline request, as far as it has come
  bool line_ended_ = false;
  std::size_t arguments_left_ = 0;
  std::size_t body_left_ = 0;
  std::size_t request_bytes_ = 0;
  std::vector<std::string> arguments_;
  std::string error_;
};

/// The words of an inline request; false: its quotes are not balanced.
bool split_words(std::string_view line, std::vector<std::string>& words);

}  // namespace perdure::resp
