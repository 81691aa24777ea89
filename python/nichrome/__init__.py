"""Nichrome, a network card in software, from Python: receive coalescing, the simulator, wide-area paths, RDMA devices.

Every function runs the ``nichrome`` command and returns the JSON that it prints; none needs root.
"""

from nichrome import rdma, sim, wan
from nichrome._coalesce import Coalesced, Compared, coalesce
from nichrome._command import NichromeError, command

__all__ = ["Coalesced", "Compared", "NichromeError", "coalesce", "command", "rdma", "sim", "wan"]
