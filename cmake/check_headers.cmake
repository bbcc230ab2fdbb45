# Every header compiles alone: one source per header that includes it, twice. Part of `all` when
# PERDURE_CHECK_HEADERS is on; nothing is ever linked from it.
file(GLOB_RECURSE headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/*.h
    ${PROJECT_SOURCE_DIR}/src/*.h)
if(NOT libfabric_FOUND)
  list(FILTER headers EXCLUDE REGEX "/src/fabric/ofi/")
endif()
if(NOT libpmem2_FOUND)
  list(FILTER headers EXCLUDE REGEX "/src/pmem/libpmem2/")
endif()

set(alone ${PROJECT_BINARY_DIR}/headers_alone)
set(header_sources "")
foreach(header ${headers})
  file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR} ${header})
  set(source ${alone}/${name}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n#include \"${header}\"\n")
  list(APPEND header_sources ${source})
endforeach()

add_library(perdure_headers_alone OBJECT ${header_sources})
target_include_directories(perdure_headers_alone PRIVATE ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/include)
get_target_property(libraries perdure LINK_LIBRARIES)
list(FILTER libraries EXCLUDE REGEX "perdure_options|^::@")
target_link_libraries(perdure_headers_alone PRIVATE ${libraries})
# Only whether it compiles is asked, and warnings count: the cheapest code will do.
target_compile_options(perdure_headers_alone PRIVATE ${PERDURE_WARNINGS} -O0 -g0)
