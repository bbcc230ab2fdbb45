# `cmake --install`: library, public headers, programs, man pages, configuration, and what lets
# others find them: a CMake package (`find_package(perdure)`) and pkg-config (`perdure`).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/perdure)

install(TARGETS perdure EXPORT perdureTargets)
install(EXPORT perdureTargets NAMESPACE perdure:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/docs/hardware.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR})

# --- what users of the library need: derived from what it links, so that it cannot be forgotten ---
set(package_dependencies "")  # lines of perdureConfig.cmake
set(pkgconfig_requires "")    # names of pkg-config
set(pkgconfig_libs "-lstdc++ -lm")
get_target_property(libraries perdure LINK_LIBRARIES)
list(FILTER libraries EXCLUDE REGEX "perdure_options|^::@")
list(REMOVE_DUPLICATES libraries)
foreach(library ${libraries})
  if(library MATCHES "^PkgConfig::(.*)$")
    set(name ${CMAKE_MATCH_1})
    set(module ${${name}_MODULE_NAME})
    if(NOT module)
      set(module ${name})
    endif()
    string(APPEND package_dependencies "find_dependency(PkgConfig)\n"
        "pkg_check_modules(${name} REQUIRED QUIET IMPORTED_TARGET ${module})\n")
    list(APPEND pkgconfig_requires ${module})
  elseif(library STREQUAL "Threads::Threads")
    string(APPEND package_dependencies "find_dependency(Threads)\n")
    string(APPEND pkgconfig_libs " -pthread")
  elseif(library MATCHES "^(fmt|spdlog)::")
    string(APPEND package_dependencies "find_dependency(${CMAKE_MATCH_1})\n")
    list(APPEND pkgconfig_requires ${CMAKE_MATCH_1})
  elseif(library MATCHES "^(nlohmann_json|CLI11)::")
    string(APPEND package_dependencies "find_dependency(${CMAKE_MATCH_1})\n")  # headers only
  elseif(library MATCHES "^OpenSSL::(SSL|Crypto)$")
    string(TOLOWER "lib${CMAKE_MATCH_1}" module)
    string(APPEND package_dependencies "find_dependency(OpenSSL)\n")
    list(APPEND pkgconfig_requires ${module})
  else()
    message(FATAL_ERROR "cmake/install.cmake does not know how users would find '${library}'")
  endif()
endforeach()
list(REMOVE_DUPLICATES pkgconfig_requires)
list(JOIN pkgconfig_requires ", " pkgconfig_requires)

# Whoever links an archive links what it needs, and these come as shared libraries: so they stand
# in Requires and Libs. (`pkg-config --static` would ask for static parts of libfabric that Debian
# does not have.)
get_target_property(library_type perdure TYPE)
if(library_type STREQUAL "STATIC_LIBRARY")
  set(pkgconfig_private "")
  set(pkgconfig_libs_public " ${pkgconfig_libs}")
  set(pkgconfig_libs_private "")
else()
  set(pkgconfig_private ".private")
  set(pkgconfig_libs_public "")
  set(pkgconfig_libs_private "${pkgconfig_libs}")
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/perdureConfig.cmake.in
    ${PROJECT_BINARY_DIR}/package/perdureConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/perdureConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/perdureConfig.cmake
    ${PROJECT_BINARY_DIR}/package/perdureConfigVersion.cmake DESTINATION ${package_dir})

# Relative to the file itself, so that the installed tree can be moved.
file(RELATIVE_PATH pkgconfig_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pkgconfig_up ${pkgconfig_up})
configure_file(${PROJECT_SOURCE_DIR}/cmake/perdure.pc.in ${PROJECT_BINARY_DIR}/package/perdure.pc
    @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/package/perdure.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# --- programs, their manual pages and their configuration -----------------------------------------
file(GLOB app_directories LIST_DIRECTORIES true ${PROJECT_SOURCE_DIR}/apps/*)
foreach(directory ${app_directories})
  if(EXISTS ${directory}/CMakeLists.txt)
    get_property(targets DIRECTORY ${directory} PROPERTY BUILDSYSTEM_TARGETS)
    foreach(target ${targets})
      get_target_property(type ${target} TYPE)
      if(type STREQUAL "EXECUTABLE" AND NOT target MATCHES "_test$")
        install(TARGETS ${target} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
      endif()
    endforeach()
  endif()
endforeach()

foreach(section 1 5 7 8)
  file(GLOB pages ${PROJECT_SOURCE_DIR}/docs/man/*.${section})
  if(pages)
    install(FILES ${pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
  endif()
endforeach()

if(EXISTS ${PROJECT_SOURCE_DIR}/configs)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/configs DESTINATION ${CMAKE_INSTALL_DATADIR}/perdure
      FILES_MATCHING PATTERN "*.toml")
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/configs/perdured.service)
  # The unit in the repository names /usr/bin; the prefix may be another.
  install(CODE "
    file(READ \"${PROJECT_SOURCE_DIR}/configs/perdured.service\" unit)
    string(REPLACE \"/usr/bin/\" \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_BINDIR}/\" unit
        \"\${unit}\")
    file(WRITE \"${PROJECT_BINARY_DIR}/package/perdured.service\" \"\${unit}\")")
  install(FILES ${PROJECT_BINARY_DIR}/package/perdured.service DESTINATION lib/systemd/system)
endif()
