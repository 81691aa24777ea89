#!/usr/bin/env python3
"""Runs programs on a kernel's siw device, driven over TCP: one connection at a time, one JSON object a line each way.

    siw_peer.py PORT

start: {"command": [...]} starts a program. finish: waits for it; {"status": .., "output": ".."}. kill: kills it. netem: {"faults": ".."}
puts faults on eth0, or takes them off.
"""
import json
import socket
import subprocess
import sys


class Peer:
    def __init__(self):
        self.program = None

    def start(self, command):
        self.program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        return {}

    def finish(self):
        output, _ = self.program.communicate(timeout=50)
        return {"status": self.program.returncode, "output": output.decode(errors="replace")[-4000:]}

    def kill(self):
        self.program.kill()
        return self.finish()

    def netem(self, faults=""):
        subprocess.run(["tc", "qdisc", "del", "dev", "eth0", "root"], stderr=subprocess.DEVNULL)
        if faults:
            subprocess.run(["tc", "qdisc", "add", "dev", "eth0", "root", "netem", *faults.split()], check=True)
        return {}


def serve(connection, peer):
    stream = connection.makefile("rw")
    for line in stream:
        try:
            asked = json.loads(line)
            answer = getattr(peer, asked.pop("do"))(**asked)
        except Exception as error:  # noqa: BLE001
            answer = {"error": f"{type(error).__name__}: {error}"}
        stream.write(json.dumps(answer) + "\n")
        stream.flush()


listener = socket.create_server(("", int(sys.argv[1])))
peer = Peer()
print("siw peer: ready", flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        serve(connection, peer)
