// The words of a domain that is required: those of PersistenceDomain but for "none", which requires
// nothing and is said by leaving it out.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include <array>
#include <string_view>

#include "core/named.h"

namespace perdure {

/// Errors: InvalidArgument, naming the words.
inline Result<PersistenceDomain> parse_required_domain(std::string_view word) {
  using enum PersistenceDomain;
  return find_named("required domain", word, std::array{Page, Dmp, Mhp, Wsp});
}

}  // namespace perdure
