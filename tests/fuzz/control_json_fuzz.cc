// Fuzz target: every document of the control plane, and the HTTP answer around it.
//
//   offset  size  meaning of the input
//   0       1     which reader, see kReaders
//   1       ...   text
//
// What is read must be sound, and must be read the same from its own text again.
#include <cstdint>
#include <string_view>

#include "control/http_client.h"
#include "control/json_codec.h"
#include "core/assert.h"

namespace perdure::control {
namespace {

template <typename Read, typename T>
void check_again(Read read, const T& value) {
  const auto again = read(encode(value));
  PERDURE_ASSERT(again.ok());
  PERDURE_ASSERT(*again == value);
}

void pool_request(std::string_view text) {
  const auto request = control::decode_pool_request(text);
  if (!request.ok()) return;
  PERDURE_ASSERT(validate(*request).ok());
  const auto again = control::decode_pool_request(encode(*request));
  PERDURE_ASSERT(again.ok());
  PERDURE_ASSERT(again->name == request->name);
  PERDURE_ASSERT(again->bytes == request->bytes);
  PERDURE_ASSERT(again->required_domain == request->required_domain);
  PERDURE_ASSERT(again->receive_buffers == request->receive_buffers);
}

void session_ask(std::string_view text) {
  const auto ask = control::decode_session_ask(text, "a");
  if (!ask.ok()) return;
  PERDURE_ASSERT(validate(ask->request).ok());
  const auto again = control::decode_session_ask(encode(*ask), "a");
  PERDURE_ASSERT(again.ok());
  PERDURE_ASSERT(again->request.writer == ask->request.writer);
  PERDURE_ASSERT(again->transport == ask->transport);
}

void fence(std::string_view text) {
  const auto epoch = control::decode_fence(text);
  if (epoch.ok()) PERDURE_ASSERT(*control::decode_fence(control::encode_fence(*epoch)) == *epoch);
  (void)control::decode_empty(text);
  (void)control::decode_accepted(text);
}

void pool(std::string_view text) {
  const auto pool = control::decode_pool(text);
  if (pool.ok()) check_again(control::decode_pool, *pool);
}

void pools(std::string_view text) {
  const auto pools = control::decode_pools(text);
  if (pools.ok()) check_again(control::decode_pools, *pools);
}

void grant(std::string_view text) {
  const auto grant = control::decode_grant(text);
  if (grant.ok()) check_again(control::decode_grant, *grant);
}

void session(std::string_view text) {
  const auto session = control::decode_session(text);
  if (session.ok()) check_again(control::decode_session, *session);
}

void service(std::string_view text) {
  const auto service = control::decode_service(text);
  if (service.ok()) check_again(control::decode_service, *service);
}

void error(std::string_view text) {
  const Error read = control::decode_error(text);
  const Error again = control::decode_error(encode(read));
  PERDURE_ASSERT(again.code == read.code);
  PERDURE_ASSERT(again.message == read.message);
}

void http(std::string_view text) {
  const auto answer = control::parse_http_answer(text);
  if (answer.ok()) PERDURE_ASSERT(answer->body.size() <= text.size());
}

constexpr void (*kReaders[])(std::string_view) = {pool_request, session_ask, fence,   pool,  pools,
                                                  grant,        session,     service, error, http};

void check(std::string_view input) {
  if (input.empty()) return;
  kReaders[static_cast<unsigned char>(input[0]) % std::size(kReaders)](input.substr(1));
}

}  // namespace
}  // namespace perdure::control

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  perdure::control::check({reinterpret_cast<const char*>(data), size});
  return 0;
}
