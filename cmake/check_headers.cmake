# Every header compiles alone. Where x.cc includes x.h before anything else, that is seen already;
# each other header gets a source that includes it, twice. Part of `all` when PERDURE_CHECK_HEADERS
# is on; nothing is ever linked from it.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h
    ${PROJECT_SOURCE_DIR}/src/*.h)
# Those of tests, which see testing/ too.
list(FILTER headers EXCLUDE REGEX "/(test_support|[a-z_]+_fixture)\\.h$")
if(NOT libfabric_FOUND)
  list(FILTER headers EXCLUDE REGEX "/src/fabric/ofi/")
endif()
if(NOT (libibverbs_FOUND AND librdmacm_FOUND))
  list(FILTER headers EXCLUDE REGEX "/src/fabric/verbs/")
endif()
if(NOT libpmem2_FOUND)
  list(FILTER headers EXCLUDE REGEX "/src/pmem/libpmem2/")
endif()

set(alone ${PROJECT_BINARY_DIR}/headers_alone)
set(header_sources "")
foreach(header ${headers})
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${header})
  string(REGEX REPLACE "\\.h$" ".cc" own_source ${header})
  string(REGEX REPLACE "^(src|include)/" "" included_as ${name})
  set(first_include "")
  if(EXISTS ${own_source})
    file(STRINGS ${own_source} first_include REGEX "^#include" LIMIT_COUNT 1)
  endif()
  if(first_include STREQUAL "#include \"${included_as}\"")
    continue()
  endif()
  set(source ${alone}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  list(APPEND header_sources ${source})
endforeach()

add_library(perdure_headers_alone OBJECT ${header_sources})
set_target_properties(perdure_headers_alone PROPERTIES UNITY_BUILD OFF)
target_include_directories(perdure_headers_alone PRIVATE ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/include)
target_link_libraries(perdure_headers_alone PRIVATE perdure_libraries)
# Only whether it compiles is asked, and warnings count: the cheapest code will do.
target_compile_options(perdure_headers_alone PRIVATE ${PERDURE_WARNINGS} -O0 -g0)
