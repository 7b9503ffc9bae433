#!/usr/bin/env python3
"""Records what the hosts of a LAN say by mDNS, as inputs of the fuzz target mdns. Needs root on Linux.

    fuzz/record.py INTERFACE FOLDER     until SIGTERM; then a file for each host that answered, named by its address

A file has a line of `discoveryDetails`, then packets: tenths of a second since the one before, the last byte of the source's
address, the length in two bytes, the message. Networks of 198.51.100.0/24 become 10.0.0.0/24, as the target has them.
"""
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tests/e2e"))
from mdns_packets import packets  # noqa: E402

LONGEST = 12_000


def write(folder, received):
    for host in sorted({source for _, source, message in received if message[2] & 0x80}):
        own = [p for p in received if p[1] == host]
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
    received = []

    def end(*_):
        write(folder, received)
        sys.exit(0)

    signal.signal(signal.SIGTERM, end)
    for address, message in packets(interface):
        message = message.replace(bytes([198, 51, 100]), bytes([10, 0, 0]))
        received.append((time.monotonic(), address[3], message))


main()
