# shellcheck shell=bash
# run_programs, which runs one end of each program in rdma-programs.list. Sourced by both ends.
readonly FIRST_PORT=7500

# run_programs ROLE PEER GID: runs each program twice, as client and as server; ROLE is the first role. PEER is the other
# end's address, GID the GID index of this end. Prints a line for each run, and the number of failures.
run_programs() {
  local role=$1 peer=$2 gid=$3 port=$FIRST_PORT failures=0 line
  while read -r line <&3; do
    [[ $line != '#'* ]] || continue
    for _ in 1 2; do
      port=$((port + 1))
      run_program "$role" "$peer" "$line $(options "$line" "$gid") -p $port" || failures=$((failures + 1))
      if [[ $role == client ]]; then role=server; else role=client; fi
    done
  done 3<"$(dirname "${BASH_SOURCE[0]}")/rdma-programs.list"
  echo "$failures programs failed"
  ((failures == 0))
}

# options LINE GID: prints the options that select the GID index in this program.
options() {
  if [[ $1 == ibv_* ]]; then echo "-g $2"; else echo "-F -x $2"; fi
}

# run_program ROLE PEER LINE: runs one end. A client retries until it can connect to the server.
run_program() {
  local output tries=100 command
  read -ra command <<<"$3"
  [[ $1 == server ]] || command+=("$2")
  until output=$(timeout 60 "${command[@]}" 2>&1); do
    if [[ $1 == server || $output != *onnect* ]] || ((tries-- == 0)); then
      echo "failed as $1: $3"
      echo "$output" | tail -5
      return 1
    fi
    sleep 0.2
  done
  echo "passed as $1: $3"
}
