// Golden files: text that must stay as it is unless a commit says why it changed.
#pragma once

#include <string>

namespace perdure {

/// Compares `actual` with tests/agreement/golden/`name`. With PERDURE_UPDATE_GOLDEN set in the
/// environment it writes the file first, so that the change shows in the diff.
void expect_golden(const std::string& name, const std::string& actual);

}  // namespace perdure
