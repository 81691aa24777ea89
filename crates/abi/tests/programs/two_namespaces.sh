# Runs a program as server and as client in two network namespaces joined by a veth pair. Arguments: the server's command
# line; the client's is the same with the server's address appended.
set -e
ip link set lo up
ip link add end0 type veth peer name end1
coproc OTHER { exec unshare --net sh -c 'echo in the namespace; exec sleep 60'; }
other=$OTHER_PID
trap 'kill $other' EXIT
read -r -u "${OTHER[0]}"
ip link set end1 netns "$other"
ip address add 10.9.0.1/24 dev end0
ip link set end0 up
there() { nsenter --net="/proc/$other/ns/net" "$@"; }
there ip link set lo up
there ip address add 10.9.0.2/24 dev end1
there ip link set end1 up
NICHROME_IP=10.9.0.2 there "$@" &
server=$!
until there cat /proc/net/tcp /proc/net/tcp6 | grep -q ' 0A '; do
  kill -0 "$server" || exit 1
  sleep 0.01
done
NICHROME_IP=10.9.0.1 "$@" 10.9.0.2
wait "$server"
