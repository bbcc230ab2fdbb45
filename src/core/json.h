// nlohmann::json, instantiated once: whoever includes this compiles a fifth less of it.
#pragma once

#include <nlohmann/json.hpp>

#include <string>
#include <string_view>

extern template class nlohmann::basic_json<>;
extern template class nlohmann::basic_json<nlohmann::ordered_map>;

namespace perdure {

/// `document` as text: one line, or with `indent` spaces for each level. A string that is not UTF-8
/// (a file's name, what a peer says) is shown with replacement characters; nlohmann's own dump()
/// throws.
std::string json_text(const nlohmann::json& document, int indent = -1);
std::string json_text(const nlohmann::ordered_json& document, int indent = -1);

/// Whether json_text() shows `text` as it is. Payloads that are not have to be encoded.
bool is_utf8(std::string_view text);

}  // namespace perdure
