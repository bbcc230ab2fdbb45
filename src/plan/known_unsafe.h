// Methods that look right and are not: what people run today, and what a hurried reading of the
// tables suggests. check shows each one's way to lose data; the documentation draws it.
#pragma once

#include "core/method.h"

#include <optional>
#include <string>
#include <vector>

namespace perdure::plan {

struct KnownUnsafe {
  Method method;
  ServerProfile profile;
  std::string breaks;                     // the property, by its name in check
  std::string why;                        // one sentence for a person
  std::optional<ServerProfile> right_on;  // where the same method is right, if anywhere
};

std::vector<KnownUnsafe> known_unsafe_methods();

}  // namespace perdure::plan
