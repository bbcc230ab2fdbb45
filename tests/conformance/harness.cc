// See harness.h.
#include "harness.h"

#include "core/try.h"
#include "fabric/emu/live_device.h"
#include "fabric/ofi/ofi.h"
#include "fabric/shm/shm.h"
#include "fabric/verbs/verbs.h"

#include <chrono>
#include <cstdlib>

namespace perdure::conformance {
namespace {

/// A harness whose devices are opened alike everywhere and find each other by address alone.
Harness plain(std::string name, std::function<Result<std::unique_ptr<fabric::Device>>()> open) {
  Harness harness;
  harness.name = std::move(name);
  harness.open_in_process = open;
  harness.open = [open]() -> Result<Devices> {
    Devices devices;
    PERDURE_TRY(server, open());
    PERDURE_TRY(client, open());
    devices.server = std::move(server);
    devices.client = std::move(client);
    return devices;
  };
  return harness;
}

/// The emulated RNIC with all it can do: native FLUSH, ATOMIC WRITE, and what no real one has.
fabric::emu::LiveOptions emulated_machine(Transport transport) {
  fabric::emu::LiveOptions options;
  options.profile.transport = transport;
  options.profile.write_order = WriteOrder::Ordered;
  options.profile.capabilities = {
      .native_flush = true, .atomic_write = true, .ordered_persist = true, .send_flush = true};
  return options;
}

/// The emulated fabric: its machines have threads that work without anybody's poll.
Harness emulated(std::string name, const fabric::emu::LiveOptions& options) {
  Harness harness = plain(std::move(name), [options]() -> Result<std::unique_ptr<fabric::Device>> {
    PERDURE_TRY(device, fabric::emu::LiveDevice::open(options));
    return std::unique_ptr<fabric::Device>(std::move(device));
  });
  harness.responder_polls = false;
  harness.refuse_revocations = [](Devices& devices, bool refused) {
    dynamic_cast<fabric::emu::LiveDevice&>(*devices.server).refuse_revocations(refused);
  };
  harness.keeps_write_order = options.profile.write_order == WriteOrder::Ordered;
  harness.cqe_payload_bytes = options.switches.cqe_payload_bytes;
  harness.immediate_says_length = !options.switches.immediate_without_length;
  harness.immediate_bytes_missing = options.switches.immediate_bytes_missing;
  harness.reset = [](fabric::Device& device) {
    dynamic_cast<fabric::emu::LiveDevice&>(device).reset();
  };
  return harness;
}

/// It does what real ones do: WRITEs in any order, small messages in their completions, windows
/// that are bound to connections.
fabric::emu::LiveOptions unruly_machine() {
  fabric::emu::LiveOptions options = emulated_machine(Transport::Roce);
  options.profile.write_order = WriteOrder::Unknown;
  options.switches.cqe_payload_bytes = 64;
  options.switches.binds_windows = true;
  options.hold_max = std::chrono::microseconds(200);  // long enough to be seen by another thread
  return options;
}

/// Its completions of WRITE_WITH_IMM say 0 bytes.
fabric::emu::LiveOptions machine_without_length() {
  fabric::emu::LiveOptions options = emulated_machine(Transport::Roce);
  options.switches.immediate_without_length = true;
  return options;
}

/// They say too little, and it binds windows of a page at most.
fabric::emu::LiveOptions machine_with_less() {
  fabric::emu::LiveOptions options = emulated_machine(Transport::Roce);
  options.switches.immediate_bytes_missing = 3;
  options.switches.binds_windows = true;
  options.switches.window_bytes_max = 4096;
  return options;
}

/// The RNIC that PERDURE_TEST_RNIC names (a name or an address), where there is one: the lab.
std::vector<Harness> verbs() {
  const char* which = std::getenv("PERDURE_TEST_RNIC");
  if (which == nullptr) return {};
  Harness harness =
      plain("verbs", [name = std::string(which)] { return fabric::verbs::open_device(name); });
  harness.responder_polls = false;
  return {harness};
}

std::vector<Harness> all_harnesses() {
  std::vector<Harness> all = {
#ifdef PERDURE_WITH_LIBFABRIC
      plain("ofi_tcp", [] { return fabric::ofi::open_device(); }),
#endif
      plain("shm", [] { return fabric::shm::open_device(); }),
      emulated("emu_infiniband", emulated_machine(Transport::InfiniBand)),
      emulated("emu_iwarp", emulated_machine(Transport::Iwarp)),
      emulated("emu_unruly", unruly_machine()),
      emulated("emu_without_length", machine_without_length()),
      emulated("emu_with_less", machine_with_less()),
  };
  for (Harness& harness : verbs()) all.push_back(std::move(harness));
  return all;
}

}  // namespace

const std::vector<Harness>& harnesses() {
  static const std::vector<Harness> all = all_harnesses();
  return all;
}

const Harness* find_harness(const std::string& name) {
  for (const Harness& harness : harnesses()) {
    if (harness.name == name) return &harness;
  }
  return nullptr;
}

std::string harness_name(const ::testing::TestParamInfo<Harness>& info) { return info.param.name; }

}  // namespace perdure::conformance
