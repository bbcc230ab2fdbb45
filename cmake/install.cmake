# `cmake --install`: library, public headers, programs, man pages, configuration, and what lets
# others find them: a CMake package (`find_package(perdure)`) and pkg-config (`perdure`).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/perdure)

# --- what who links the archive needs besides: derived from what it is linked with ----------------
# By the names that the loader asks for (libfmt.so.9), which come with the libraries themselves, and
# not by those of their -dev packages (libfmt.so): a user needs no -dev package but ours.
set(archive_needs "")
get_target_property(libraries perdure_libraries INTERFACE_LINK_LIBRARIES)
list(FILTER libraries EXCLUDE REGEX "^::@")
list(REMOVE_DUPLICATES libraries)
foreach(library ${libraries})
  if(library MATCHES "^nlohmann_json::")  # headers only
    continue()
  elseif(library STREQUAL "Threads::Threads")
    list(APPEND archive_needs -pthread)
    continue()
  elseif(library MATCHES "^PkgConfig::")
    get_target_property(files ${library} INTERFACE_LINK_LIBRARIES)
  elseif(library MATCHES "^fmt::")
    get_target_property(files ${library} LOCATION)
  else()
    message(FATAL_ERROR "cmake/install.cmake does not know what '${library}' is to its users")
  endif()
  foreach(file ${files})
    execute_process(COMMAND ${CMAKE_READELF} -d ${file} OUTPUT_VARIABLE entries ERROR_QUIET)
    if(NOT entries MATCHES "SONAME[^\n]*\\[([^]\n]+)\\]")
      message(FATAL_ERROR "'${file}' is no shared library: programs that link Perdure's archive "
          "could not be told how to find it")
    endif()
    list(APPEND archive_needs -l:${CMAKE_MATCH_1})
  endforeach()
endforeach()
list(REMOVE_DUPLICATES archive_needs)
list(JOIN archive_needs " " pkgconfig_archive_needs)
target_link_libraries(perdure INTERFACE "$<INSTALL_INTERFACE:${archive_needs}>")

# perdure::perdure is the shared library, perdure::static the archive; perdure.pc and
# perdure-static.pc likewise.
set_target_properties(perdure_shared PROPERTIES EXPORT_NAME perdure)
set_target_properties(perdure PROPERTIES EXPORT_NAME static)
install(TARGETS perdure perdure_shared EXPORT perdureTargets)
install(EXPORT perdureTargets NAMESPACE perdure:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/docs/hardware.md
    DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/perdureConfig.cmake.in
    ${PROJECT_BINARY_DIR}/package/perdureConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/perdureConfigVersion.cmake
    COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/package/perdureConfig.cmake
    ${PROJECT_BINARY_DIR}/package/perdureConfigVersion.cmake DESTINATION ${package_dir})

# Relative to the file itself, so that the installed tree can be moved.
file(RELATIVE_PATH pkgconfig_up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" pkgconfig_up ${pkgconfig_up})
install(TARGETS rpmem LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS perdure_interpose LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/perdure)
foreach(package perdure perdure-static librpmem)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/${package}.pc.in
      ${PROJECT_BINARY_DIR}/package/${package}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/${package}.pc
      DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

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
