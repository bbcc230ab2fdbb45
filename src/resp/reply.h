// Replies of Redis's protocol (RESP2), appended to what is to be sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace perdure::resp {

/// `text` has no line end.
void append_status(std::string& to, std::string_view text);
/// `text` begins with the kind of error ("ERR ..."). Line ends in it become spaces.
void append_error(std::string& to, std::string_view text);
void append_number(std::string& to, std::int64_t number);
void append_bulk(std::string& to, std::string_view bytes);
/// There is none.
void append_null(std::string& to);
/// So many replies follow as its elements.
void append_array(std::string& to, std::size_t count);

/// Whether `text` is what `pattern` says, as Redis's MATCH has it: * ? [a-z] [^a] and \ before a
/// letter that is meant. Cost: at most their lengths multiplied; takes no stack.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace perdure::resp
