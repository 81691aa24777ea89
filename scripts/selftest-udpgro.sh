# shellcheck shell=bash
# The cases of the Linux kernel's selftest udpgro.sh, with its programs udpgso_bench_tx and udpgso_bench_rx. Sourced by selftest-gro,
# inside its namespaces. The cases of a card with --udp on need Linux 6.2: older kernels accept no coalesced datagrams.
#
#   namespace "app"             namespace "sender"       namespace of the script
#   udpgso_bench_tx ─► a0 ═══ router ─► forwarding ─► v0 ═══ v1 ─► nichrome nic ─► host0 ─► udpgso_bench_rx, whose exit code counts
#
# A socket with UDP_SEGMENT needs an interface with checksum offload: a0. v0 has no offloads, so the kernel segments and completes
# checksums when it forwards. Neighbour entries are permanent: no ARP or neighbour discovery passes the card.
# shellcheck disable=SC2154 # selftest-gro sets interface, log and udpgso.

readonly ROUTER_MAC=aa:00:00:00:00:03
readonly UDP_PORT=8000 OTHER_UDP_PORT=12345

on_app() { nsenter --net=/run/netns/app "$@"; }

# udp_cases SIZE: prints the cases. SIZE is the payload of a datagram with an IP packet of 1,500 bytes. Columns: name, --udp of the
# card, function that runs the case, options of the sender, options of the receivers.
udp_cases() {
  local ten=$((10 * $1))
  cat <<END
no GRO|off|one_socket|-M 10 -s 1400|-n 10 -l 1400
no GRO chk cmsg|off|one_socket|-M 10 -s 1400|-n 10 -l 1400 -S -1
GRO|on|one_socket|-M 1 -s $ten -S 0|-n 1 -l $ten
GRO chk cmsg|on|one_socket|-M 1 -s $ten -S 0|-n 1 -l $ten -S $1
GRO with custom segment size|on|one_socket|-M 1 -s $ten -S 500|-n 1 -l $ten
GRO with custom segment size cmsg|on|one_socket|-M 1 -s $ten -S 500|-n 1 -l $ten -S 500
bad GRO lookup|on|nat|-M 1 -s $ten -S 0|-n 10 -l $1
multiple GRO socks|on|two_sockets|-M 1 -s $ten -S 0|-n 1 -l $ten -S $1
END
}

# check_udp_cases FILE: fails unless the table has the cases of FILE, the source's udpgro.sh.
check_udp_cases() {
  local differences
  differences=$(diff <(grep -oP '^\s*run_\w*test "\K[^"]+' "$1" | sort --unique) \
    <(udp_cases 0 | cut --delimiter='|' --fields=1 | sort --unique)) ||
    fail "selftest-udpgro.sh (>) has other cases than $1 (<): $differences"
}

# Sets the cases of an IP version, its addresses and options.
use_ip_version() {
  case $1 in
    4)
      source_address=192.168.1.2 address=192.168.1.1 other_address=192.168.1.3 prefix=24
      receiver_family=(-4) address_options=() iptables=iptables
      mapfile -t udp_tests < <(udp_cases 1472)
      ;;
    6)
      source_address=2001:db8::2 address=2001:db8::1 other_address=2001:db8::3 prefix=64
      # Without duplicate address detection the addresses are valid at once.
      receiver_family=() address_options=(nodad) iptables=ip6tables
      mapfile -t udp_tests < <(udp_cases 1452)
      ;;
  esac
}

# Runs after the TCP tests: with IPv6 enabled, the sender's kernel sends frames of its own (MLD).
set_up_udp_network() {
  ip netns add app
  on_sender sh -c 'echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6
    echo 1 >/proc/sys/net/ipv6/conf/all/forwarding
    echo 1 >/proc/sys/net/ipv4/ip_forward'
  on_sender ip link add router address $ROUTER_MAC type veth peer name a0 netns app
  on_sender ip link set router up
  on_app ip link set a0 up
  local version
  for version in 4 6; do
    use_ip_version $version
    on_app ip address add "$source_address/$prefix" dev a0 "${address_options[@]}"
    on_app ip neighbour add "$address" lladdr $ROUTER_MAC dev a0 nud permanent
    on_sender ip route add "$source_address" dev router
    on_sender ip route add "$address" dev v0
    on_sender ip neighbour add "$address" lladdr "$RECEIVER_MAC" dev v0 nud permanent
  done
}

# start_with_udp BACKEND on|off: starts the coalescing program, and adds the receivers' addresses to `interface`.
start_with_udp() {
  if [[ $1:$2 == kernel:off ]]; then start none; else start "$1" --udp "$2"; fi
  echo 0 >"/proc/sys/net/ipv6/conf/$interface/disable_ipv6"
  ip address add "$address/$prefix" dev "$interface" "${address_options[@]}"
  ip address add "$other_address/$prefix" dev "$interface" "${address_options[@]}"
}

# Flushes the addresses first: v1 must have none when it is the wire of a card.
stop_with_udp() {
  ip address flush dev "$interface"
  echo 1 >"/proc/sys/net/ipv6/conf/$interface/disable_ipv6"
  stop "$1"
}

# polls PROCESS PORT: succeeds if a socket is bound to the port and the receiver sleeps, in poll(). It has set UDP_GRO then.
polls() {
  local state
  read -r _ _ state _ <"/proc/$1/stat"
  [[ $state == S ]] && grep -q "$(printf ':%04X ' "$2")" /proc/net/udp /proc/net/udp6
}

# start_receiver PORT OPTION...: returns when the receiver polls its socket; sets `receiver` to the process.
start_receiver() {
  "${udpgso}_rx" "${receiver_family[@]}" -p "$1" "${@:2}" >>"$log" 2>&1 &
  receiver=$!
  wait_until 'the receiver' polls $receiver "$1"
}

send() {
  on_app "${udpgso}_tx" -l 4 "-$version" -D "$address" -p "$1" "${sender_options[@]}" >>"$log.sender" 2>&1 ||
    fail "the sender fails: $(<"$log.sender")"
}

one_socket() {
  start_receiver $UDP_PORT -C 1000 -R 100 -G -r "${receiver_options[@]}"
  send $UDP_PORT
  wait $receiver
}

two_sockets() {
  local first status=0
  start_receiver $OTHER_UDP_PORT -C 1000 -R 100 -G -r "${receiver_options[@]}"
  first=$receiver
  start_receiver $UDP_PORT -C 2000 -R 100 -G -r "${receiver_options[@]}"
  send $OTHER_UDP_PORT
  send $UDP_PORT
  wait $first || status=1
  wait $receiver || status=1
  return $status
}

# The socket at the datagrams' address has UDP_GRO. NAT redirects the datagrams to a socket without it, which must receive each one
# separately.
nat() {
  local gro_receiver status=0
  translate -I || return
  start_receiver $UDP_PORT -G -b "$address"
  gro_receiver=$receiver
  start_receiver $UDP_PORT -C 1000 -R 100 -r -b "$other_address" "${receiver_options[@]}"
  send $UDP_PORT
  wait $receiver || status=1
  kill -INT $gro_receiver
  wait $gro_receiver || status=1
  translate -D
  return $status
}

# translate -I|-D: inserts or deletes the DNAT rule, with the first variant of iptables that works.
translate() {
  local variant
  for variant in nft legacy; do
    "$iptables-$variant" -t nat "$1" PREROUTING -d "$address" -j DNAT --to-destination "$other_address" >>"$log" 2>&1 && return
  done
  echo "no NAT: $iptables cannot insert a DNAT rule in a network namespace of this kernel" >>"$log"
  return 1
}

# run_udp_test CASE: succeeds if the receivers accept the datagrams.
run_udp_test() {
  local run_sockets to_send to_receive
  IFS='|' read -r _ _ run_sockets to_send to_receive <<<"$1"
  read -ra sender_options <<<"$to_send"
  read -ra receiver_options <<<"$to_receive"
  : >"$log"
  "$run_sockets"
}

# takes_merged_udp BACKEND: succeeds if the kernel accepts datagrams that the back end has coalesced.
takes_merged_udp() { [[ $1 == kernel ]] || printf '%s\n' 6.2 "$(uname --kernel-release)" | sort --check=quiet --version-sort; }

# run_all_udp BACKEND RUN: each case with both IP versions, on a card with --udp off and one with --udp on.
run_all_udp() {
  local version udp test began failed count
  for version in 4 6; do
    use_ip_version $version
    began=${EPOCHREALTIME/./}
    failed=() count=0
    for udp in off on; do
      if [[ $udp == on ]] && ! takes_merged_udp "$1"; then
        echo "left out: $1 udp$version with --udp on: this kernel accepts no coalesced datagrams (Linux 6.2 does)"
        continue
      fi
      start_with_udp "$1" $udp
      for test in "${udp_tests[@]}"; do
        [[ $test == *"|$udp|"* ]] || continue
        count=$((count + 1))
        run_udp_test "$test" && continue
        failed+=("'${test%%|*}'")
        sed "/^$/d;s/^/    $1 udp$version ${test%%|*}: /" "$log"
      done
      stop_with_udp "$1"
    done
    print_result "$1" udp$version "$2" $count "$began" "${failed[@]}"
  done
}

# Without coalescing the case "GRO" must fail; otherwise the datagrams are not segmented before v1.
check_that_udp_tests_can_fail() {
  local version=4
  use_ip_version $version
  start_with_udp kernel off
  ! run_udp_test "${udp_tests[2]}" || fail 'a case of udpgro.sh passes where nothing coalesces: the network is not set up as it should be'
  grep -q 'bad packet len, got 1472' "$log" || fail "udpgro.sh does not work: $(<"$log")"
  stop_with_udp none
}
