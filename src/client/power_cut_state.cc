// The text in which a PowerCutRun waits for the peer to come back.
#include "client/power_cut.h"
#include "control/json_fields.h"
#include "core/json.h"
#include "core/try.h"

namespace perdure::client {
namespace {

constexpr std::uint64_t kAny = std::uint64_t{1} << 53;  // as far as JSON's numbers are exact

}  // namespace

std::string write_state(const PowerCutRun& run) {
  nlohmann::ordered_json json{{"format", 1},
                              {"peer", run.peer},
                              {"pool", run.pool},
                              {"uuid", run.uuid},
                              {"boot", run.start.boot},
                              {"asked_on", run.start.asked_on},
                              {"epoch", control::hexadecimal(run.epoch)},
                              {"seed", control::hexadecimal(run.seed)},
                              {"slots", run.slots},
                              {"short_bytes", run.lengths[0]},
                              {"middle_bytes", run.lengths[1]},
                              {"long_bytes", run.lengths[2]},
                              {"methods", run.methods},
                              {"acknowledged", run.acknowledged},
                              {"begun", run.begun},
                              {"ended", run.ended},
                              {"lost_reason", run.lost_reason},
                              {"gone", run.gone},
                              {"watched", run.watched},
                              {"checked", run.checked},
                              {"counted", run.counted},
                              {"cuts_checked", run.cuts_checked}};
  if (run.start.up_s) json["kernel_up_s"] = *run.start.up_s;
  if (run.start.asked_s) json["asked_s"] = *run.start.asked_s;
  if (run.noticed_ns) json["noticed_ns"] = *run.noticed_ns;
  return json_text(json, 2) + "\n";
}

Result<PowerCutRun> read_state(std::string_view text) {
  constexpr std::size_t kTextMax = 4096;
  PERDURE_TRY(json, control::parse_json_object(text, control::kJsonBytesMax));
  control::JsonFields fields(json, "state of a power cut");
  fields.format(true);
  PowerCutRun run;
  run.peer = fields.text("peer", kTextMax);
  run.pool = fields.text("pool", kTextMax);
  run.uuid = fields.text("uuid", kTextMax);
  run.start.boot = fields.text("boot", kTextMax);
  run.epoch = fields.hex("epoch");
  run.seed = fields.hex("seed");
  run.slots = fields.number("slots", kPowerCutSlotsMax);
  run.lengths = {fields.number("short_bytes", kPowerCutSlotBytes),
                 fields.number("middle_bytes", kPowerCutSlotBytes),
                 fields.number("long_bytes", kPowerCutSlotBytes)};
  run.methods = fields.text("methods", kTextMax);
  run.acknowledged = fields.number("acknowledged", kAny);
  run.begun = fields.number("begun", kAny);
  run.ended = fields.flag("ended");
  run.lost_reason = fields.text("lost_reason", kTextMax);
  run.gone = fields.has("gone") ? fields.flag("gone") : fields.has("noticed_ns");
  const bool watched = fields.has("watched") && fields.flag("watched");
  run.watched = watched && fields.has("gone");  // before, a container that came back was enough
  run.checked = fields.flag("checked");
  run.counted = fields.has("counted") && fields.flag("counted");
  run.cuts_checked = fields.number("cuts_checked", kAny);
  if (fields.has("kernel_started_s")) (void)fields.number("kernel_started_s", kAny);  // of before
  if (fields.has("kernel_up_s")) run.start.up_s = fields.number("kernel_up_s", kAny);
  if (fields.has("asked_on")) run.start.asked_on = fields.text("asked_on", kTextMax);
  if (fields.has("asked_s")) run.start.asked_s = fields.number("asked_s", kAny);
  if (fields.has("noticed_ns")) run.noticed_ns = fields.number("noticed_ns", kAny);
  if (run.slots < kPowerCutSlotsMin) fields.fail("slots", "is too few");
  if (run.begun < run.acknowledged) fields.fail("begun", "is below what was acknowledged");
  for (const std::uint64_t length : run.lengths) {
    if (length == 0 || length % sizeof(std::uint64_t) != 0)
      fields.fail("long_bytes", "with its siblings: a multiple of 8 bytes, and at least 8");
  }
  PERDURE_TRY_VOID(fields.finish());
  return run;
}

}  // namespace perdure::client
