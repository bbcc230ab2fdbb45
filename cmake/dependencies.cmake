# Every library that Perdure uses, all of them Debian packages; docs/decisions/0002 says why each.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(spdlog REQUIRED)
pkg_check_modules(libisal REQUIRED IMPORTED_TARGET libisal)
pkg_check_modules(tomlplusplus REQUIRED tomlplusplus)  # headers alone: src/core/toml_file.cc
pkg_check_modules(libfabric IMPORTED_TARGET libfabric)
# The verbs provider. Headers newer than the machine's, for verbs that its own lack, can be named:
# the libraries' interfaces are the same, and which verbs there are is probed when it runs.
pkg_check_modules(libibverbs IMPORTED_TARGET libibverbs)
pkg_check_modules(librdmacm IMPORTED_TARGET librdmacm)
set(PERDURE_RDMA_CORE_INCLUDE "" CACHE PATH "Headers of another rdma-core, for FLUSH")
pkg_check_modules(libpmem2 IMPORTED_TARGET libpmem2)
# `perdure bench files` alone measures through it.
pkg_check_modules(liburing IMPORTED_TARGET liburing)
pkg_check_modules(libmicrohttpd REQUIRED IMPORTED_TARGET libmicrohttpd)
if(PERDURE_TESTS)
  find_package(GTest REQUIRED)
endif()
