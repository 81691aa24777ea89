#!/usr/bin/env python3
"""Runs programs on a kernel's siw device, driven over TCP: one connection at a time, one JSON object a line each way.

    siw_peer.py PORT

listen and accept, or connect: a connection with rdma_cm, on which fill, check, receive, post, wait and close do what they do in
kernel_peer.py. start: {"command": [...]} starts a program. finish: waits for it; {"status": .., "output": ".."}. kill: kills it. netem: {"faults": ".."}
puts faults on eth0, or takes them off.
"""
import json
import socket
import subprocess
import sys

from pyverbs.cmid import CMID, AddrInfo, ConnParam
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import *  # noqa: F403
from pyverbs.cm_enums import RAI_PASSIVE, RDMA_PS_TCP
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr

import kernel_peer

ACCESS = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ
PORT = 7475


class Peer(kernel_peer.Peer):
    def __init__(self):
        self.program = self.connection = self.listener = None
        self.context = Context(name="siw0")
        self.pd = PD(self.context)

    def listen(self, size, address):
        """Listens with a region of `size` bytes."""
        self.size = size
        self.listener = CMID(creator=AddrInfo(src=address, src_service=str(PORT), port_space=RDMA_PS_TCP, flags=RAI_PASSIVE))
        self.listener.listen(backlog=1)
        return {"port": PORT}

    def accept(self):
        """Accepts a connection; the answer is what the other side needs to know of the region."""
        self.connection = self.listener.get_request()
        parameters = self.open(self.size)
        self.connection.accept(parameters)
        return self.region()

    def connect(self, size, address, port):
        """Connects with a region of `size` bytes."""
        self.connection = CMID(creator=AddrInfo(dst=address, dst_service=str(port), port_space=RDMA_PS_TCP))
        parameters = self.open(size)
        self.connection.connect(parameters)
        return self.region()

    def open(self, size):
        """Makes region and queue pair of the connection; returns its parameters."""
        self.mr = MR(self.pd, size, ACCESS)
        self.cq = CQ(self.context, 64)
        cap = QPCap(max_send_wr=16, max_recv_wr=16, max_send_sge=1, max_recv_sge=1)
        self.qp = QP(self.pd, QPInitAttr(qp_type=IBV_QPT_RC, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1))
        attributes, mask = self.connection.init_qp_attr(IBV_QPS_INIT)
        self.qp.modify(attributes, mask)
        self.received = []
        return ConnParam(resources=1, depth=1, qp_num=self.qp.qp_num)

    def region(self):
        return {"addr": self.mr.buf, "rkey": self.mr.rkey}

    def close(self):
        if self.connection:
            self.connection.disconnect()
            self.connection.close()
        if self.listener:
            self.listener.close()
        super().close()
        self.listener = None
        return {}

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
        return super().netem(faults)


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
