"""Migrates a guest that has not started from one QEMU to another by rdma: manager_users.rs runs it. Argument: pinned or unpinned."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

SOURCE, DESTINATION = "127.77.0.3", "127.77.0.2"
PINNED = [{"capability": "rdma-pin-all", "state": sys.argv[1] == "pinned"}]


class Qemu:
    """A paused guest, and its monitor."""

    def __init__(self, folder, address, *options):
        path = f"{folder}/{address}"
        monitor = ["-qmp", f"unix:{path},server=on,wait=off"]
        guest = ["-accel", "tcg", "-m", "64", "-display", "none", "-nodefaults", "-S", *monitor, *options]
        environment = {**os.environ, "NICHROME_IP": address}
        self.process = subprocess.Popen(["qemu-system-x86_64", *guest], env=environment, stdin=subprocess.DEVNULL)
        connection = socket.socket(socket.AF_UNIX)
        while connection.connect_ex(path) != 0:
            assert self.process.poll() is None, "QEMU has ended"
            time.sleep(0.05)
        self.monitor = connection.makefile("rw")
        self.monitor.readline()
        self.ask("qmp_capabilities")
        self.ask("migrate-set-capabilities", capabilities=PINNED)

    def ask(self, command, **arguments):
        self.monitor.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self.monitor.flush()
        while True:
            answer = json.loads(self.monitor.readline())
            assert "error" not in answer, answer
            if "return" in answer:
                return answer["return"]

    def quit(self):
        self.ask("quit")
        assert self.process.wait(20) == 0


def main():
    with tempfile.TemporaryDirectory() as folder:
        guests = []
        try:
            destination = Qemu(folder, DESTINATION, "-incoming", "defer")
            guests.append(destination)
            source = Qemu(folder, SOURCE)
            guests.append(source)
            uri = f"rdma:{DESTINATION}:4444"
            destination.ask("migrate-incoming", uri=uri)
            source.ask("migrate", uri=uri)
            deadline = time.monotonic() + 60
            while (state := source.ask("query-migrate"))["status"] not in ("completed", "failed"):
                assert time.monotonic() < deadline, state
                time.sleep(0.1)
            assert state["status"] == "completed", state
            source.quit()
            destination.quit()
        finally:
            for guest in guests:
                guest.process.kill()


main()
