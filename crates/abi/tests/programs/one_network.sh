# Runs a program in a network namespace with one interface. Arguments: its address and prefix length, the program's command
# line. The program's devices are at this address.
set -e
ip link set lo up
ip link add end0 type veth peer name end1
[[ $1 == *:* ]] && nodad=nodad
ip address add "$1" dev end0 $nodad
ip link set end0 up
ip link set end1 up
NICHROME_IP=${1%/*} exec "${@:2}"
