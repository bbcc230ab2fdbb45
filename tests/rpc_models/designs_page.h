// The page docs/rpc-designs.md, written from what the designs declare.
#pragma once

#include <string>

namespace perdure::rpc::models {

/// The whole page as Markdown.
std::string designs_page();

}  // namespace perdure::rpc::models
