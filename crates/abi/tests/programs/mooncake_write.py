"""Two processes with Mooncake's transfer engine: one writes 1 MiB to the other's memory."""

import ctypes
import multiprocessing

from mooncake.engine import TransferEngine

SIZE = 1 << 20
TEXT = b"first" + b"." * (SIZE - 9) + b"last"


def engine(room):
    created = TransferEngine()
    # Without an RDMA device Mooncake falls back to TCP; the caller checks that the device sent the bytes.
    assert created.initialize("127.0.0.1", "P2PHANDSHAKE", "rdma", "nichrome0") == 0
    assert created.register_memory(ctypes.addressof(room), SIZE) == 0
    return created


def target(address, written):
    room = ctypes.create_string_buffer(SIZE)
    made = engine(room)
    address.put((f"127.0.0.1:{made.get_rpc_port()}", ctypes.addressof(room)))
    written.get(timeout=60)
    assert room.raw == TEXT


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    address, written = multiprocessing.Queue(), multiprocessing.Queue()
    peer = multiprocessing.Process(target=target, args=(address, written))
    peer.start()
    name, remote = address.get(timeout=60)
    text = ctypes.create_string_buffer(TEXT, SIZE)
    made = engine(text)
    assert made.transfer_sync_write(name, ctypes.addressof(text), remote, SIZE) == 0
    written.put(True)
    peer.join(60)
    assert peer.exitcode == 0
    print("written")
