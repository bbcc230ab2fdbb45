# perdure_module(NAME [LINK lib...]): one directory of src/ as an object library. Its *_test.cc
# become one test program, perdure_NAME_test. All modules together are the library `perdure`.
set(PERDURE_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
    -Wold-style-cast -Woverloaded-virtual -Wunused-result -Werror)
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND PERDURE_WARNINGS -Wthread-safety)
endif()

add_library(perdure_options INTERFACE)
target_compile_options(perdure_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${PERDURE_WARNINGS}>)
if(PERDURE_SANITIZE)
  target_compile_options(perdure_options INTERFACE -fsanitize=${PERDURE_SANITIZE}
      -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(perdure_options INTERFACE -fsanitize=${PERDURE_SANITIZE})
endif()
if(PERDURE_FUZZERS)
  target_compile_options(perdure_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(perdure_module name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")

  if(NOT sources)
    return()
  endif()
  add_library(perdure_${name} OBJECT ${sources})
  target_include_directories(perdure_${name} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(perdure_${name} PRIVATE perdure_options fmt::fmt Threads::Threads ${ARG_LINK})
  target_sources(perdure PRIVATE $<TARGET_OBJECTS:perdure_${name}>)
  target_link_libraries(perdure PRIVATE ${ARG_LINK})

  if(PERDURE_TESTS AND tests)
    perdure_test(perdure_${name}_test LABEL unit SOURCES ${tests})
  endif()
endfunction()

# perdure_test(NAME LABEL label SOURCES file... [LINK lib...] [TIMEOUT s]): one gtest program.
function(perdure_test name)
  cmake_parse_arguments(ARG "" "LABEL;TIMEOUT" "SOURCES;LINK" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE perdure perdure_options fmt::fmt GTest::gtest
      GTest::gtest_main ${ARG_LINK})
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES LABELS ${ARG_LABEL} TIMEOUT ${ARG_TIMEOUT})
endfunction()
