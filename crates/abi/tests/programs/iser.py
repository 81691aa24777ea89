"""Serves a disk of 64 MiB by tgtd over iSER to the programs of libiscsi: manager_users.rs runs it."""

import os
import subprocess
import tempfile
import time

SERVER, CLIENT = "127.77.0.2", "127.77.0.3"
PORT = "3262"
TARGET, INITIATOR = "iqn.2026-11.test:disk", "iqn.2026-11.test:initiator"
URL = f"iser://{SERVER}:{PORT}/{TARGET}/1"
PROGRAMS = [
    ["iscsi-inq", "-i", INITIATOR, URL],
    ["iscsi-readcapacity16", "-i", INITIATOR, URL],
]


def environment(address, **more):
    return {**os.environ, "NICHROME_IP": address, **more}


class Target:
    """tgtd with one target. A target over iSER takes initiators that are bound by address and by name."""

    def __init__(self, folder):
        self.environment = environment(SERVER, TGT_IPC_SOCKET=f"{folder}/tgtd")
        disk = f"{folder}/disk"
        with open(disk, "wb") as file:
            file.truncate(64 << 20)
        command = ["/usr/sbin/tgtd", "-f", "--iscsi", f"portal={SERVER}:3261", "--iser", f"port={PORT}"]
        self.process = subprocess.Popen(command, env=self.environment, stdin=subprocess.DEVNULL)
        while self.ask("--op", "show", "--mode", "sys").returncode != 0:
            assert self.process.poll() is None, "tgtd has ended"
            time.sleep(0.05)
        for options in [
            ["target", "--op", "new", "-T", TARGET],
            ["logicalunit", "--op", "new", "--lun", "1", "-b", disk],
            ["target", "--op", "bind", "-I", "ALL"],
            ["target", "--op", "bind", "-Q", INITIATOR],
        ]:
            answer = self.ask("--lld", "iser", "--tid", "1", "--mode", *options)
            assert answer.returncode == 0, answer.stderr

    def ask(self, *options):
        return subprocess.run(["/usr/sbin/tgtadm", *options], env=self.environment, capture_output=True, text=True)


with tempfile.TemporaryDirectory() as folder:
    target = Target(folder)
    try:
        for program in PROGRAMS:
            ended = subprocess.run(program, env=environment(CLIENT), capture_output=True, text=True, timeout=60)
            print(" ".join(program), ended.stdout, ended.stderr)
            assert ended.returncode == 0, f"{program} failed: {ended.stdout}{ended.stderr}"
    finally:
        target.process.kill()
        target.process.wait()
