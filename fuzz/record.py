#!/usr/bin/env python3
"""Records what the hosts of a LAN say by mDNS, as inputs of the fuzz target mdns. Needs root on Linux.

    fuzz/record.py INTERFACE FOLDER     until SIGTERM; then a file for each host that answered, named by its address

A file has a line of `discoveryDetails`, then packets: tenths of a second since the one before, the last byte of the source's
address, the length in two bytes, the message. Networks of 198.51.100.0/24 become 10.0.0.0/24, as the target has them.
"""
import os
import signal
import socket
import sys
import time

LONGEST, GROUP, PORT = 12_000, bytes([224, 0, 0, 251]), 5353


def packet_of(frame):
    """The source's last byte and the message of an IPv4 packet to the group."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[30:34] != GROUP:
        return None
    udp = 14 + (frame[14] & 15) * 4
    if int.from_bytes(frame[udp + 2:udp + 4], "big") != PORT:
        return None
    return frame[29], frame[udp + 8:].replace(bytes([198, 51, 100]), bytes([10, 0, 0]))


def write(folder, packets):
    for host in sorted({source for _, source, message in packets if message[2] & 0x80}):
        own = [p for p in packets if p[1] == host]
        kind = next(k for k in (b"_rtsp", b"_hap", b"") if any(k in message for _, _, message in own))
        text, before = b"{kind: %s._tcp}\n" % kind, own[0][0]
        for at, source, message in own:
            part = bytes([min(int((at - before) * 10), 254), source]) + len(message).to_bytes(2, "big") + message
            if len(text) + len(part) > LONGEST:
                break
            text, before = text + part, at
        with open(os.path.join(folder, f"recorded-{host}"), "wb") as file:
            file.write(text)


def main():
    interface, folder = sys.argv[1:]
    heard = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    heard.bind((interface, 0))
    packets = []

    def end(*_):
        write(folder, packets)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        found = packet_of(heard.recv(10_000))
        if found:
            packets.append((time.monotonic(), *found))


main()
