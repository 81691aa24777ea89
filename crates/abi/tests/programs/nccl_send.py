"""Sends eight messages of 1 MiB between two processes over NCCL's IB transport, without a GPU.

NCCL's own functions need a GPU. Its network transports do not, and the library's symbol table has the table of functions of the
IB transport (ncclNetIb, of type ncclNet_v12_t in src/include/plugin/net), which this program calls as NCCL does."""

import ctypes
import os
import socket
import subprocess
from importlib.util import find_spec
from pathlib import Path

SIZE = 1 << 20
HOST_MEMORY = 1
HANDLE = 128
# NCCL's log function, which prints nothing.
LOG = ctypes.CFUNCTYPE(None)(lambda: None)
MEMBERS = """name init devices getProperties listen connect accept regMr regMrDmaBuf deregMr isend irecv iflush test closeSend
closeRecv closeListen""".split()


def transport():
    """Loads NCCL and returns a function that calls a member of the transport's table."""
    path = next(Path(place) / "lib/libnccl.so.2" for place in find_spec("nvidia.nccl").submodule_search_locations)
    library = ctypes.CDLL(str(path))
    symbols = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout.splitlines()
    address = {line.split()[-1]: int(line.split()[0], 16) for line in symbols if line[0] != " "}
    loaded_at = ctypes.cast(library.ncclGetVersion, ctypes.c_void_p).value - address["ncclGetVersion"]
    table = (ctypes.c_void_p * len(MEMBERS)).from_address(loaded_at + address["ncclNetIb"])

    def call(member, *arguments):
        result = ctypes.CFUNCTYPE(ctypes.c_int)(table[MEMBERS.index(member)])(*arguments)
        assert result == 0, f"{member} returned {result}"

    return call


def until_made(call, *arguments):
    """Calls a member until it sets the object that its argument `made` points to."""
    made = ctypes.c_void_p()
    while not made.value:
        call(*[ctypes.byref(made) if argument == "made" else argument for argument in arguments])
    return made


def opened(call):
    """Opens the transport and returns its context. There must be one device."""
    context, devices = ctypes.c_void_p(), ctypes.c_int()
    traffic_class = ctypes.c_int(-1)
    call("init", ctypes.byref(context), ctypes.c_uint64(1), ctypes.byref(traffic_class), LOG, None)
    call("devices", ctypes.byref(devices))
    assert devices.value == 1, f"{devices.value} devices"
    return context


def registered(call, connection):
    memory, key = ctypes.create_string_buffer(SIZE), ctypes.c_void_p()
    call("regMr", connection, memory, ctypes.c_size_t(SIZE), HOST_MEMORY, ctypes.byref(key))
    return memory, key


def finish(call, request):
    done, sizes = ctypes.c_int(), (ctypes.c_int * 8)()
    while not done.value:
        call("test", request, ctypes.byref(done), sizes)
    return sizes[0]


def message(number):
    return bytes([number + 1]) * SIZE


def receive(peer):
    call = transport()
    context = opened(call)
    handle, listening = ctypes.create_string_buffer(HANDLE), ctypes.c_void_p()
    call("listen", context, 0, handle, ctypes.byref(listening))
    peer.sendall(handle.raw)
    nothing = ctypes.c_void_p()
    connection = until_made(call, "accept", listening, "made", ctypes.byref(nothing))
    memory, key = registered(call, connection)
    for number in range(8):
        data = (ctypes.c_void_p * 1)(ctypes.addressof(memory))
        sizes, tags = (ctypes.c_size_t * 1)(SIZE), (ctypes.c_int * 1)(7)
        keys, none = (ctypes.c_void_p * 1)(key), (ctypes.c_void_p * 1)()
        request = until_made(call, "irecv", connection, 1, data, sizes, tags, keys, none, "made")
        assert finish(call, request) == SIZE
        assert memory.raw == message(number), number
    peer.sendall(b"done")
    call("deregMr", connection, key)
    call("closeRecv", connection)
    call("closeListen", listening)


def send(peer):
    call = transport()
    context = opened(call)
    handle = ctypes.create_string_buffer(peer.recv(HANDLE, socket.MSG_WAITALL), HANDLE)
    nothing = ctypes.c_void_p()
    connection = until_made(call, "connect", context, 0, handle, "made", ctypes.byref(nothing))
    memory, key = registered(call, connection)
    for number in range(8):
        memory.raw = message(number)
        size = ctypes.c_size_t(SIZE)
        finish(call, until_made(call, "isend", connection, memory, size, 7, key, None, "made"))
    assert peer.recv(4, socket.MSG_WAITALL) == b"done"
    call("deregMr", connection, key)
    call("closeSend", connection)


def main():
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        ours.close()
        receive(theirs)
        return
    theirs.close()
    send(ours)
    assert os.waitpid(child, 0)[1] == 0
    print("written")


main()
