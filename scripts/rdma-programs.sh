# shellcheck shell=bash
# run_list, which runs one end of each program of a list. Sourced by both ends.
port=7500
failures=0
# Where the end that begins as client listens for the other one's results.
readonly RESULTS_PORT=7499
# What clients print if no server listens: sockets, perftest, librdmacm, rsockets, and perftest with -R (event 8: rejected).
readonly REFUSED='onnect|REJECTED|UNREACHABLE|CONNECT_ERROR|rpoll: |CM event bl blka 8'

# run_list LIST ROLE OWN PEER GID: runs each program of LIST twice, as client and as server; ROLE is the first role. OWN and PEER are
# the addresses of the ends, GID the GID index of this end. Prints a line for each run, and counts the failures. Leaves out the
# program WITHOUT, if that is set.
run_list() {
  local role=$2 own=$3 peer=$4 gid=$5 line exchange
  if [[ $role == client ]]; then exchange="receive_result $own"; else exchange="send_result $peer"; fi
  while read -r line <&3; do
    [[ $line != '#'* && $line != "${WITHOUT:-#} "* ]] || continue
    for _ in 1 2; do
      port=$((port + 1))
      run_program "$role" "$(command_of "$role" "$line" "$own" "$peer" "$gid")" "$exchange" || failures=$((failures + 1))
      if [[ $role == client ]]; then role=server; else role=client; fi
    done
  done 3<"$(dirname "${BASH_SOURCE[0]}")/$1"
}

# command_of ROLE LINE OWN PEER GID: prints the command of this end, of a line that names both ends' or one for both.
command_of() {
  local command server=$3
  [[ $1 == server ]] || server=$4
  if [[ $2 == *' | '* ]]; then
    if [[ $1 == server ]]; then command=${2% | *}; else command=${2#* | }; fi
    command=${command//@/$server}
    echo "${command//%/$port}"
  else
    command="$2 $(options "$2" "$5") -p $port"
    [[ $1 == server ]] || command+=" $server"
    echo "$command"
  fi
}

# options LINE GID: prints the options that select the GID index in this program.
options() {
  if [[ $1 == ibv_* ]]; then echo "-g $2"; else echo "-F -x $2"; fi
}

# run_program ROLE COMMAND EXCHANGE: runs one end. If either end fails, both run again, up to a number of attempts that depends on the
# program. EXCHANGE is the command that sends this end's result and prints the other one's.
run_program() {
  local output patience=60 attempts=1 result=failed others=failed
  # perftest connects twice, and its server has no listener in between. If the second connection is refused, the client ends and
  # the server keeps waiting. On a path with loss, the kernel's acknowledgement of the last message may be lost. The program
  # that received the message has ended by then, and nobody acknowledges the retransmissions: the sender fails.
  [[ $2 != *' -R '* ]] || { patience=40 attempts=5; }
  while ((attempts-- > 0)) && [[ $result != passed || $others != passed ]]; do
    if run_end "$1" "$2" "$patience"; then result=passed; else result=failed; fi
    others=$($3 "$result")
  done
  echo "$result as $1: $2"
  [[ $result == passed ]] || { tail -5 <<<"$output"; return 1; }
}

# run_end ROLE COMMAND PATIENCE: runs one end once; its output is in output. A client retries until it can connect to the server.
run_end() {
  local command refused_until=$((SECONDS + $3))
  read -ra command <<<"$2"
  until output=$(timeout "$3" "${command[@]}" 2>&1); do
    [[ $1 == client && $output =~ $REFUSED ]] && ((SECONDS < refused_until)) || return 1
    sleep 0.2
  done
}

# receive_result OWN RESULT: tells the other end this one's result, at the address OWN, and prints its.
receive_result() {
  python3 -c '
import socket, sys
own, port, result = sys.argv[1:]
with socket.create_server((own, int(port))) as listener:
    listener.settimeout(180)
    stream = listener.accept()[0]
with stream, stream.makefile("rw") as lines:
    print(result, file=lines, flush=True)
    print(lines.readline().strip())' "$1" "$RESULTS_PORT" "$2"
}

# send_result PEER RESULT: as receive_result, for the end at the other side.
send_result() {
  local result until=$((SECONDS + 180))
  until { exec 4<>"/dev/tcp/$1/$RESULTS_PORT"; } 2>/dev/null; do
    ((SECONDS < until)) || return 1
    sleep 0.2
  done
  echo "$2" >&4
  read -r -t 180 -u 4 result
  exec 4>&-
  echo "$result"
}

# print_failures: prints the number of failures; fails if there are any.
print_failures() {
  echo "$failures programs failed"
  ((failures == 0))
}
