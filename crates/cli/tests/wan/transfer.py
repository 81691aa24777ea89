"""Programs for the hosts at the ends of a path. READY is a file that servers make once they listen, and clients wait for.

transfer.py serve BYTES           sends each of the clients that connect its part of BYTES random bytes
transfer.py fetch HOST BYTES      receives them over several connections, and prints their SHA-256
transfer.py expect BYTES          prints the SHA-256 that they have
transfer.py echo                  returns datagrams
transfer.py send HOST COUNT       sends numbered datagrams, and prints the numbers of those that come back
transfer.py ping HOST             sends a datagram again and again, and prints the milliseconds until each is back
transfer.py fragmentable HOST LENGTH  sends a datagram of LENGTH bytes without DF, and prints whether it comes back
transfer.py probe HOST LENGTH     finds the path's MTU as the kernel does, with datagrams of LENGTH bytes
"""

import hashlib
import os
import random
import socket
import sys
import threading
import time

PORT = 7000
CONNECTIONS = 8


def contents(length):
    return random.Random(length).randbytes(length)


def family(host):
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def listening():
    open(os.environ["READY"], "w").close()


def wait_until_listening():
    while not os.path.exists(os.environ["READY"]):
        time.sleep(0.01)


def serve(length):
    data = contents(length)
    listener = socket.create_server(("", PORT), family=socket.AF_INET6, dualstack_ipv6=True)
    listening()
    while True:
        threading.Thread(target=send_part, args=(listener.accept()[0], data), daemon=True).start()


def send_part(connection, data):
    part = connection.recv(1)[0]
    step = len(data) // CONNECTIONS + 1
    connection.sendall(data[part * step : (part + 1) * step])
    connection.close()


def fetch(host, length):
    wait_until_listening()
    parts = [None] * CONNECTIONS

    def receive(part):
        received = bytearray()
        with socket.create_connection((host, PORT)) as connection:
            connection.sendall(bytes([part]))
            while piece := connection.recv(1 << 20):
                received += piece
        parts[part] = received

    threads = [threading.Thread(target=receive, args=(part,)) for part in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    print(hashlib.sha256(b"".join(parts)).hexdigest())


def echo():
    datagrams = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    datagrams.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    datagrams.setsockopt(0, 10, 0)  # IP_MTU_DISCOVER: without DF
    datagrams.bind(("", PORT))
    listening()
    while True:
        datagrams.sendto(*datagrams.recvfrom(65536))


def connected(host):
    wait_until_listening()
    datagrams = socket.socket(family(host), socket.SOCK_DGRAM)
    datagrams.connect((host, PORT))
    return datagrams


def send(host, count):
    datagrams = connected(host)
    for number in range(1, count + 1):
        datagrams.send(str(number).encode())
    datagrams.settimeout(1)
    returned = []
    try:
        while True:
            returned.append(datagrams.recv(100).decode())
    except TimeoutError:
        print(*returned)


def ping(host):
    datagrams = connected(host)
    while True:
        begun = time.monotonic()
        datagrams.send(b"?")
        datagrams.recv(100)
        print((time.monotonic() - begun) * 1000, flush=True)
        time.sleep(0.01)


def fragmentable(host, length):
    datagrams = connected(host)
    datagrams.setsockopt(0, 10, 0)  # IP_MTU_DISCOVER: without DF
    datagrams.settimeout(5)
    sent = contents(length)
    datagrams.send(sent)
    try:
        print("it came back" if datagrams.recv(65536) == sent else "other bytes came back")
    except TimeoutError:
        print("nothing came back")


def probe(host, length):
    datagrams = connected(host)
    # IP_MTU_DISCOVER and IP_MTU, and the same for IPv6 (ip(7), ipv6(7)).
    level, discover, mtu = (0, 10, 14) if family(host) == socket.AF_INET else (41, 23, 24)
    datagrams.setsockopt(level, discover, 2)
    datagrams.settimeout(5)
    try:
        datagrams.send(bytes(length))
        datagrams.recv(65536)
        print("it came back")
    except OSError as error:
        print(error.strerror, datagrams.getsockopt(level, mtu))


if __name__ == "__main__":
    name, *arguments = sys.argv[1:]
    if name == "expect":
        print(hashlib.sha256(contents(int(arguments[0]))).hexdigest())
    else:
        programs = [serve, fetch, echo, send, ping, fragmentable, probe]
        program = {program.__name__: program for program in programs}[name]
        program(*(int(argument) if argument.isdigit() else argument for argument in arguments))
