#!/usr/bin/env bash
# install_test.sh SOURCE BUILD CXX CC SANITIZERS: what `cmake --install` leaves is complete.
# Programs outside the tree are built against it, in C++ with find_package and in C with
# pkg-config, and run.
set -euo pipefail
source=$1 build=$2 cxx=$3 cc=$4 sanitizers=$5
box=$(mktemp -d)
prefix="$box/usr"
flags=${sanitizers:+-fsanitize=$sanitizers}
peers=()
peer_pids=()

end() {
  [[ ${#peer_pids[@]} -eq 0 ]] || kill "${peer_pids[@]}" 2>/dev/null || true
  wait
  rm -rf "$box"
}
trap end EXIT

fail() {
  printf 'install_test: %s\n' "$*" >&2
  exit 1
}

expect_file() {
  [[ -s $prefix/$1 ]] || fail "$1 is not installed; there is: $(cd "$prefix" && find . -type f)"
}

# expect_output WANTED COMMAND...: the command reads nothing, prints this, and exits with 0.
expect_output() {
  local wanted=$1 got
  shift
  got=$("$@" </dev/null) || fail "$1 exits with $?"
  [[ $got == "$wanted" ]] || fail "$1 prints '$got', expected '$wanted'"
}

# start_peer NAME: an installed perdured with pools of its own; adds its address to `peers`.
start_peer() {
  local ports="$box/$1.ports" name address deadline=$((SECONDS + 60))
  mkdir "$box/$1"
  "$prefix/bin/perdured" --pools "$box/$1" --listen 127.0.0.1:0 --port-file "$ports" \
    >"$box/$1.log" 2>&1 &
  peer_pids+=($!)
  until [[ -s $ports ]]; do
    kill -0 "$!" 2>/dev/null && ((SECONDS < deadline)) || fail "perdured: $(cat "$box/$1.log")"
    sleep 0.05
  done
  while read -r name address; do
    [[ $name != control ]] || peers+=("$address")
  done <"$ports"
}

# expect_appended PROGRAM POOL: an example appends its record, and it can be read back.
expect_appended() {
  local program=$1 pool=$2 all got
  all=$(IFS=, && printf '%s' "${peers[*]}")
  "$prefix/bin/perdure" pool create --peers "$all" --pool "$pool" --bytes 16MiB >/dev/null ||
    fail "the pool $pool could not be created"
  expect_output 'record 0 is committed' "$program" "$pool" "${peers[@]}"
  got=$("$prefix/bin/perdure" log read --peers "$all" --pool "$pool") || fail "log read: $got"
  [[ $got == 'a record that survives' ]] || fail "after $program, log read prints '$got'"
}

# expect_written PROGRAM POOL: an example writes to a region and reads it back.
expect_written() {
  local program=$1 pool=$2 all
  all=$(IFS=, && printf '%s' "${peers[*]}")
  "$prefix/bin/perdure" pool create --peers "$all" --pool "$pool" --bytes 1MiB >/dev/null ||
    fail "the pool $pool could not be created"
  expect_output 'a record that survives' "$program" "$pool" "${peers[@]}"
}

cmake --install "$build" --prefix "$prefix" >"$box/install.log" || fail "$(cat "$box/install.log")"
# Moved: an installed tree must not know where it was put first.
mv "$prefix" "$box/moved"
prefix="$box/moved"
expect_file include/perdure/types.h
expect_file share/doc/perdure/LICENSE
expect_file share/doc/perdure/hardware.md
for program in "$source"/apps/*/main.cc; do
  expect_file "bin/$(basename "$(dirname "$program")")"
done
for page in "$source"/docs/man/*.[0-9]; do
  [[ ! -f $page ]] || expect_file "share/man/man${page##*.}/$(basename "$page")"
done
grep -rlF -e "$source" -e "$build" "$prefix/lib" --include='*.cmake' --include='*.pc' &&
  fail 'an installed file names the build or source directory'

# --- C++, find_package ----------------------------------------------------------------------------
cpp_sources=("$source/tests/install/outside/levels.cc")
cpp_sources+=("$source"/examples/*.cc)
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
c_examples=()
for example in "$source"/examples/*.c; do
  name="$box/c_$(basename "$example" .c)"
  "$cc" -std=c11 -Wall -Wextra -Werror $flags "${compile[@]}" "$example" -o "$name" "${link[@]}" ||
    fail "pkg-config: $example"
  c_examples+=("$name")
done

# --- and they do what they are for ----------------------------------------------------------------
start_peer first
start_peer second
expect_appended "$box/outside/append" from_cpp
expect_appended "$box/c_append" from_c
expect_written "$box/outside/region" region_from_cpp
expect_written "$box/c_region" region_from_c

printf 'installed, found and used: %d C++ programs, %d C programs, version %s\n' \
  "${#cpp_sources[@]}" "${#c_examples[@]}" "$(pkg-config --modversion perdure)"
