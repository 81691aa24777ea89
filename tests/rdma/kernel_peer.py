#!/usr/bin/env python3
"""An RDMA peer on a device of the kernel, driven over TCP: one connection at a time, one JSON object a line each way.

    peer.py DEVICE GID-INDEX PORT

Everything is done by the kernel's driver; this only posts what it is told. A command that fails answers {"error": "..."}.
"""
import ipaddress
import json
import socket
import subprocess
import sys
import tempfile

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import *  # noqa: F403
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QPAttr, QPCap, QPEx, QPInitAttrEx
from pyverbs.wr import SGE, RecvWR, SendWR

# pyverbs 44 has no name for it.
FLUSH_GLOBAL = 1 << 8
ACCESS = (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC
          | FLUSH_GLOBAL)
PERIOD = 65521
BLOCK = bytes(((i * 2654435761) >> 13) & 0xFF for i in range(PERIOD))
OPCODES = {
    "send": IBV_WR_SEND,
    "send-imm": IBV_WR_SEND_WITH_IMM,
    "write": IBV_WR_RDMA_WRITE,
    "write-imm": IBV_WR_RDMA_WRITE_WITH_IMM,
    "read": IBV_WR_RDMA_READ,
    "compare-swap": IBV_WR_ATOMIC_CMP_AND_SWP,
    "fetch-add": IBV_WR_ATOMIC_FETCH_AND_ADD,
}
TYPES = {"rc": IBV_QPT_RC, "uc": IBV_QPT_UC}


def pattern(seed, length):
    """Byte i is BLOCK[i % PERIOD] + seed: pieces that are swapped or missing show, whatever the MTU."""
    table = bytes((byte + seed) & 0xFF for byte in range(256))
    return (BLOCK.translate(table) * (length // PERIOD + 1))[:length]


class Peer:
    def __init__(self, device, gid_index):
        self.gid_index = gid_index
        self.context = Context(name=device)
        self.pd = PD(self.context)
        self.connection = None

    def open(self, size, type="rc", mtu=1024):
        """A region of `size` bytes and a queue pair; the answer is what the other side needs to know."""
        self.close()
        self.mr = MR(self.pd, size, ACCESS)
        self.cq = CQ(self.context, 1024)
        self.type = TYPES[type]
        self.mtu = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}[mtu]
        cap = QPCap(max_send_wr=256, max_recv_wr=256, max_send_sge=4, max_recv_sge=4)
        init = QPInitAttrEx(qp_type=self.type, scq=self.cq, rcq=self.cq, cap=cap, sq_sig_all=1, pd=self.pd,
                            comp_mask=IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
                            send_ops_flags=IBV_QP_EX_WITH_ATOMIC_WRITE)
        self.qp = QPEx(self.context, init)
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        self.qp.to_init(attr)
        self.received = []
        self.connection = True
        gid = self.context.query_gid(1, self.gid_index).gid
        return {"qpn": self.qp.qp_num, "psn": 0x123456, "gid": gid, "addr": self.mr.buf, "rkey": self.mr.rkey}

    def connect(self, qpn, psn, gid, timeout=14, retry=7):
        """To ready-to-send, towards that queue pair."""
        attr = QPAttr(port_num=1)
        attr.qp_access_flags = ACCESS
        attr.dest_qp_num = qpn
        attr.rq_psn = psn
        attr.sq_psn = 0x123456
        attr.path_mtu = self.mtu
        attr.max_dest_rd_atomic = 16
        attr.max_rd_atomic = 16
        attr.min_rnr_timer = 12
        attr.timeout = timeout
        attr.retry_cnt = retry
        attr.rnr_retry = 7
        route = GlobalRoute(dgid=GID(ipaddress.ip_address(gid).exploded), sgid_index=self.gid_index, hop_limit=64)
        attr.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
        self.qp.to_rts(attr)
        return {}

    def close(self):
        if self.connection:
            self.qp.close()
            self.cq.close()
            self.mr.close()
            self.connection = None
        return {}

    def fill(self, seed, length, offset=0):
        self.mr.write(pattern(seed, length), length, offset)
        return {}

    def check(self, seed, length, offset=0):
        """Where the region differs from the pattern first; null where it does not."""
        got, want = self.mr.read(length, offset), pattern(seed, length)
        if got == want:
            return {"differs": None}
        return {"differs": next(i for i in range(length) if got[i] != want[i])}

    def word(self, offset):
        return {"value": int.from_bytes(self.mr.read(8, offset), sys.byteorder)}

    def set_word(self, offset, value):
        self.mr.write(value.to_bytes(8, sys.byteorder), 8, offset)
        return {}

    def receive(self, length, offset=0, count=1):
        """Posts `count` receives."""
        for nth in range(count):
            self.qp.post_recv(RecvWR(wr_id=nth, num_sge=1, sg=[SGE(self.mr.buf + offset, length, self.mr.lkey)]))
        return {}

    def post(self, operation, length, offset=0, addr=0, rkey=0, count=1, compare=0, swap=0):
        """Posts `count` requests, waits for all, and says how each ended."""
        for nth in range(count):
            wr = SendWR(wr_id=1000 + nth, opcode=OPCODES[operation], num_sge=1,
                        sg=[SGE(self.mr.buf + offset, length, self.mr.lkey)], send_flags=IBV_SEND_SIGNALED,
                        imm_data=0x01020304)
            if operation in ("compare-swap", "fetch-add"):
                wr.set_wr_atomic(rkey, addr, compare, swap)
            elif not operation.startswith("send"):
                wr.set_wr_rdma(rkey, addr)
            self.qp.post_send(wr)
        return self.ended(count)

    def atomic_write(self, value, addr, rkey):
        """Posts an ATOMIC WRITE, waits for it, and says how it ended."""
        self.qp.wr_start()
        self.qp.wr_id = 1000
        self.qp.wr_flags = IBV_SEND_SIGNALED
        self.qp.wr_atomic_write(rkey, addr, value.to_bytes(8, sys.byteorder))
        self.qp.wr_complete()
        return self.ended(1)

    def ended(self, count):
        """Waits for `count` requests, and says how each ended."""
        statuses = []
        while len(statuses) < count:
            statuses += [completion.status for completion in self.poll() if completion.wr_id >= 1000]
        return {"statuses": statuses}

    def wait(self, count=1):
        """Waits for `count` receives, and says what came."""
        while len(self.received) < count:
            self.poll()
        taken, self.received = self.received[:count], self.received[count:]
        return {"received": taken}

    def poll(self):
        _, completions = self.cq.poll(16)
        for completion in completions:
            if completion.wr_id < 1000:
                self.received.append({"status": completion.status, "length": completion.byte_len,
                                      "immediate": completion.imm_data if completion.wc_flags & 2 else None})
        return completions

    def start(self, command):
        """Starts a program, whose output goes to a file."""
        self.output = tempfile.TemporaryFile("w+")
        self.program = subprocess.Popen(command.split(), stdout=self.output, stderr=subprocess.STDOUT)
        return {}

    def finish(self):
        """Waits for the program, and says how it ended."""
        try:
            status = self.program.wait(timeout=40)
        finally:
            self.program.kill()
        self.output.seek(0)
        return {"status": status, "output": self.output.read()}

    def netem(self, faults):
        """Impairs what the guest sends; "" ends it."""
        subprocess.run(["tc", "qdisc", "del", "dev", "eth0", "root"], stderr=subprocess.DEVNULL)
        if faults:
            subprocess.run(["tc", "qdisc", "add", "dev", "eth0", "root", "netem", *faults.split()], check=True)
        return {}


def serve(peer, port):
    listener = socket.create_server(("", port))
    print(f"peer.py: listening on port {port}", flush=True)
    while True:
        stream = listener.accept()[0].makefile("rw")
        for line in stream:
            command = json.loads(line)
            name = command.pop("do")
            if name == "quit":
                return
            try:
                answer = getattr(peer, name)(**command)
            except Exception as error:
                answer = {"error": f"{name}: {error}"}
            stream.write(json.dumps(answer) + "\n")
            stream.flush()
        peer.close()
        peer.netem("")


if __name__ == "__main__":
    serve(Peer(sys.argv[1], int(sys.argv[2])), int(sys.argv[3]))
