# shellcheck shell=bash disable=SC2154 # Who sources this sets $here.
# Sourced by the scripts that boot a kernel with kernel-peer, in new namespaces; the guest is at the interface peer0.

# in_namespaces COMMAND ARGUMENT...: runs the calling script with these arguments in new namespaces.
in_namespaces() {
  local user=()
  ((EUID == 0)) || user=(--user --map-root-user)
  unshare "${user[@]}" --net --mount --pid --fork --kill-child --mount-proc "$here/${0##*/}" "$@"
}

# boot GUEST LOG: boots the kernel in the background, which runs the script GUEST of this folder. The MTU is KERNEL_PEER_MTU.
boot() {
  ip link set lo up
  ip tuntap add peer0 mode tap
  ip address add 10.77.0.2/24 dev peer0
  ip link set peer0 mtu "${KERNEL_PEER_MTU:-1500}" up
  KERNEL_PEER_TIMEOUT=900 "$here/kernel-peer" run "$here/$1" peer0 >"$2" 2>&1 &
}

# await_guest PORT LOG: waits until the guest that was booted last listens at the TCP port PORT.
await_guest() {
  local tries=300
  until (exec 3<>"/dev/tcp/10.77.0.1/$1") 2>/dev/null; do
    if ((tries-- == 0)) || ! kill -0 $!; then
      cat "$2"
      fail 'the guest kernel did not start within a minute'
    fi
    sleep 0.2
  done
}
