#!/usr/bin/python3
"""Checks the ICRC of every RoCE packet over IPv4 of capture files with scapy, which shares no code with Nichrome.

Prints how many packets were checked, one line per file; exits with 1 where an ICRC is wrong.
"""
import sys

from scapy.contrib.roce import BTH
from scapy.layers.inet import UDP
from scapy.utils import rdpcap

wrong = 0
for path in sys.argv[1:]:
    checked = 0
    for number, packet in enumerate(rdpcap(path), 1):
        if BTH not in packet or not packet.haslayer("IP"):
            continue
        bth = packet[BTH]
        sent = BTH.pack_icrc(bth.icrc)[::-1]
        computed = bth.compute_icrc(None)
        checked += 1
        if sent != computed:
            print(f"{path}, frame {number}: ICRC {sent.hex()}, computed {computed.hex()}", file=sys.stderr)
            wrong += 1
    print(checked)
sys.exit(1 if wrong else 0)
