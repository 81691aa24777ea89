# shellcheck shell=bash
# Sourced by the scripts: installs missing Debian packages, or prints what to install.

# On Debian a user's PATH lacks the administrators' folders, and their programs would seem to be missing.
PATH+=:/usr/sbin:/sbin

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# install_packages PACKAGE...: through apt-get, as root or with sudo. Scripts that run side by side wait for each other.
install_packages() {
  local as_root=() lock
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "needs these packages, and root to install them: $*"
    as_root=(sudo)
  fi
  command -v apt-get >/dev/null || fail "needs the equivalent of these Debian packages: $*"
  echo "${0##*/}: installing $*" >&2
  exec {lock}<"${BASH_SOURCE[0]}"
  flock "$lock"
  "${as_root[@]}" apt-get update -qq >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
    fail "apt-get could not install: $*"
  exec {lock}<&-
}

# need COMMAND PACKAGE...: installs the packages if the command is missing.
need() {
  local command=$1
  shift
  command -v "$command" >/dev/null || install_packages "$@"
}

# Prints the name of this Debian release.
debian_release() { (. /etc/os-release && echo "${VERSION_CODENAME:-}"); }

# use_release RELEASE DIR: prints options with which apt knows only this Debian release, from the server that the machine is
# configured for. Its lists are kept in DIR. The signature is checked; mirrors may keep a list after its validity.
use_release() {
  local name uri
  name=$(debian_release)
  # shellcheck disable=SC2016 # apt-get expands them.
  uri=$(apt-get indextargets --format '$(CODENAME) $(REPO_URI)' | awk -v name="$name" '$1 == name {print $2; exit}')
  [[ -n $uri ]] || fail "finds no server of Debian's packages: this is for Debian on x86-64"
  mkdir -p "$2/lists/partial"
  echo "deb $uri $1 main" >"$2/sources.list"
  printf '%s\n' -o "Dir::Etc::SourceList=$2/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$2/lists" \
    -o Acquire::Check-Valid-Until=false
}

# cargo links with the system's C compiler.
need_linker() {
  command -v cargo >/dev/null || fail "needs cargo: install it with rustup"
  need cc gcc libc6-dev
}
