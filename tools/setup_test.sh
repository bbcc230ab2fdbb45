#!/usr/bin/env bash
# tools/setup.sh, with stand-ins for dpkg-query, apt-get and sudo that record how they are called.
set -uo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
mkdir -p "$box/tree/tools" "$box/bin"
cp "$here/setup.sh" "$box/tree/tools/"
printf '# a comment\nbuild alpha\nbuild beta\n\ntest gamma\n' >"$box/tree/tools/packages.txt"
failed=0

check() {
  local title=$1
  shift
  if "$@"; then
    printf 'ok      %s\n' "$title"
  else
    printf 'FAILED  %s\n' "$title"
    failed=1
  fi
}

stand_in() {
  printf '#!/bin/bash\n%s\n' "$2" >"$box/bin/$1"
  chmod +x "$box/bin/$1"
}

# setup GROUP...: runs it with the stand-ins first in PATH; sets status and output.
setup() {
  rm -f "$box/calls"
  output=$(PATH="$box/bin:$PATH" bash "$box/tree/tools/setup.sh" "$@" 2>&1)
  status=$?
  calls=$(cat "$box/calls" 2>/dev/null)
}

stand_in apt-get "echo \"apt-get \$*\" >>'$box/calls'
[[ \$* != *install* || ! -e '$box/offline' ]]"
stand_in sudo "[[ \$1 == -v ]] || \"\$@\""
stand_in dpkg-query 'echo "installed alpha"; echo "not-installed beta"; exit 1'

setup build
check 'only what is missing is installed' \
  [ "$status $(grep -c 'install .* beta$' <<<"$calls")" = '0 1' ]
check 'what is there is left alone' [ "$(grep -c alpha <<<"$calls")" = 0 ]
check 'other groups are left alone' [ "$(grep -c gamma <<<"$calls")" = 0 ]

stand_in dpkg-query 'echo "installed alpha"; echo "installed beta:amd64"'
setup build
check 'nothing missing: apt-get is not called' [ "$status$calls$output" = 0 ]

stand_in dpkg-query 'exit 1'
touch "$box/offline"
setup build test
check 'a failed install is an error that names the packages' \
  [ "$status $(grep -c 'could not install: alpha beta gamma' <<<"$output")" = '1 1' ]
rm "$box/offline"

setup nonsense
check 'an unknown group is an error' [ "$status" = 1 ]
setup
check 'no group is an error' [ "$status" = 1 ]

# A PATH without dpkg-query: another distribution.
mkdir "$box/other"
for tool in bash dirname cat; do ln -s "$(command -v $tool)" "$box/other/"; done
output=$(PATH="$box/other" bash "$box/tree/tools/setup.sh" build 2>&1)
status=$?
check 'elsewhere than on Debian it says so' \
  [ "$status $(grep -c 'not a Debian system' <<<"$output")" = '1 1' ]

exit "$failed"
