"""Drives the module by independent bus models (cocotbext-axi): registers, byte order, checksums, bad frames, pauses on both sides."""
import itertools
import logging
import random
import struct

import cocotb
from cocotb.clock import Clock
from cocotb.triggers import RisingEdge
from cocotbext.axi import AxiLiteBus, AxiLiteMaster, AxiStreamBus, AxiStreamFrame, AxiStreamSink, AxiStreamSource

CONTROL, STATUS, TIMER_NS, MAX_BYTES = 0x10, 0x14, 0x18, 0x1C
AGGREGATES, SEGMENTS, PACKETS_OUT, BAD_FRAMES = 0x130, 0x138, 0x118, 0x3F8
HEADERS = 54


def ones_sum(data):
    """Returns the folded sum of big-endian words of the Internet checksum."""
    data = bytes(data) + bytes(len(data) % 2)
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def segment(port, seq, payload, ack=1, flags=0x10):
    """Returns an Ethernet frame with a TCP segment, padded to 60 bytes."""
    tcp = struct.pack(">HHIIBBHHH", port, 80, seq, ack, 0x50, flags, 512, 0, 0) + payload
    addresses = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    pseudo = addresses + struct.pack(">HH", 6, len(tcp))
    tcp = tcp[:16] + struct.pack(">H", 0xFFFF ^ ones_sum(pseudo + tcp)) + tcp[18:]
    ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 7, 0x4000, 64, 6, 0) + addresses
    ip = ip[:10] + struct.pack(">H", 0xFFFF ^ ones_sum(ip)) + ip[12:]
    return (b"\x02" * 12 + b"\x08\x00" + ip + tcp).ljust(60, b"\x00")


def taken_apart(frame):
    """Returns port, sequence number and payload of a TCP segment; asserts that its checksums are right."""
    assert frame[12:14] == b"\x08\x00" and frame[23] == 6
    length = struct.unpack(">H", frame[16:18])[0]
    packet = frame[14 : 14 + length]
    assert ones_sum(packet[:20]) == 0xFFFF, "IPv4 checksum"
    assert ones_sum(packet[12:20] + struct.pack(">HH", 6, length - 20) + packet[20:]) == 0xFFFF, "TCP checksum"
    port, _, seq = struct.unpack(">HHI", packet[20:28])
    return port, seq, packet[40:]


class Bench:
    def __init__(self, dut):
        self.dut = dut
        cocotb.start_soon(Clock(dut.clk, 8, unit="ns").start())
        self.source = AxiStreamSource(AxiStreamBus.from_prefix(dut, "s_axis"), dut.clk, dut.rst)
        self.sink = AxiStreamSink(AxiStreamBus.from_prefix(dut, "m_axis"), dut.clk, dut.rst)
        self.axil = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)
        for interface in (self.source, self.sink, self.axil.write_if, self.axil.read_if):
            interface.log.setLevel(logging.WARNING)  # They log every byte of every frame.
        dut.now.value = 1000
        dut.s_axis_arrival.value = 1000

    async def start(self):
        self.dut.rst.value = 1
        for _ in range(4):
            await RisingEdge(self.dut.clk)
        self.dut.rst.value = 0
        while not await self.axil.read_dword(STATUS) & 2:
            pass
        await self.axil.write_dword(CONTROL, 1)

    async def drain(self):
        """Closes all stored aggregates; returns all packets so far."""
        await self.source.wait()
        await self.axil.write_dword(CONTROL, 5)
        while not await self.axil.read_dword(STATUS) & 1:
            pass
        await self.axil.write_dword(CONTROL, 1)
        packets = []
        while not self.sink.empty():
            packets.append(bytes(self.sink.recv_nowait().tdata))
        return packets

    async def counter(self, address):
        low = await self.axil.read_dword(address)
        return low | await self.axil.read_dword(address + 4) << 32


async def started(dut):
    bench = Bench(dut)
    await bench.start()
    return bench


@cocotb.test()
async def registers_hold_what_is_written(dut):
    bench = await started(dut)
    assert await bench.axil.read_dword(0) == 0x4E4C524F
    parameters = await bench.axil.read_dword(8)
    assert parameters & 0xFFFF == len(dut.s_axis_tdata)
    await bench.axil.write_dword(TIMER_NS, 0xDEADBEEF)
    assert await bench.axil.read_dword(TIMER_NS) == 0xDEADBEEF
    await bench.axil.write_dword(MAX_BYTES, 0x1234)
    assert await bench.axil.read_dword(MAX_BYTES) == 0x1234
    # A write of some of the bytes changes nothing.
    await bench.axil.write(TIMER_NS, b"\x00\x00")
    assert await bench.axil.read_dword(TIMER_NS) == 0xDEADBEEF


@cocotb.test()
async def segments_become_one_packet(dut):
    bench = await started(dut)
    payloads = [bytes([nth]) * length for nth, length in enumerate([1000, 1000, 999, 1, 500])]
    seq = 0xFFFFFF00
    for payload in payloads:
        await bench.source.send(AxiStreamFrame(segment(4000, seq, payload)))
        seq = (seq + len(payload)) & 0xFFFFFFFF
    packets = await bench.drain()
    assert len(packets) == 1
    assert taken_apart(packets[0]) == (4000, 0xFFFFFF00, b"".join(payloads))
    assert await bench.counter(AGGREGATES) == 1
    assert await bench.counter(SEGMENTS) == len(payloads)


@cocotb.test()
async def a_bad_frame_is_dropped_and_counted(dut):
    bench = await started(dut)
    good = segment(4000, 0, b"good")
    await bench.source.send(AxiStreamFrame(segment(4000, 100, b"bad"), tuser=1))
    await bench.source.send(AxiStreamFrame(good))
    assert await bench.drain() == [good]
    assert await bench.counter(BAD_FRAMES) == 1
    assert await bench.counter(PACKETS_OUT) == 1


@cocotb.test()
async def the_timer_sends_what_is_stored(dut):
    bench = await started(dut)
    await bench.axil.write_dword(TIMER_NS, 500)
    await bench.source.send(AxiStreamFrame(segment(4000, 0, b"waits")))
    await bench.source.wait()
    while not dut.deadline_valid.value:
        await RisingEdge(dut.clk)
    assert int(dut.deadline.value) == 1500
    assert bench.sink.empty()
    dut.now.value = 1500
    frame = await bench.sink.recv()
    assert taken_apart(bytes(frame.tdata)) == (4000, 0, b"waits")


async def streams_with_pauses(dut, source_pauses, sink_pauses):
    """Segments of random flows, with other frames between them: each stream arrives whole and in order, other frames unchanged."""
    bench = await started(dut)
    chance = random.Random(1)
    if source_pauses:
        bench.source.set_pause_generator(chance.random() < source_pauses for _ in itertools.count())
    if sink_pauses:
        bench.sink.set_pause_generator(chance.random() < sink_pauses for _ in itertools.count())
    sent, others = {}, []
    for nth in range(120):
        if chance.random() < 0.15:
            others.append(b"\x02" * 12 + struct.pack(">HI", 0x88B5, nth) + chance.randbytes(chance.randrange(42, 200)))
            await bench.source.send(AxiStreamFrame(others[-1]))
        else:
            port = chance.choice([4000, 4001, 4002])
            stream = sent.setdefault(port, bytearray())
            payload = chance.randbytes(chance.randrange(1, 400))
            await bench.source.send(AxiStreamFrame(segment(port, len(stream), payload)))
            stream += payload
    received, passed = {}, []
    for packet in await bench.drain():
        if packet[12:14] == b"\x88\xb5":
            passed.append(packet)
            continue
        port, seq, payload = taken_apart(packet)
        stream = received.setdefault(port, bytearray())
        assert seq == len(stream)
        stream += payload
    assert received == sent
    assert passed == others


@cocotb.test()
async def streams_arrive_whole(dut):
    await streams_with_pauses(dut, 0, 0)


@cocotb.test()
async def streams_arrive_whole_with_pauses_on_both_sides(dut):
    await streams_with_pauses(dut, 0.3, 0.7)


@cocotb.test()
async def streams_arrive_whole_while_the_sink_pauses(dut):
    await streams_with_pauses(dut, 0, 0.9)
