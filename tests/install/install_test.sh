#!/usr/bin/env bash
# install_test.sh SOURCE BUILD CXX CC SANITIZERS: what `cmake --install` leaves is complete.
# Programs outside the tree are built against it, in C++ with find_package and in C with
# pkg-config, and run.
set -euo pipefail
source=$1 build=$2 cxx=$3 cc=$4 sanitizers=$5
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
prefix="$box/usr"
flags=${sanitizers:+-fsanitize=$sanitizers}

fail() {
  printf 'install_test: %s\n' "$*" >&2
  exit 1
}

expect_file() {
  [[ -s $prefix/$1 ]] || fail "$1 is not installed; there is: $(cd "$prefix" && find . -type f)"
}

# expect_output WANTED COMMAND...
expect_output() {
  local wanted=$1 got
  shift
  got=$("$@") || fail "$1 exits with $?"
  [[ $got == "$wanted" ]] || fail "$1 prints '$got', expected '$wanted'"
}

cmake --install "$build" --prefix "$prefix" >"$box/install.log" || fail "$(cat "$box/install.log")"
# Moved: an installed tree must not know where it was put first.
mv "$prefix" "$box/moved"
prefix="$box/moved"
expect_file include/perdure/types.h
expect_file share/doc/perdure/LICENSE
for program in "$source"/apps/*/; do
  [[ ! -f ${program}CMakeLists.txt ]] || expect_file "bin/$(basename "$program")"
done
for page in "$source"/docs/man/*.[0-9]; do
  [[ ! -f $page ]] || expect_file "share/man/man${page##*.}/$(basename "$page")"
done
grep -rlF -e "$source" -e "$build" "$prefix/lib" --include='*.cmake' --include='*.pc' &&
  fail 'an installed file names the build or source directory'

# --- C++, find_package ----------------------------------------------------------------------------
cpp_sources=("$source/tests/install/outside/levels.cc")
for example in "$source"/examples/*.cc; do
  [[ ! -f $example ]] || cpp_sources+=("$example")
done
cmake -S "$source/tests/install/outside" -B "$box/outside" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_FLAGS="$flags" \
  -DSOURCES="$(IFS=';' && printf '%s' "${cpp_sources[*]}")" >"$box/cmake.log" 2>&1 ||
  fail "find_package: $(cat "$box/cmake.log")"
cmake --build "$box/outside" >"$box/build.log" 2>&1 || fail "C++: $(cat "$box/build.log")"
expect_output $'received\nvisible\ndurable\ncommitted' "$box/outside/levels"

# --- C, pkg-config --------------------------------------------------------------------------------
export PKG_CONFIG_PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name perdure.pc)")
read -ra compile < <(pkg-config --cflags perdure)
read -ra link < <(pkg-config --libs perdure)
pkg-config --exact-version=0.1.0 perdure || fail "perdure.pc has another version"
"$cxx" -std=c++20 $flags "${compile[@]}" "$source/tests/install/outside/levels.cc" \
  -o "$box/levels" "${link[@]}" || fail "pkg-config: C++ program"
expect_output $'received\nvisible\ndurable\ncommitted' "$box/levels"
for example in "$source"/examples/*.c; do
  [[ -f $example ]] || continue
  "$cc" -std=c11 -Wall -Wextra -Werror $flags "${compile[@]}" "$example" -o "$box/c_example" \
    "${link[@]}" || fail "pkg-config: $example"
done

printf 'installed, found and used: %d C++ programs, version %s\n' "${#cpp_sources[@]}" \
  "$(pkg-config --modversion perdure)"
