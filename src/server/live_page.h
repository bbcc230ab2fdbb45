// The page that a browser gets from a perdured: pools and sessions, renewed every two seconds, and
// how the pools' numbers went over the last ten minutes that the page was open.
#pragma once

#include <string>
#include <string_view>

namespace perdure::server {

/// Complete in itself: it loads nothing but this daemon's JSON and metrics.
std::string live_page();

/// The part of its script that touches no document: from the text of /metrics to curves.
std::string_view live_page_numbers();

}  // namespace perdure::server
