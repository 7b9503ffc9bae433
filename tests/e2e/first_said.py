#!/usr/bin/env python3
"""Prints when a host of a LAN first says a text by multicast DNS, over IPv4. Needs root on Linux.

    first_said.py INTERFACE TEXT…     until it is ended; a line each: EPOCH ADDRESS TEXT
"""
import socket
import sys
import time

GROUP, PORT = bytes([224, 0, 0, 251]), 5353


def main():
    interface, *texts = sys.argv[1:]
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    frames.bind((interface, 0))
    said = set()
    while True:
        frame = frames.recv(10_000)
        now = time.time()
        if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[30:34] != GROUP:
            continue
        udp = 14 + (frame[14] & 15) * 4
        if int.from_bytes(frame[udp + 2:udp + 4], "big") != PORT:
            continue
        for text in texts:
            key = socket.inet_ntoa(frame[26:30]), text
            if text.encode() in frame[udp + 8:] and key not in said:
                said.add(key)
                print(f"{now:.3f}", *key, flush=True)


main()
