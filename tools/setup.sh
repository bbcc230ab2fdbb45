#!/usr/bin/env bash
# tools/setup.sh GROUP...: installs the Debian packages of these groups of tools/packages.txt that
# are missing. Needs bash and dpkg only. Leaves the machine alone when nothing is missing.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
log="$here/../build/logs/setup.log"

fail() {
  printf 'setup: %s\n' "$@" >&2
  exit 1
}

# Prints the packages of the wanted groups.
wanted_packages() {
  local group package
  while read -r group package _; do
    [[ -z $group || $group == \#* ]] && continue
    [[ " $* " == *" $group "* ]] && printf '%s\n' "$package"
  done <"$here/packages.txt"
  return 0
}

# Prints those of the given packages that are not installed.
missing_packages() {
  local -A installed=()
  local package status
  while read -r status package; do
    [[ $status == installed ]] && installed[${package%%:*}]=1
  done < <(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for package in "$@"; do
    [[ -n ${installed[$package]:-} ]] || printf '%s\n' "$package"
  done
}

# Runs apt-get as root, its output going to the log.
as_root() {
  if [[ $EUID -eq 0 ]]; then
    env DEBIAN_FRONTEND=noninteractive "$@" >>"$log" 2>&1
  else
    sudo env DEBIAN_FRONTEND=noninteractive "$@" >>"$log" 2>&1
  fi
}

install() {
  if [[ $EUID -ne 0 ]]; then
    command -v sudo >/dev/null ||
      fail "these packages are missing: $*" \
        "installing them needs root, and there is no sudo here. Either run this as root, or ask" \
        "your administrator for: apt-get install $*"
    sudo -v || fail "sudo was refused; as root, run: apt-get install $*"
  fi

  mkdir -p "$(dirname "$log")"
  : >"$log"
  printf 'setup: installing %d Debian packages (log: build/logs/setup.log): %s\n' $# "$*"
  local -a options=(-q -y -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3)
  # An error here can be one broken source among several; whether it matters, the install shows.
  as_root apt-get "${options[@]}" update || true
  if ! as_root apt-get "${options[@]}" install --no-install-recommends "$@"; then
    tail -n 15 "$log" >&2
    fail "apt-get could not install: $*" \
      "If the lines above speak of resolving or connecting, this machine does not reach its" \
      "package mirror. If one has no candidate: Perdure needs Debian 12 with 'main' enabled." \
      "The whole log: build/logs/setup.log"
  fi
}

main() {
  [[ $# -gt 0 ]] || fail "usage: tools/setup.sh GROUP...   (groups: build, test, ci, lab)"
  command -v dpkg-query >/dev/null && command -v apt-get >/dev/null ||
    fail "this is not a Debian system (no dpkg-query or apt-get)." \
      "Install what corresponds to tools/packages.txt, then build with" \
      "cmake --workflow --preset release"

  local -a wanted missing
  mapfile -t wanted < <(wanted_packages "$@")
  [[ ${#wanted[@]} -gt 0 ]] || fail "no packages in the groups '$*'; see tools/packages.txt"
  mapfile -t missing < <(missing_packages "${wanted[@]}")
  [[ ${#missing[@]} -eq 0 ]] || install "${missing[@]}"
}

main "$@"
