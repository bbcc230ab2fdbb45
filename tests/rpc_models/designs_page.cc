#include "designs_page.h"

#include "rpc/models/design.h"

#include <fmt/format.h>

namespace perdure::rpc::models {
namespace {

constexpr const char* kIntroduction = R"(# RPC designs over RDMA

<!-- Generated: PERDURE_UPDATE_GOLDEN=1 build/test/tests/rpc_models/perdure_rpc_designs_test --gtest_filter='RpcDesignsPage.*' -->

What [durable RPC](rpc.md) is compared with: the systems of table 1 and figure 2 of the *durable RPC* paper (Duan et al.,
SC 2021), each as a client and a server over the fabric interface, written from its description (`src/rpc/models`, a file for each).
They are not part of the library. A reply says that the handler ran. Beside them stand the paper's own four, in which a call is
durable before it is executed: SFlush-RPC, S-RFlush-RPC, WFlush-RPC, W-RFlush-RPC.

Every design passes one suite (`tests/rpc_models`): thousands of calls (100,000 with `PERDURE_SOAK=1`) of 1 B up to what it takes, with
1 to 16 in flight, in the emulated world, over shm and over tcp; each reply is compared with that of a local execution, what is read
is the last acknowledged write, and the verbs that both ends have used are those that the design declares. From that declaration the
diagrams below are drawn. Designs with a bug (the reply of the call before, a slot reused too early, a checksum ignored, a request
executed twice, a WRITE that is not declared) do not pass. Of the durable four, the power of the server is cut at random events in the
emulated world: each call that its client knows to be durable was executed, or is whole in the server's persistent memory.

## What all of them have in common here

- **Window.** Up to 16 calls in flight; which number is an option, the same for all. The published artifact of the paper gives its
  own designs 4 and the others 1.
- **Copies.** A request is copied into registered memory, and a reply out of it; the handler runs on the request where it lies.
- **A message is whole when its checksum is right.** The published systems that poll memory look for a length in front and a byte
  behind, and count on one WRITE's being placed from front to back. The verbs promise that nowhere, and the emulated fabric does not
  do it. So a frame carries the call's sequence and a CRC32C (`src/rpc/models/frame.h`). It costs computing it, and no verb.
- **Every request is signalled**, nothing is inline, and one connection is one completion queue. Selective signalling, doorbell batching and
  what designs share among connections are left out of all of them alike.
- **Without an order of WRITEs** no design is promised to work; the last column says which fail there within some hundred calls. In 25,000
  calls there ScaleRPC once got no reply (call 2229 of one of four seeds), and why is not established.
- **Confounders.** What the published artifact does otherwise, and what moves its figures, is off and can be switched on one at a
  time (`Confounders` in `src/rpc/models/end.h`).
- **No speed is claimed here.** These are the designs, not the bench.

## The designs

| design | requests are | verbs of a call | payload, at most | needs ordered WRITEs |
| --- | --- | --- | --- | --- |
)";

/// Of its heading, as GitHub makes it.
std::string anchor(const Design& design) {
  std::string name(design.title);
  for (char& c : name) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return name;
}

std::string row(const Design& design) {
  return fmt::format("| [{}](#{}) | {}s | {} | {} B | {} |\n", design.title, anchor(design),
                     to_string(design.family), verbs_of(design), design.payload_bytes_max,
                     design.needs_write_order ? "yes" : "no");
}

std::string list(std::string_view title, std::span<const std::string_view> lines) {
  std::string text = fmt::format("{}\n\n", title);
  for (const std::string_view line : lines) text += fmt::format("- {}\n", line);
  return text + "\n";
}

std::string section(const Design& design) {
  return fmt::format("## {}\n\n```\n{}```\n\n{}{}", design.title, diagram(design),
                     list("From:", design.sources), list("Otherwise here:", design.departures));
}

}  // namespace

std::string designs_page() {
  std::string text = kIntroduction;
  for (const Design* design : designs()) text += row(*design);
  text += "\n";
  for (const Design* design : designs()) text += section(*design);
  text.pop_back();
  return text;
}

}  // namespace perdure::rpc::models
