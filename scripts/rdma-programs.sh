# shellcheck shell=bash
# run_list, which runs one end of each program of a list. Sourced by both ends.
port=7500
failures=0
# What clients print if no server listens: sockets, perftest, librdmacm, rsockets, and perftest with -R (event 8: rejected).
readonly REFUSED='onnect|REJECTED|UNREACHABLE|CONNECT_ERROR|rpoll: |CM event bl blka 8'

# run_list LIST ROLE OWN PEER GID: runs each program of LIST twice, as client and as server; ROLE is the first role. OWN and PEER are
# the addresses of the ends, GID the GID index of this end. Prints a line for each run, and counts the failures. Leaves out the
# program WITHOUT, if that is set.
run_list() {
  local role=$2 own=$3 peer=$4 gid=$5 line
  while read -r line <&3; do
    [[ $line != '#'* && $line != "${WITHOUT:-#} "* ]] || continue
    for _ in 1 2; do
      port=$((port + 1))
      run_program "$role" "$(command_of "$role" "$line" "$own" "$peer" "$gid")" || failures=$((failures + 1))
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

# run_program ROLE COMMAND: runs one end. A client retries until it can connect to the server, for as long as a server may take to
# come back.
run_program() {
  local output patience=60 attempts=1 command refused_until
  # perftest connects twice, and its server has no listener in between. A client that is refused there leaves a server that
  # waits for the second connection: both ends begin anew.
  [[ $2 != *' -R '* ]] || { patience=40 attempts=5; }
  refused_until=$((SECONDS + patience * attempts))
  read -ra command <<<"$2"
  until output=$(timeout "$patience" "${command[@]}" 2>&1); do
    if [[ $1 == client && $output =~ $REFUSED ]] && ((SECONDS < refused_until)); then
      sleep 0.2
    elif ((--attempts == 0)); then
      echo "failed as $1: $2"
      echo "$output" | tail -5
      return 1
    fi
  done
  echo "passed as $1: $2"
}

# print_failures: prints the number of failures; fails if there are any.
print_failures() {
  echo "$failures programs failed"
  ((failures == 0))
}
