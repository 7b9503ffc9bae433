#!/usr/bin/env python3
"""An mDNS responder that does what tests ask of it: it moves, flaps and vanishes. Standard library only.

    responder.py ADDRESS        the IPv4 address of the interface, and of every host that is announced

Reads commands from standard input, a line each, and prints `ok` after each:

    set NAME TYPE PORT [KEY=VALUE...]   announce a service, or what changed of it (cache-flush bit set, RFC 6762 10.2)
    quiet NAME TYPE PORT [KEY=VALUE...]   the same without an announcement: it is found by the next question
    gone NAME                           say goodbye (TTL 0, RFC 6762 10.1) and forget it
    flap COUNT RATE SECONDS             announce flap-0 ... flap-COUNT-1 (_http._tcp) and withdraw and return random ones,
                                        RATE changes a second in all; at the end all are announced

Queries for a service's type, its name or its host are answered by multicast within 20 ms.
"""
import os
import random
import select
import socket
import struct
import sys
import time

# Unbuffered: what `select` says of it is then all there is.
COMMANDS = os.fdopen(0, "rb", 0)
GROUP, PORT = "224.0.0.251", 5353
PTR, TXT, A, SRV, ANY = 12, 16, 1, 33, 255
CLASS_IN, FLUSH, TTL = 1, 0x8000, 120


def name_of(labels):
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def record(labels, kind, klass, ttl, data):
    return name_of(labels) + struct.pack("!HHIH", kind, klass, ttl, len(data)) + data


class Service:
    def __init__(self, name, kind, port, txt):
        self.type = [part.encode() for part in kind.split(".")] + [b"local"]
        self.name = [name.encode()] + self.type
        self.host = [name.encode().replace(b" ", b"-"), b"local"]
        self.port, self.txt = port, [text.encode() for text in txt]

    def records(self, address, ttl=TTL):
        txt = b"".join(bytes([len(text)]) + text for text in self.txt) or b"\0"
        srv = struct.pack("!HHH", 0, 0, self.port) + name_of(self.host)
        return [
            record(self.type, PTR, CLASS_IN, ttl, name_of(self.name)),
            record(self.name, SRV, CLASS_IN | FLUSH, ttl, srv),
            record(self.name, TXT, CLASS_IN | FLUSH, ttl, txt),
            record(self.host, A, CLASS_IN | FLUSH, ttl, socket.inet_aton(address)),
        ]

    def answers(self, labels):
        lowered = [label.lower() for label in labels]
        return any(lowered == [own.lower() for own in wanted] for wanted in (self.type, self.name, self.host))


def questions(packet):
    """Yields the names that a query asks for; nothing for a response or what cannot be read."""
    if len(packet) < 12 or packet[2] & 0x80:
        return
    count, at = struct.unpack("!H", packet[4:6])[0], 12
    for _ in range(count):
        labels, jumps, end = [], 0, None
        while at < len(packet) and packet[at]:
            length = packet[at]
            if length >= 0xC0:
                if at + 1 >= len(packet) or jumps > 10:
                    return
                end, at, jumps = end or at + 2, (length & 0x3F) << 8 | packet[at + 1], jumps + 1
                continue
            labels.append(packet[at + 1:at + 1 + length])
            at += 1 + length
        at = (end or at + 1) + 4
        yield labels


class Responder:
    def __init__(self, address):
        self.address, self.services = address, {}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        self.socket.bind(("", PORT))
        member = socket.inet_aton(GROUP) + socket.inet_aton(address)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(address))
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 255)

    def send(self, records):
        for first in range(0, len(records), 16):
            part = records[first:first + 16]
            packet = struct.pack("!HHHHHH", 0, 0x8400, 0, len(part), 0, 0) + b"".join(part)
            self.socket.sendto(packet, (GROUP, PORT))

    def set(self, name, kind, port, txt, announces=True):
        self.services[name] = Service(name, kind, port, txt)
        if announces:
            self.send(self.services[name].records(self.address))

    def gone(self, name):
        service = self.services.pop(name, None)
        if service:
            self.send(service.records(self.address, ttl=0))

    def answer(self, seconds):
        """Answers queries for so long, or until there is a command."""
        ready, _, _ = select.select([self.socket, COMMANDS], [], [], max(0, seconds))
        if self.socket in ready:
            asked = list(questions(self.socket.recv(9000)))
            found = [s for s in self.services.values() if any(s.answers(labels) for labels in asked)]
            self.send([r for s in found for r in s.records(self.address)])
        return COMMANDS in ready

    def flap(self, count, rate, seconds):
        kind, there = "_http._tcp", set(range(count))
        for n in there:
            self.set(f"flap-{n}", kind, 1000 + n, [])
        end, due = time.monotonic() + seconds, time.monotonic()
        while time.monotonic() < end:
            while time.monotonic() >= due:
                due += 1 / rate
                n = random.randrange(count)
                if n in there:
                    there.discard(n)
                    self.gone(f"flap-{n}")
                else:
                    there.add(n)
                    self.set(f"flap-{n}", kind, 1000 + n, [])
            if self.answer(min(due, end) - time.monotonic()):
                break
        for n in set(range(count)) - there:
            self.set(f"flap-{n}", kind, 1000 + n, [])

    def command(self, words):
        if words[0] in ("set", "quiet"):
            self.set(words[1], words[2], int(words[3]), words[4:], announces=words[0] == "set")
        elif words[0] == "gone":
            self.gone(words[1])
        elif words[0] == "flap":
            self.flap(int(words[1]), float(words[2]), float(words[3]))
        else:
            raise SystemExit(f"responder: no such command: {' '.join(words)}")
        print("ok", flush=True)


def main():
    responder = Responder(sys.argv[1])
    print("ready", flush=True)
    while True:
        if responder.answer(3600):
            line = COMMANDS.readline().decode()
            if not line:
                for name in list(responder.services):
                    responder.gone(name)
                return
            responder.command(line.split())


if __name__ == "__main__":
    main()
