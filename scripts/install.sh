# shellcheck shell=bash
# Sourced by the scripts: installs missing Debian packages, or prints what to install.

fail() {
  echo "${0##*/}: $*" >&2
  exit 1
}

# install_packages PACKAGE...: through apt-get, as root or with sudo.
install_packages() {
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || fail "needs these packages, and root to install them: $*"
    as_root=(sudo)
  fi
  command -v apt-get >/dev/null || fail "needs the equivalent of these Debian packages: $*"
  echo "${0##*/}: installing $*" >&2
  "${as_root[@]}" apt-get update -qq >&2
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null ||
    fail "apt-get could not install: $*"
}

# need COMMAND PACKAGE...: installs the packages if the command is missing.
need() {
  local command=$1
  shift
  command -v "$command" >/dev/null || install_packages "$@"
}

# cargo links with the system's C compiler.
need_linker() {
  command -v cargo >/dev/null || fail "needs cargo: install it with rustup"
  need cc gcc libc6-dev
}
