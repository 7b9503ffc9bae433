#!/usr/bin/env python3
"""Sends mDNS packets that no correct responder sends. Standard library only.

    hostile.py announce SERVICE ADDRESS... [OPTION=VALUE...]    one response, every 0.4 s for two seconds: a service and its host
        type=_rtsp._tcp port=666 host=evil.local    the service; SERVICE is its name
        from=5353         the source port
        source=ADDRESS    an address of this machine that is the source
        to=ADDRESS        unicast to this address; without it, multicast
        seconds=2         for how long
        only=PTR,SRV      only records of these types; flush=no: none has the cache-flush bit; ttl=0: a goodbye
        split=yes         the service's name is split at its dots into labels
    hostile.py garbage ADDRESS SECONDS MEGABYTES     random bytes and broken responses, unicast, so many MB a second
    hostile.py unasked PACKETS SECONDS               200 records in each packet, whose types nobody asks for
    hostile.py names TYPE COUNT SECONDS              announces COUNT services of TYPE again and again, whose names begin with !
    hostile.py filling TYPE SECONDS                  services with large TXT records, then with small ones: all bytes that it may have
    hostile.py large TYPE RATE SECONDS               350 services of 8700 bytes, again and again, each time with other values
    hostile.py goodbyes SERVICE TYPE RATE SECONDS    goodbyes for SERVICE: its pointer, and all its records as this host may write them
    hostile.py short COUNT                           three bytes by IPv6 multicast, COUNT times
    hostile.py sources NETWORK ADDRESS RATE SECONDS  responses from the first 2048 addresses of NETWORK, which this machine has as
                                                     local; ADDRESS is a host, 224.0.0.251, or ff02::fb with %INTERFACE
    hostile.py questions TYPE SERVICE RATE SECONDS   512 or 256 questions for TYPE, and known answers that all name SERVICE
    hostile.py chains RATE SECONDS                   347 names of 2000 pointers
    hostile.py addresses HOST RATE SECONDS           550 addresses of HOST
    hostile.py confirm SERVICE TYPE ADDRESS RATE SECONDS     questions for SERVICE's SRV record, by unicast

RATE is packets a second, of at most 9000 bytes. All end after SECONDS, and before if they cannot keep up.
"""
import ipaddress
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


def service(name, addresses, kind="_rtsp._tcp", port="666", host="evil.local", only="PTR,SRV,TXT,A", flush="yes", ttl=120, split="no"):
    base, unique, ttl = labels(kind) + [b"local"], CLASS_IN | (FLUSH if flush == "yes" else 0), int(ttl)
    full, target = (labels(name) if split == "yes" else [name.encode()]) + base, labels(host)
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
    count = int(seconds / 0.4)
    for _ in range(count):
        out.sendto(packet, (to, PORT))
        time.sleep(0.4)
    print(f"{count} packets in {count * 0.4:.1f} s", flush=True)


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


def filled(base, n, size, fill=b"x"):
    """A service whose TXT record has so many bytes, in values of 255 bytes with the keys a, b, and so on."""
    full = [b"!%d-%d" % (size, n)] + base
    entries = [b"%c=" % (97 + m) + fill * 253 for m in range(min(size // 256, 26))] + [fill * 255] * (size // 256 - 26)
    txt = b"".join(b"\xff" + entry for entry in entries) or b"\0"
    return response([record(base, PTR, CLASS_IN, 4500, name_of(full)), record(full, TXT, CLASS_IN, 4500, txt)])


def filling(kind, seconds):
    out, base, began = opened(), labels(kind) + [b"local"], time.monotonic()
    packets = [filled(base, n, size) for count, size in [(350, 8700), (1000, 1000), (1500, 255), (1500, 1)] for n in range(count)]
    for n in paced(float(seconds), len(packets)):
        out.sendto(packets[n], (GROUP, PORT))
    print(f"{len(packets)} packets in {time.monotonic() - began:.1f} s", flush=True)


def large(kind, rate, seconds):
    out, base = opened(), labels(kind) + [b"local"]
    flood(lambda n: out.sendto(filled(base, n % 350, 8700, b"%c" % (97 + n // 350 % 26)), (GROUP, PORT)), rate, seconds)


def goodbyes(name, kind, rate, seconds):
    out = opened()
    packets = [response(service(name, ["198.51.100.9"], kind, only=only, flush="no", ttl=0)) for only in ["PTR", "PTR,SRV,TXT,A"]]
    flood(lambda n: out.sendto(packets[n % 2], (GROUP, PORT)), rate, seconds)


def short(count):
    out = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    out.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("eth0"))
    out.bind(("::", 0))
    for _ in paced(1, int(count)):
        out.sendto(b"???", ("ff02::fb", PORT))


def flood(send, rate, seconds):
    """Calls send(0), send(1), ..., so many a second, in portions of a hundredth of a second; says how many there were."""
    rate, seconds = float(rate), float(seconds)
    began, sent = time.monotonic(), 0
    while (passed := time.monotonic() - began) < seconds:
        while sent < rate * passed and time.monotonic() - began < seconds:
            send(sent)
            sent += 1
        time.sleep(0.01)
    print(f"{sent} packets in {time.monotonic() - began:.1f} s", flush=True)


def sources(network, address, rate, seconds):
    net, (address, _, interface) = ipaddress.ip_network(network), address.partition("%")
    family, level = (socket.AF_INET, socket.IPPROTO_IP) if net.version == 4 else (socket.AF_INET6, socket.IPPROTO_IPV6)
    out = socket.socket(family, socket.SOCK_DGRAM)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    out.bind(("", PORT))
    index = socket.if_nametoindex(interface or "eth0")
    if net.version == 4:
        out.setsockopt(level, socket.IP_MULTICAST_TTL, 255)
        # The number of IP_PKTINFO, which Python has from 3.14 on, and struct in_pktinfo.
        control = [(level, 8, struct.pack("=i4s4s", index, net[n].packed, b"")) for n in range(min(2048, net.num_addresses))]
        to = (address, PORT)
    else:
        out.setsockopt(level, socket.IPV6_MULTICAST_HOPS, 255)
        # IPV6_FREEBIND, which Python does not name: a source need not be an address of this host.
        out.setsockopt(level, 78, 1)
        control = [(level, socket.IPV6_PKTINFO, struct.pack("=16sI", net[n].packed, index)) for n in range(min(2048, net.num_addresses))]
        to = (address, PORT, 0, index)
    packets = [response([record([b"h%d" % n, b"local"], A, CLASS_IN, 120, bytes([198, 51, n // 256, n % 256]))]) for n in range(2048)]
    flood(lambda n: out.sendmsg([packets[n % 2048]], [control[n % len(control)]], 0, to), rate, seconds)


def questions(kind, service, rate, seconds):
    packets = []
    for asked, known in [(512, 400), (256, 500)]:
        packet = struct.pack("!HHHHHH", 0, 0, asked, known, 0, 0) + name_of(labels(kind) + [b"local"]) + struct.pack("!HH", PTR, CLASS_IN)
        packet += struct.pack("!HHH", 0xC00C, PTR, CLASS_IN) * (asked - 1)
        at, name = len(packet) + 12, bytes([len(service)]) + service.encode() + b"\xc0\x0c"
        packet += struct.pack("!HHHIH", 0xC00C, PTR, CLASS_IN, 4500, len(name)) + name
        packets.append(packet + struct.pack("!HHHIHH", 0xC00C, PTR, CLASS_IN, 4500, 2, 0xC000 | at) * (known - 1))
    out = opened()
    flood(lambda n: out.sendto(packets[n % 2], (GROUP, PORT)), rate, seconds)


def chains(rate, seconds):
    links = 2000
    # The data of a TXT record at offset 23: pointers of which each leads to the one before, and the first to the root.
    chain = b"".join(struct.pack("!H", 0xC000 | (12 if n == 0 else 21 + 2 * n)) for n in range(links))
    first = b"\0" + struct.pack("!HHIH", TXT, CLASS_IN, 120, len(chain)) + chain
    others = struct.pack("!HHHIH", 0xC000 | (21 + 2 * links), 99, CLASS_IN, 120, 0) * 347
    packet, out = struct.pack("!HHHHHH", 0, 0x8400, 0, 348, 0, 0) + first + others, opened()
    flood(lambda n: out.sendto(packet, (GROUP, PORT)), rate, seconds)


def addresses(host, rate, seconds):
    name, out = name_of(labels(host)), opened()
    packets = []
    for first in range(0, 5500, 550):
        one = struct.pack("!HHHHHH", 0, 0x8400, 0, 550, 0, 0)
        for n in range(first, first + 550):
            one += (name if n == first else b"\xc0\x0c") + struct.pack("!HHIHBBH", A, CLASS_IN, 120, 4, 198, 51, n)
        packets.append(one)
    flood(lambda n: out.sendto(packets[n % 10], (GROUP, PORT)), rate, seconds)


def confirm(service, kind, address, rate, seconds):
    out = opened()
    packet = struct.pack("!HHHHHH", 0, 0, 1, 0, 0, 0) + name_of([service.encode()] + labels(kind) + [b"local"]) + struct.pack("!HH", SRV, CLASS_IN)
    flood(lambda n: out.sendto(packet, (address, PORT)), rate, seconds)


if __name__ == "__main__":
    modes = [announce, garbage, unasked, names, filling, large, goodbyes, short, sources, questions, chains, addresses, confirm]
    {mode.__name__: mode for mode in modes}[sys.argv[1]](*sys.argv[2:])
