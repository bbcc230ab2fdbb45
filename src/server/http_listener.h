// HttpListener: HTTP/1.1 requests that have come in whole, one per connection, and their answers.
// One thread waits for all connections; others answer. A requester that is slow, silent or endless
// costs a place in a table and a bounded piece of memory, never a thread:
//   - a request is in whole, and an answer taken, within a deadline, however its bytes drip;
//   - request line, headers and body have limits, and so has the number of headers;
//   - where all places are taken, or all of one address, whoever has been sending its request the
//     longest makes room for the next one;
//   - requests that decide who may write have workers and room of their own (Lane).
// docs/decisions/0010-http.md says why it stands on libmicrohttpd.
#pragma once

#include <perdure/result.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/clock.h"

namespace perdure::server {

struct HttpLimits {
  std::size_t connections_max = 256;
  std::size_t connections_per_address_max = 192;
  /// Of one request: the line and its headers, as they are kept. More is answered with 414 or 431.
  std::size_t header_bytes_max = 32 * 1024;
  std::size_t headers_max = 64;
  std::size_t body_bytes_max = 64 * 1024;
  Nanoseconds request_within = std::chrono::seconds{5};  // from the connection to its last byte
  Nanoseconds answer_within = std::chrono::seconds{5};   // from the first byte of it to the last
  std::size_t queued_max = 128;  // requests that wait for a worker, of each lane; more: 503
};

/// A request whose every byte is there.
struct ReceivedRequest {
  std::string method;
  std::string path;     // without the query; escapes are decoded
  std::string address;  // of the requester, without its port
  std::string authorization;
  std::string content_type;
  bool from_web_page = false;  // it carries an Origin
  bool compressed = false;
  bool too_large = false;  // the body was beyond the limit and is not kept
  std::string body;
};

struct HttpReply {
  int status = 200;
  std::string content_type;
  std::string body;
};

/// Who answers a request.
enum class Lane {
  Now,       // the thread that waits for everyone: what needs no lock and no medium
  Reserved,  // workers that nothing else can occupy
  Common,
};

struct HttpCounters {
  std::uint64_t connections = 0;  // now
  std::uint64_t accepted = 0;
  std::uint64_t slow = 0;         // closed: the request or its answer took too long
  std::uint64_t displaced = 0;    // closed for another one, with the request not in yet
  std::uint64_t full = 0;         // refused: every place was taken by a request that is in
  std::uint64_t busy = 0;         // answered 503: too many wait for a worker
  std::uint64_t descriptors = 0;  // accepting was put off for want of descriptors
};

/// An interface, although there is one implementation: nobody who includes this sees libmicrohttpd.
/// Threads: any.
class HttpListener {
 public:
  struct Options {
    std::string listen;  // host:port; port 0: any free one
    std::size_t workers = 4;
    std::size_t reserved_workers = 2;
    HttpLimits limits;
    std::function<Lane(const ReceivedRequest&)> lane;
    std::function<HttpReply(const ReceivedRequest&)> answer;  // by any of its threads
  };

  /// Errors: InvalidArgument (the address), Busy (the port is in use), SystemError.
  static Result<std::unique_ptr<HttpListener>> open(Options options);
  /// Accepts nobody any more; what has been asked is answered.
  virtual ~HttpListener() = default;

  virtual const std::string& address() const = 0;
  virtual HttpCounters counters() const = 0;
};

}  // namespace perdure::server
