// The price of a method: its steps, one after the other, on modelled hardware. One update on an
// idle connection; what is priced is the same description that the checker proves.
#pragma once

#include <perdure/profile.h>

#include "core/hardware.h"
#include "core/method.h"

#include <string>
#include <vector>

namespace perdure::sim {

struct PriceOptions {
  double item_bytes = 64;       // of items of the first epoch
  double later_item_bytes = 8;  // of items of later epochs
};

/// Something that happened, for people.
struct PricedEvent {
  double at_ns = 0;
  std::string what;
};

struct Price {
  double latency_ns = 0;            // from the first post to the last wait's end
  double responder_ns = 0;          // of the responder's CPU
  std::vector<PricedEvent> events;  // in the order of time
};

/// Requires  validate(method) succeeded.
Price price(const Method& method, const ServerProfile& profile, const Hardware& hardware,
            const PriceOptions& options);

}  // namespace perdure::sim
