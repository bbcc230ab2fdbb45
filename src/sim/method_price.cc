#include "sim/method_price.h"

namespace perdure::sim {

Price price(const Method& method, const ServerProfile& profile, const Hardware& hardware,
            const PriceOptions& options) {
  return MethodMachine(method, profile, hardware, options).update(true);
}

}  // namespace perdure::sim
