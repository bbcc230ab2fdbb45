// Fuzz target: every document of the control plane, and the HTTP answer around it.
//
//   offset  size  meaning of the input
//   0       1     which reader, see kReaders
//   1       ...   text
//
// What is read must be sound, and must be read the same from its own text again.
#include <cstdint>
#include <string_view>

#include "core/assert.h"
#include "peer/http_client.h"
#include "peer/json_codec.h"

namespace perdure::peer {
namespace {

template <typename Read, typename T>
void check_again(Read read, const T& value) {
  const auto again = read(encode(value));
  PERDURE_ASSERT(again.ok());
  PERDURE_ASSERT(*again == value);
}

void pool_request(std::string_view text) {
  const auto request = decode_pool_request(text);
  if (!request.ok()) return;
  PERDURE_ASSERT(validate(*request).ok());
  const auto again = decode_pool_request(encode(*request));
  PERDURE_ASSERT(again.ok());
  PERDURE_ASSERT(again->name == request->name);
  PERDURE_ASSERT(again->bytes == request->bytes);
}

void session_ask(std::string_view text) {
  const auto ask = decode_session_ask(text, "a");
  if (!ask.ok()) return;
  PERDURE_ASSERT(validate(ask->request).ok());
  const auto again = decode_session_ask(encode(*ask), "a");
  PERDURE_ASSERT(again.ok());
  PERDURE_ASSERT(again->request.writer == ask->request.writer);
  PERDURE_ASSERT(again->transport == ask->transport);
}

void fence(std::string_view text) {
  const auto epoch = decode_fence(text);
  if (epoch.ok()) PERDURE_ASSERT(*decode_fence(encode_fence(*epoch)) == *epoch);
  (void)decode_empty(text);
  (void)decode_accepted(text);
}

void pool(std::string_view text) {
  const auto pool = decode_pool(text);
  if (pool.ok()) check_again(decode_pool, *pool);
}

void pools(std::string_view text) {
  const auto pools = decode_pools(text);
  if (pools.ok()) check_again(decode_pools, *pools);
}

void grant(std::string_view text) {
  const auto grant = decode_grant(text);
  if (grant.ok()) check_again(decode_grant, *grant);
}

void session(std::string_view text) {
  const auto session = decode_session(text);
  if (session.ok()) check_again(decode_session, *session);
}

void service(std::string_view text) {
  const auto service = decode_service(text);
  if (service.ok()) check_again(decode_service, *service);
}

void error(std::string_view text) {
  const Error read = decode_error(text);
  const Error again = decode_error(encode(read));
  PERDURE_ASSERT(again.code == read.code);
  PERDURE_ASSERT(again.message == read.message);
}

void http(std::string_view text) {
  const auto answer = parse_http_answer(text);
  if (answer.ok()) PERDURE_ASSERT(answer->body.size() <= text.size());
}

constexpr void (*kReaders[])(std::string_view) = {pool_request, session_ask, fence,   pool,  pools,
                                                  grant,        session,     service, error, http};

void check(std::string_view input) {
  if (input.empty()) return;
  kReaders[static_cast<unsigned char>(input[0]) % std::size(kReaders)](input.substr(1));
}

}  // namespace
}  // namespace perdure::peer

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perdure::peer::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
