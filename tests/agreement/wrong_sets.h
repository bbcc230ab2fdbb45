// Sets that look right and are not, one for each clause of the law of core/method_set.h.
#pragma once

#include "core/method_set.h"

#include <string>
#include <vector>

namespace perdure {

struct WrongSet {
  std::string name;
  std::vector<SetMember> members;
  ServerProfile profile;
  std::string breaks;           // the property, by its name in check
  std::string law;              // some words of the refusal
  bool right_in_order = false;  // where WRITEs keep their order
};

std::vector<WrongSet> wrong_sets();

}  // namespace perdure
