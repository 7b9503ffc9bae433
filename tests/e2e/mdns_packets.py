"""Receives the multicast DNS packets of a LAN over IPv4. Needs root on Linux. For first_said.py and fuzz/record.py."""
import socket

GROUP, PORT = bytes([224, 0, 0, 251]), 5353


def packet_of(frame):
    """The source's address and the message, if an Ethernet frame has an IPv4 packet to the group."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[30:34] != GROUP:
        return None
    udp = 14 + (frame[14] & 15) * 4
    if int.from_bytes(frame[udp + 2:udp + 4], "big") != PORT:
        return None
    return frame[26:30], frame[udp + 8:]


def packets(interface):
    """The address and the message of each packet, without end."""
    frames = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    frames.bind((interface, 0))
    while True:
        packet = packet_of(frames.recv(10_000))
        if packet:
            yield packet
