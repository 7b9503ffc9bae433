#!/usr/bin/env python3
"""Prints when a host of a LAN first says a text by multicast DNS, over IPv4. Needs root on Linux.

    first_said.py INTERFACE TEXT…     until it is ended; a line each: EPOCH ADDRESS TEXT
"""
import socket
import sys
import time

from mdns_packets import packets


def main():
    interface, *texts = sys.argv[1:]
    said = set()
    for address, message in packets(interface):
        now = time.time()
        for text in texts:
            key = socket.inet_ntoa(address), text
            if text.encode() in message and key not in said:
                said.add(key)
                print(f"{now:.3f}", *key, flush=True)


main()
