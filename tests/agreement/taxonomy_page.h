// The page docs/taxonomy.md, written from the methods and the checker's reports.
#pragma once

#include <string>

namespace perdure {

/// The whole page as Markdown. Cost: checks every scenario, well under a second.
std::string taxonomy_page();

}  // namespace perdure
