#!/usr/bin/env bash
# install_test.sh SOURCE BUILD CXX CC SANITIZERS: what `cmake --install` leaves is complete.
# Programs outside the tree are built against it, in C++ with find_package and in C with
# pkg-config, with the shared library and with the archive, and run. The shared library exports what
# the public headers declare and nothing else.
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

# expect_written PROGRAM POOL: an example writes to a region or a mirror and reads it back.
expect_written() {
  local program=$1 pool=$2 all
  all=$(IFS=, && printf '%s' "${peers[*]}")
  "$prefix/bin/perdure" pool create --peers "$all" --pool "$pool" --bytes 1MiB >/dev/null ||
    fail "the pool $pool could not be created"
  expect_output 'a record that survives' "$program" "$pool" "${peers[@]}"
}

# expect_served SERVER CLIENT POOL: an example of durable RPC makes a deposit, and serves it.
expect_served() {
  local server=$1 client=$2 pool=$3 said address
  coproc served { exec "$server" "$box/$pool.pool" 127.0.0.1:0; }
  local ended=$served_PID
  peer_pids+=("$ended")
  read -r -t 60 said <&"${served[0]}" || fail "$server did not start"
  address=$(sed -n 's/^serving at \(.*\); end of input ends it$/\1/p' <<<"$said")
  expect_output $'durable: it will be executed exactly once\napplied: the balance is 7' \
    "$client" "$address" teller 7
  exec {served[1]}>&-
  wait "$ended" || fail "$server ended with an error"
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

# --- what the shared library exports --------------------------------------------------------------
library=$(find "$prefix" -name 'libperdure.so')
abi=$(sed -n 's/#define PERDURE_ABI_VERSION //p' "$prefix/include/perdure/version.h")
readelf -d "$library" | grep -q "SONAME.*\[libperdure\.so\.$abi\]" ||
  fail "the shared library is not libperdure.so.$abi: $(readelf -d "$library" | grep SONAME)"
[[ -e ${library%.so}.so.$abi ]] || fail "there is no libperdure.so.$abi"
# exported [-C]: the names, one a line.
exported() { nm -D "$@" --defined-only "$library" | sed 's/^[0-9a-f]* *[A-Za-z] //' | sort -u; }
in_c=$(grep -ohE '\bperdure_[a-z_]+\(' "$prefix"/include/perdure/*.h | tr -d '(' | sort -u)
got=$(exported | grep -v '^_Z') || true
[[ $got == "$in_c" ]] ||
  fail "C: declared is not what is exported: $(diff <(echo "$in_c") <(echo "$got") || true)"
"$cxx" -std=c++20 -I"$prefix/include" -c "$source/tests/install/outside/all_names.cc" \
  -o "$box/all_names.o" || fail 'all_names.cc'
in_cpp=$(nm -uC "$box/all_names.o" | sed -n 's/^ *U \(perdure::\)/\1/p' | sort -u)
# Members that a class declares and keeps to itself.
private='::(readable|usable|why_not)\('
classes='Log|LogReader|LogWriter|Region|Mirror|MirrorMemory|RpcClient|RpcServer|KvClient'
classes+='|ReplicatedRpcServer|ReplicatedRpcClient'
private+="|::($classes)\\(std::unique_ptr"
got=$(exported -C | grep -v '^perdure_' | grep -vE "$private") || true
[[ $got == "$in_cpp" ]] ||
  fail "C++: declared is not what is exported: $(diff <(echo "$in_cpp") <(echo "$got") || true)"

# --- find_package, in C++ and C -------------------------------------------------------------------
# Nobody's -dev package but ours: whatever else there is to be found is not.
examples="$prefix/share/doc/perdure/examples"
hidden=(-DCMAKE_DISABLE_FIND_PACKAGE_{fmt,nlohmann_json,PkgConfig,Threads,OpenSSL,spdlog}=ON)
# build_outside DIRECTORY SOURCES ARGUMENT...: a project of a user.
build_outside() {
  local to="$box/$1" from=$2
  shift 2
  cmake -S "$from" -B "$to" -G Ninja -DCMAKE_PREFIX_PATH="$prefix" "${hidden[@]}" \
    -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_FLAGS="$flags" \
    -DCMAKE_C_FLAGS="$flags -Wall -Wextra -Werror" "$@" >"$box/cmake.log" 2>&1 ||
    fail "find_package: $(cat "$box/cmake.log")"
  cmake --build "$to" >"$box/build.log" 2>&1 || fail "$from: $(cat "$box/build.log")"
}
build_outside outside "$source/tests/install/outside"
for link in perdure static; do
  build_outside "examples_$link" "$examples" -DPERDURE_LINK=$link
  expect_output all "$box/outside/all_names_$link"
  expect_output $'received\nvisible\ndurable\ncommitted' "$box/outside/levels_$link"
done
readelf -d "$box/outside/levels_perdure" | grep -q "NEEDED.*libperdure.so.$abi" ||
  fail 'perdure::perdure is not the shared library'
! readelf -d "$box/outside/levels_static" | grep -q libperdure || fail 'perdure::static is shared'

# --- pkg-config -----------------------------------------------------------------------------------
export PKG_CONFIG_LIBDIR  # ours alone
PKG_CONFIG_LIBDIR=$(dirname "$(find "$prefix" -name perdure.pc)")
for package in perdure perdure-static; do
  read -ra compile < <(pkg-config --cflags "$package")
  read -ra link < <(pkg-config --libs "$package")
  pkg-config --exact-version=0.1.0 "$package" || fail "$package.pc has another version"
  "$cxx" -std=c++20 $flags "${compile[@]}" "$source/tests/install/outside/levels.cc" \
    -o "$box/levels" "${link[@]}" -Wl,-rpath,"$(dirname "$library")" ||
    fail "$package: C++ program"
  expect_output $'received\nvisible\ndurable\ncommitted' "$box/levels"
  "$cc" -std=c11 -Wall -Wextra -Werror $flags "${compile[@]}" "$examples/append.c" \
    -o "$box/append_$package" "${link[@]}" -Wl,-rpath,"$(dirname "$library")" ||
    fail "$package: append.c"
done
# librpmem, as programs of PMDK find it; it stands for PMDK's 1.12.
read -ra of_rpmem < <(pkg-config --cflags --libs librpmem)
"$cc" -std=c11 -Wall -Wextra -Werror $flags \
  "$source/tests/install/outside/rpmem.c" \
  -o "$box/rpmem" "${of_rpmem[@]}" -Wl,-rpath,"$(dirname "$library")" || fail 'librpmem: C program'
expect_output 'no target' "$box/rpmem"
readelf -d "$box/rpmem" | grep -q 'NEEDED.*librpmem\.so\.1' || fail 'it does not load librpmem.so.1'
# What a link names besides is there without -dev packages: libfmt.so.9 is, libfmt.so is not.
for word in "${link[@]}"; do
  case $word in
    -L* | -pthread | -lstdc++ | -lm | -l:libperdure.a | -l:*.so.[0-9]*) ;;
    *) fail "perdure-static.pc asks for $word" ;;
  esac
done

# --- and they do what they are for ----------------------------------------------------------------
start_peer first
start_peer second
for link in perdure static; do
  expect_appended "$box/examples_$link/append" "from_cpp_$link"
  expect_appended "$box/examples_$link/append_c" "from_c_$link"
  expect_written "$box/examples_$link/region" "region_from_cpp_$link"
  expect_written "$box/examples_$link/region_c" "region_from_c_$link"
  expect_written "$box/examples_$link/mirror" "mirror_from_cpp_$link"
  expect_written "$box/examples_$link/mirror_c" "mirror_from_c_$link"
  expect_served "$box/examples_$link/rpc_server" "$box/examples_$link/rpc_client_c" "cpp_$link"
  expect_served "$box/examples_$link/rpc_server_c" "$box/examples_$link/rpc_client_c" "c_$link"
done
expect_appended "$box/append_perdure" from_c_by_hand
# A program of an old header with this library.
all=$(IFS=, && printf '%s' "${peers[*]}")
for pool in old_log old_region; do
  "$prefix/bin/perdure" pool create --peers "$all" --pool "$pool" --bytes 1MiB >/dev/null ||
    fail "the pool $pool could not be created"
done
expect_output old_log "$box/outside/old_header" old_log old_region "${peers[@]}"
expect_appended "$box/append_perdure-static" from_c_by_hand_static

printf 'installed and used: libperdure.so.%s exports %d names of C and %d of C++; version %s\n' \
  "$abi" "$(wc -l <<<"$in_c")" "$(wc -l <<<"$in_cpp")" "$(pkg-config --modversion perdure)"
