// What librpma takes for what it was made for: a WRITE of 64 bytes and a flush to visibility, until
// the flush completes, between two processes of one machine. Prints the median in microseconds.
//
//   perdure_lab_rpma_lat serve ADDRESS PORT            until its peer leaves
//   perdure_lab_rpma_lat ask ADDRESS PORT ROUNDS
#include <librpma.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::size_t kBytes = 64;
constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kDescriptorBytesMax = 64;
constexpr auto kRoundMax = std::chrono::seconds(10);

alignas(kPageBytes) std::array<std::byte, kPageBytes> page;

/// Ends the program, which then ends its connection, if librpma refused.
void must(const char* call, int returned) {
  if (returned == 0) return;
  std::fprintf(stderr, "rpma_lat: %s: %s\n", call, rpma_err_2str(returned));
  std::exit(1);
}

rpma_peer* open_peer(const char* address, rpma_util_ibv_context_type end) {
  ibv_context* device = nullptr;
  rpma_peer* peer = nullptr;
  must("rpma_utils_get_ibv_context", rpma_utils_get_ibv_context(address, end, &device));
  must("rpma_peer_new", rpma_peer_new(device, &peer));
  return peer;
}

rpma_conn* established(rpma_conn_req* request, const rpma_conn_private_data* data) {
  rpma_conn* connection = nullptr;
  rpma_conn_event event = RPMA_CONN_UNDEFINED;
  must("rpma_conn_req_connect", rpma_conn_req_connect(&request, data, &connection));
  must("rpma_conn_next_event", rpma_conn_next_event(connection, &event));
  if (event == RPMA_CONN_ESTABLISHED) return connection;
  std::fprintf(stderr, "rpma_lat: not connected: %s\n", rpma_utils_conn_event_2str(event));
  std::exit(1);
}

void serve(const char* address, const char* port) {
  rpma_peer* peer = open_peer(address, RPMA_UTIL_IBV_CONTEXT_LOCAL);
  rpma_mr_local* memory = nullptr;
  must("rpma_mr_reg", rpma_mr_reg(peer, page.data(), page.size(),
                                  RPMA_MR_USAGE_WRITE_DST | RPMA_MR_USAGE_READ_SRC |
                                      RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
                                  &memory));
  std::array<std::byte, kDescriptorBytesMax> descriptor;
  std::size_t bytes = 0;
  must("rpma_mr_get_descriptor_size", rpma_mr_get_descriptor_size(memory, &bytes));
  if (bytes > descriptor.size()) must("rpma_mr_get_descriptor_size", RPMA_E_NOSUPP);
  must("rpma_mr_get_descriptor", rpma_mr_get_descriptor(memory, descriptor.data()));

  rpma_ep* endpoint = nullptr;
  rpma_conn_req* request = nullptr;
  must("rpma_ep_listen", rpma_ep_listen(peer, address, port, &endpoint));
  must("rpma_ep_next_conn_req", rpma_ep_next_conn_req(endpoint, nullptr, &request));
  const rpma_conn_private_data data{descriptor.data(), static_cast<std::uint8_t>(bytes)};
  rpma_conn* connection = established(request, &data);
  rpma_conn_event event = RPMA_CONN_UNDEFINED;
  must("rpma_conn_next_event", rpma_conn_next_event(connection, &event));  // it left
  must("rpma_conn_disconnect", rpma_conn_disconnect(connection));
  must("rpma_conn_delete", rpma_conn_delete(&connection));
  must("rpma_ep_shutdown", rpma_ep_shutdown(&endpoint));
  must("rpma_mr_dereg", rpma_mr_dereg(&memory));
  must("rpma_peer_delete", rpma_peer_delete(&peer));
}

/// One WRITE with its flush. Microseconds.
double round_us(rpma_conn* connection, rpma_mr_remote* there, rpma_mr_local* here, rpma_cq* queue) {
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  must("rpma_write",
       rpma_write(connection, there, 0, here, 0, kBytes, RPMA_F_COMPLETION_ON_ERROR, nullptr));
  must("rpma_flush", rpma_flush(connection, there, 0, kBytes, RPMA_FLUSH_TYPE_VISIBILITY,
                                RPMA_F_COMPLETION_ALWAYS, nullptr));
  ibv_wc done{};
  int returned = RPMA_E_NO_COMPLETION;
  while (returned == RPMA_E_NO_COMPLETION && Clock::now() - begin < kRoundMax) {
    returned = rpma_cq_get_wc(queue, 1, &done, nullptr);
  }
  must("rpma_cq_get_wc", returned);
  if (done.status != IBV_WC_SUCCESS) {
    std::fprintf(stderr, "rpma_lat: a flush failed: %s\n", ibv_wc_status_str(done.status));
    std::exit(1);
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - begin).count();
}

void ask(const char* address, const char* port, std::size_t rounds) {
  rpma_peer* peer = open_peer(address, RPMA_UTIL_IBV_CONTEXT_REMOTE);
  rpma_mr_local* here = nullptr;
  rpma_conn_req* request = nullptr;
  must("rpma_mr_reg", rpma_mr_reg(peer, page.data(), page.size(), RPMA_MR_USAGE_WRITE_SRC, &here));
  must("rpma_conn_req_new", rpma_conn_req_new(peer, address, port, nullptr, &request));
  rpma_conn* connection = established(request, nullptr);
  rpma_conn_private_data data{};
  must("rpma_conn_get_private_data", rpma_conn_get_private_data(connection, &data));
  rpma_mr_remote* there = nullptr;
  rpma_cq* queue = nullptr;
  must("rpma_mr_remote_from_descriptor",
       rpma_mr_remote_from_descriptor(data.ptr, data.len, &there));
  must("rpma_conn_get_cq", rpma_conn_get_cq(connection, &queue));

  for (std::size_t i = 0; i < rounds / 5; ++i) round_us(connection, there, here, queue);
  std::vector<double> times;
  for (std::size_t i = 0; i < rounds; ++i) {
    times.push_back(round_us(connection, there, here, queue));
  }
  std::sort(times.begin(), times.end());
  std::printf("median_us %.1f\n", times[times.size() / 2]);
  must("rpma_mr_remote_delete", rpma_mr_remote_delete(&there));
  must("rpma_conn_disconnect", rpma_conn_disconnect(connection));
  must("rpma_conn_delete", rpma_conn_delete(&connection));
  must("rpma_mr_dereg", rpma_mr_dereg(&here));
  must("rpma_peer_delete", rpma_peer_delete(&peer));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view word = argc > 1 ? argv[1] : "";
  if (word == "serve" && argc == 4) {
    serve(argv[2], argv[3]);
  } else if (word == "ask" && argc == 5) {
    ask(argv[2], argv[3], std::max<std::size_t>(std::strtoul(argv[4], nullptr, 10), 1));
  } else {
    std::fprintf(stderr,
                 "usage: perdure_lab_rpma_lat serve ADDRESS PORT | "
                 "ask ADDRESS PORT ROUNDS\n");
    return 2;
  }
  return 0;
}
