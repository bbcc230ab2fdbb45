// Finding a method by its name: those that are right somewhere, those of the papers, and the
// gallery of wrong ones.
#pragma once

#include <perdure/profile.h>
#include <perdure/result.h>

#include "core/method.h"

#include <optional>
#include <string>

namespace perdure::app {

/// The method of that name for `shape` (nothing: singleton, else compound, else any). Methods that
/// are right on `profile` come first: one name may stand for different steps on other responders.
/// Errors: InvalidArgument, with the nearest name.
Result<Method> find_method(const std::string& name, const ServerProfile& profile,
                           const std::optional<UpdateShape>& shape);

/// Every name with the shapes it has, a line each.
std::string list_methods();

}  // namespace perdure::app
