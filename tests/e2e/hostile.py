#!/usr/bin/env python3
"""Sends mDNS packets that no correct responder sends. Standard library only.

    hostile.py announce SERVICE ADDRESS... [OPTION=VALUE...]    one response, every 0.4 s for two seconds: a service and its host
        type=_rtsp._tcp port=666 host=evil.local    the service; SERVICE is its name
        from=5353         the source port
        source=ADDRESS    an address of this machine that is the source
        to=ADDRESS        unicast to this address; without it, multicast
        seconds=2         for how long
        only=PTR,SRV      only records of these types; flush=no: none has the cache-flush bit
    hostile.py garbage ADDRESS SECONDS MEGABYTES     random bytes and broken responses, unicast, so many MB a second
    hostile.py unasked PACKETS SECONDS               200 records in each packet, whose types nobody asks for
    hostile.py names TYPE COUNT SECONDS              announces COUNT services of TYPE again and again, whose names begin with !
    hostile.py short COUNT                           three bytes by IPv6 multicast, COUNT times
"""
import os
import random
import socket
import struct
import sys
import time

from responder import A, CLASS_IN, FLUSH, GROUP, PORT, PTR, SRV, TXT, name_of, record

LONGEST = 2**31 - 1


def opened(source="", port=PORT):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)
    out.bind((source, port))
    return out


def response(records):
    return struct.pack("!HHHHHH", 0, 0x8400, 0, len(records), 0, 0) + b"".join(records)


def labels(dotted):
    return [part.encode() for part in dotted.split(".")]


def service(name, addresses, kind="_rtsp._tcp", port="666", host="evil.local", only="PTR,SRV,TXT,A", flush="yes", ttl=120):
    base, unique = labels(kind) + [b"local"], CLASS_IN | (FLUSH if flush == "yes" else 0)
    full, target = [name.encode()] + base, labels(host)
    srv = struct.pack("!HHH", 0, 0, int(port)) + name_of(target)
    records = {
        "PTR": [record(base, PTR, CLASS_IN, ttl, name_of(full))],
        "SRV": [record(full, SRV, unique, ttl, srv)],
        "TXT": [record(full, TXT, unique, ttl, b"\x0btaken=false")],
        "A": [record(target, A, unique, ttl, socket.inet_aton(address)) for address in addresses],
    }
    return [one for kind in only.split(",") for one in records[kind]]


def announce(name, *words):
    options = dict(word.split("=", 1) for word in words if "=" in word)
    addresses = [word for word in words if "=" not in word]
    out = opened(options.pop("source", ""), int(options.pop("from", PORT)))
    to, seconds = options.pop("to", GROUP), float(options.pop("seconds", 2))
    if "type" in options:
        options["kind"] = options.pop("type")
    packet = response(service(name, addresses, **options))
    for _ in range(int(seconds / 0.4)):
        out.sendto(packet, (to, PORT))
        time.sleep(0.4)


def paced(seconds, count):
    """Yields 0 ... count-1, evenly over so many seconds."""
    began = time.monotonic()
    for n in range(count):
        yield n
        time.sleep(max(0, began + seconds * (n + 1) / count - time.monotonic()))


def broken():
    if random.random() < 0.5:
        return os.urandom(1400)
    packet = bytearray(response([one for n in range(12) for one in service(f"s{n}", ["198.51.100.9"])]))
    for _ in range(8):
        packet[random.randrange(12, len(packet))] = random.randrange(256)
    return bytes(packet) + os.urandom(max(0, 1400 - len(packet)))


def garbage(address, seconds, megabytes):
    out, packets = opened(), [broken() for _ in range(500)]
    for n in paced(float(seconds), int(float(megabytes) * 1e6 * float(seconds) / 1400)):
        out.sendto(packets[n % len(packets)], (address, PORT))


def unasked(packets, seconds):
    out = opened()
    for n in paced(float(seconds), int(packets)):
        host = struct.pack("!HHH", 0, 0, 80) + b"\x01x\x05local\0"
        records = []
        for m in range(100):
            records.append(record([b"h%d-%d" % (n, m), b"local"], A, CLASS_IN, LONGEST, bytes([198, 51, n % 256, m])))
            records.append(record([b"s%d-%d" % (n, m), b"_no", b"_tcp", b"local"], SRV, CLASS_IN, LONGEST, host))
        out.sendto(response(records), (GROUP, PORT))


def names(kind, count, seconds):
    out, count = opened(), int(count)
    packets = []
    for first in range(0, count, 8):
        parts = [one for n in range(first, min(first + 8, count)) for one in service(f"!{n:05}", ["198.51.100.9"], kind, ttl=LONGEST)]
        packets.append(response(parts))
    rounds = max(1, int(float(seconds) * 1000 / len(packets)))
    for n in paced(float(seconds), rounds * len(packets)):
        out.sendto(packets[n % len(packets)], (GROUP, PORT))


def short(count):
    out = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
    out.bind(("::", 0))
    for _ in paced(1, int(count)):
        out.sendto(b"???", ("ff02::fb", PORT))


if __name__ == "__main__":
    {"announce": announce, "garbage": garbage, "unasked": unasked, "names": names, "short": short}[sys.argv[1]](*sys.argv[2:])
