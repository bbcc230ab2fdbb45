// nlohmann::json, instantiated once: whoever includes this compiles a fifth less of it.
#pragma once

#include <nlohmann/json.hpp>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;
