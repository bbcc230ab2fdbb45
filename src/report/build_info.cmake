# Writes the source that knows which commit is built: cmake -D source= -D to= -D build_type=
# -D version= -P.
set(commit "unknown")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${source} describe --always --dirty --abbrev=12 --exclude=*
      OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
  if(status EQUAL 0 AND answer MATCHES "^[0-9a-f]+(-dirty)?$")
    set(commit ${answer})
  endif()
endif()

file(CONFIGURE OUTPUT ${to} CONTENT [[
// Which commit was built and how. Generated.
#include <string_view>

namespace perdure::report {

std::string_view build_commit();
std::string_view build_type();
std::string_view build_version();

std::string_view build_commit() { return "@commit@"; }
std::string_view build_type() { return "@build_type@"; }
std::string_view build_version() { return "@version@"; }

}  // namespace perdure::report
]] @ONLY)
