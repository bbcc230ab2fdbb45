# perdure_module(NAME [INTO library] [WITHOUT directory] [LINK lib...]): one directory of src/ as an
# object library, WITHOUT one in it that is a module of its own. Its *_test.cc become one test
# program, perdure_NAME_test. All modules together are the library `perdure`, archive and shared,
# except those that go INTO another one.
# docs/decisions/0001-layout.md says why the sources are globbed and the modules are one library.
set(PERDURE_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wnon-virtual-dtor
    -Wold-style-cast -Woverloaded-virtual -Wunused-result)
if(PERDURE_WERROR)
  list(APPEND PERDURE_WARNINGS -Werror)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  list(APPEND PERDURE_WARNINGS -Wthread-safety)
else()
  # g++ 12 sees an overlap in every `"text" + std::string` that it inlines (GCC bug 105651).
  list(APPEND PERDURE_WARNINGS -Wno-restrict)
endif()

# perdure_options is what everything is compiled and linked with.
add_library(perdure_options INTERFACE)
target_compile_options(perdure_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:${PERDURE_WARNINGS}>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # A tenth of g++'s time is its garbage collection, of which there is none below so many KiB.
  target_compile_options(perdure_options INTERFACE --param=ggc-min-heapsize=500000)
endif()
if(PERDURE_SANITIZE)
  target_link_options(perdure_options INTERFACE -fsanitize=${PERDURE_SANITIZE})
  # Of a program that may lie anywhere the loader adjusts millions of addresses, most of them of the
  # sanitizers: a quarter of the time that a short command takes.
  target_link_options(perdure_options INTERFACE
      $<$<STREQUAL:$<TARGET_PROPERTY:TYPE>,EXECUTABLE>:-no-pie>)
  target_compile_options(perdure_options INTERFACE -fsanitize=${PERDURE_SANITIZE}
      -fno-sanitize-recover=all -fno-omit-frame-pointer)
  # Null pointers and objects that are too short stop in the address sanitizer as well. Whether
  # addresses are aligned and pointers overflow takes g++ a third of its time: the fuzzers, which
  # clang compiles, check it where bytes come from outside, and ./test --soak everywhere.
  if(PERDURE_SANITIZE MATCHES "undefined")
    target_compile_options(perdure_options INTERFACE -fno-sanitize=null,vptr,object-size)
    if(NOT PERDURE_CHECK_POINTERS)
      target_compile_options(perdure_options INTERFACE -fno-sanitize=alignment,pointer-overflow)
    endif()
  endif()
endif()
if(PERDURE_FUZZERS)
  target_compile_options(perdure_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# perdure_cheap_options: besides, for what is not Perdure itself, but tests, measures or commands
# it. Nobody waits for it when it runs with sanitizers, so it is not optimised there.
add_library(perdure_cheap_options INTERFACE)
if(PERDURE_SANITIZE)
  target_compile_options(perdure_cheap_options INTERFACE -O0)
endif()

# What the thread sanitizer's build makes: the tests with the label `threads`.
add_custom_target(thread_tests)

function(perdure_module name)
  cmake_parse_arguments(ARG "" "INTO;WITHOUT" "LINK" ${ARGN})
  if(NOT ARG_INTO)
    set(ARG_INTO perdure)
  endif()
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(ARG_WITHOUT)
    list(FILTER sources EXCLUDE REGEX "/${ARG_WITHOUT}/[^/]*$")
  endif()
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")

  if(NOT sources)
    return()
  endif()
  add_library(perdure_${name} OBJECT ${sources})
  target_include_directories(perdure_${name} PUBLIC
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(perdure_${name} PRIVATE perdure_options fmt::fmt Threads::Threads
      ${ARG_LINK})
  target_sources(${ARG_INTO} PRIVATE $<TARGET_OBJECTS:perdure_${name}>)
  if(ARG_INTO STREQUAL "perdure")
    target_sources(perdure_shared PRIVATE $<TARGET_OBJECTS:perdure_${name}>)
    target_link_libraries(perdure_libraries INTERFACE ${ARG_LINK})
  else()
    target_link_libraries(${ARG_INTO} PRIVATE ${ARG_LINK})
  endif()

  if(PERDURE_TESTS AND tests)
    perdure_starts_threads(threads ${sources})
    if(NOT ARG_INTO STREQUAL "perdure")
      list(PREPEND ARG_LINK ${ARG_INTO})
    endif()
    perdure_test(perdure_${name}_test LABEL unit ${threads} SOURCES ${tests}
        LINK ${ARG_LINK})
  endif()
endfunction()

# Sets OUT to `threads` if one of the files includes <thread> or <future>, else to nothing.
function(perdure_starts_threads out)
  set(${out} "" PARENT_SCOPE)
  foreach(file ${ARGN})
    file(STRINGS ${file} lines REGEX "^#include <(thread|future)>")
    if(lines)
      set(${out} threads PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# Those that take minutes begin first: none of them is left to run alone in the end.
set(PERDURE_LONG_TESTS perdure_cli_pools_test perdure_cli_test perdure_log_open_test
    perdure_rpc_peers_test perdure_rpmem_world_test perdure_conformance_test perdure_protocol_test
    perdure_interpose_test perdure_rpmem_kill_test perdure_rpmem_api_test perdure_kv_processes_test
    perdure_log_crash_test perdure_spin_test perdure_mirror_world_test)

# perdure_test(NAME LABEL label... SOURCES file... [LINK lib...] [WITHOUT label...] [TIMEOUT s]):
# one gtest program. Tests with the label `threads` run under the thread sanitizer too. It comes by
# itself when a source of the test includes <thread>; name it when the threads are started
# elsewhere, or WITHOUT it when others show the same threads.
function(perdure_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABEL;WITHOUT;SOURCES;LINK" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)
  endif()
  perdure_starts_threads(threads ${ARG_SOURCES})
  list(APPEND ARG_LABEL ${threads})
  list(REMOVE_DUPLICATES ARG_LABEL)
  list(REMOVE_ITEM ARG_LABEL ${ARG_WITHOUT} "")
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/src ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE perdure_testing perdure perdure_options
      perdure_cheap_options fmt::fmt GTest::gtest GTest::gtest_main ${ARG_LINK})
  if("threads" IN_LIST ARG_LABEL)
    add_dependencies(thread_tests ${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  # tools/test_summary.py counts the cases in these files.
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT "GTEST_OUTPUT=xml:${PROJECT_BINARY_DIR}/results/${name}.xml")
  if(name IN_LIST PERDURE_LONG_TESTS)
    set_tests_properties(${name} PROPERTIES COST 100)
  endif()
endfunction()
