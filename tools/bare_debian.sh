#!/usr/bin/env bash
# Tries the README's commands as a newcomer would: on a bare Debian 12 that has git and nothing
# else, in a clone of this repository's last commit.
set -euo pipefail
top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
COMMAND_SECONDS_MAX=5400

usage() {
  cat <<'TEXT'
usage: tools/bare_debian.sh [option]... [-- COMMAND...]

Makes a Debian 12 root file system with debootstrap, from the mirror that this machine's own apt
uses, clones the repository's HEAD into it and runs ./run and ./test there. Needs root, debootstrap
and 6 GB in the directory for temporary files. Everything is removed at the end.

  --sudo        as an ordinary user with sudo, not as root
  --keep=DIR    make the root file system in DIR and keep it; use it again if it is there
  --base=FILE   keep the bare system as a tar file and begin from it the next time
  COMMAND...    instead of ./run and ./test, for example: -- ./test --quick
TEXT
}

fail() {
  printf 'bare_debian: %s\n' "$*" >&2
  exit 1
}

# Prints the mirror of Debian 12 that this machine's apt takes `main` from.
machine_mirror() {
  local uri codename component
  while read -r uri codename component; do
    if [[ $codename == bookworm && $component == main ]]; then
      printf '%s\n' "$uri"
      return
    fi
  done < <(apt-get indextargets --format '$(REPO_URI) $(CODENAME) $(COMPONENT)' \
    'Identifier: Packages')
  fail 'the apt sources of this machine have no mirror for bookworm main'
}

# make_root ROOT BASE: the bare system, from the tar file BASE if there is one.
make_root() {
  local root=$1 base=$2
  mkdir -p "$root"
  if [[ -n $base && -f $base ]]; then
    tar -C "$root" -xf "$base"
    return
  fi
  debootstrap --variant=minbase --include=git bookworm "$root" "$(machine_mirror)" \
    >"$root.debootstrap.log" 2>&1 || fail "$(tail -n 20 "$root.debootstrap.log")"
  [[ -z $base ]] || tar -C "$root" -cf "$base" .
}

# furnish_root ROOT USER: a network configuration, kernel file systems, and the user with sudo.
furnish_root() {
  local root=$1
  cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
  apt-config dump | grep -iE '^Acquire::(https?|ftp)::Proxy|^Acquire::Check-Valid-Until' \
    >"$root/etc/apt/apt.conf.d/90machine" || true
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
  if [[ $2 == newcomer && ! -d $root/home/newcomer ]]; then
    chroot "$root" apt-get -qq update
    DEBIAN_FRONTEND=noninteractive chroot "$root" apt-get -qq -y install sudo >/dev/null
    chroot "$root" useradd --create-home --shell /bin/bash newcomer
    printf 'newcomer ALL=(ALL) NOPASSWD: ALL\n' >"$root/etc/sudoers.d/newcomer"
  fi
}

# inside BOX USER HOME BASE COMMAND...: all that happens with the mounts in place.
inside() {
  local box=$1 user=$2 home=$3 base=$4 root="$1/root" command begin status=0 result
  shift 4
  if [[ ! -d $root/usr ]]; then
    printf '== a bare Debian 12\n'
    make_root "$root" "$base"
  fi
  furnish_root "$root" "$user"
  rm -rf "${root:?}$home/perdure"
  git clone --quiet --no-hardlinks "file://$top" "$root$home/perdure"
  chroot "$root" chown -R "$user:" "$home/perdure"

  for command in "$@"; do
    printf '== %s, as %s\n' "$command" "$user"
    begin=$SECONDS result=0
    timeout "$COMMAND_SECONDS_MAX" chroot "$root" env -i HOME="$home" USER="$user" LANG=C.UTF-8 \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      su "$user" --preserve-environment --command "cd $home/perdure && $command" || result=$?
    printf '== %s: exit code %d after %d s\n' "$command" "$result" $((SECONDS - begin))
    [[ $result -eq 0 ]] || status=1
  done
  return "$status"
}

if [[ ${1:-} == --inside ]]; then
  shift
  inside "$@"
  exit
fi

user=root home=$(getent passwd root | cut -d: -f6) keep='' base='' commands=(./run ./test)
while [[ $# -gt 0 ]]; do
  case $1 in
    -h | --help) usage; exit 0 ;;
    --sudo) user=newcomer home=/home/newcomer ;;
    --keep=*) keep=$(realpath "${1#--keep=}") ;;
    --base=*) base=$(realpath "${1#--base=}") ;;
    --) shift; commands=("$*"); break ;;
    *) usage >&2; exit 2 ;;
  esac
  shift
done
[[ $EUID -eq 0 ]] || fail 'needs root (mount, chroot, debootstrap)'
command -v debootstrap >/dev/null || fail 'debootstrap is missing: apt-get install debootstrap'

box=$keep
if [[ -z $box ]]; then
  box=$(mktemp -d "${TMPDIR:-/tmp}/bare-debian.XXXXXX")
  trap 'rm -rf --one-file-system "$box"' EXIT
fi
# In namespaces of their own, so that the mounts and the processes end with this whatever happens.
status=0
unshare --mount --pid --fork --kill-child --propagation private bash "${BASH_SOURCE[0]}" --inside \
  "$box" "$user" "$home" "$base" "${commands[@]}" || status=$?
exit "$status"
