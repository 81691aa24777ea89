"""Two NIXL agents in one process: one writes 1 MiB to the other's memory through UCX."""

import ctypes
import sys
import time
import types

# NIXL's package imports torch, but uses only the names of two types.
torch = types.ModuleType("torch")
torch.Tensor = type("Tensor", (), {})
torch.dtype = type("dtype", (), {})
sys.modules["torch"] = torch

from nixl_cu12 import nixl_agent, nixl_agent_config

SIZE = 1 << 20

writer, owner = (nixl_agent(name, nixl_agent_config(backends=["UCX"])) for name in ("writer", "owner"))
text = ctypes.create_string_buffer(b"text" * (SIZE // 4), SIZE)
room = ctypes.create_string_buffer(SIZE)
for agent, memory in ((writer, text), (owner, room)):
    agent.register_memory([(ctypes.addressof(memory), SIZE, 0, "")], "DRAM")
peer = writer.add_remote_agent(owner.get_agent_metadata())
local, remote = (writer.get_xfer_descs([(ctypes.addressof(memory), SIZE, 0)], "DRAM") for memory in (text, room))
transfer = writer.initialize_xfer("WRITE", local, remote, peer)
state = writer.transfer(transfer)
deadline = time.monotonic() + 60
while state == "PROC" and time.monotonic() < deadline:
    state = writer.check_xfer_state(transfer)
assert state == "DONE", state
assert room.raw == text.raw
print("written")
