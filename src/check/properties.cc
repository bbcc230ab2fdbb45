// The names of the properties.
#include "check/properties.h"

namespace perdure::check {

std::string_view to_string(Property property) {
  switch (property) {
    case Property::AcknowledgedImpliesDurable: return "acknowledged-implies-durable";
    case Property::LaterImpliesEarlier: return "later-implies-earlier";
    case Property::NothingTorn: return "nothing-torn";
    case Property::ReplayIsIdempotent: return "replay-is-idempotent";
    case Property::AlwaysCompletes: return "always-completes";
    case Property::SometimesAcknowledged: return "sometimes-acknowledged";
  }
  return "unknown";
}

}  // namespace perdure::check
