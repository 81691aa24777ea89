"""A program of pyverbs in a CI job without RDMA hardware (Debian's package python3-pyverbs)."""

import subprocess

PROGRAM = """
from pyverbs.device import Context, get_device_list
from pyverbs.pd import PD
from pyverbs.mr import MR
import pyverbs.enums as e

assert [device.name.decode() for device in get_device_list()] == ["nichrome0"]
with Context(name="nichrome0") as context, PD(context) as domain:
    with MR(domain, 4096, e.IBV_ACCESS_LOCAL_WRITE) as region:
        region.write("hello", 5)
        print(region.read(5, 0).decode())
"""


def test_a_region_is_registered(rdma_device):
    done = subprocess.run(["/usr/bin/python3", "-c", PROGRAM], env=rdma_device, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")
