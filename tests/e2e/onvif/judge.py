#!/usr/bin/env python3
"""Judges the handler onvif with programs of others, in two network namespaces that it makes and removes. Needs root on Linux.

    judge.py PETIOLE FOLDER-OF-build [PART…]

PETIOLE is the program; wsdd of the machine is a WS-Discovery responder that is no camera. The Python that runs this needs the package
WSDiscovery. cameras.py beside this file checks the credentials, and so does oxvif, if `build` has built it.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PETIOLE, OXVIF, PARTS = sys.argv[1], f"{sys.argv[2]}/oxvif", sys.argv[3:]
WSDD = shutil.which("wsdd", path=os.environ["PATH"] + ":/usr/sbin")
NODE, LAN = f"onvif-node-{os.getpid()}", f"onvif-lan-{os.getpid()}"
FOLDER = tempfile.mkdtemp()
# All processes that run, to be ended whatever happens.
RUNNING = []
PUBLISHER = """
import sys, time
from wsdiscovery import QName, Scope
from wsdiscovery.publishing import ThreadedWSPublishing
p = ThreadedWSPublishing()
p.start()
p.publishService(types=[QName("http://www.onvif.org/ver10/network/wsdl", "NetworkVideoTransmitter")],
                 scopes=[Scope("onvif://www.onvif.org/name/Published")], xAddrs=["http://10.77.0.2/onvif/device_service"])
print("published", flush=True)
sys.stdin.readline()
p.clearLocalServices()
print("cleared", flush=True)
sys.stdin.readline()
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def start(namespace, *command, **options):
    command = ["ip", "netns", "exec", namespace, *command]
    process = subprocess.Popen(command, start_new_session=True, **options)
    RUNNING.append(process)
    return process


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Cameras:
    def __init__(self, mode, count):
        self.log = open(os.path.join(FOLDER, "calls"), "w+")
        self.process = start(LAN, sys.executable, f"{HERE}/cameras.py", mode, str(count), stdout=self.log)
        time.sleep(0.5)

    def calls(self):
        return open(self.log.name).read().splitlines()

    def end(self):
        end(self.process)


class Discovery:
    """A running `petiole discover`, with the lines that it has printed and when."""

    def __init__(self, details, properties=()):
        path = os.path.join(FOLDER, "configuration.yaml")
        with open(path, "w") as file:
            file.write("kind: Configuration\nmetadata: {name: cam}\nspec:\n  discoveryHandler:\n    name: onvif\n    discoveryDetails: |-\n")
            file.writelines(f"      {line}\n" for line in details.splitlines() or ["discoveryTimeoutSeconds: 1"])
            file.write("    discoveryProperties:\n" if properties else "")
            file.writelines(f"    - {{name: {name}, value: '{value}'}}\n" for name, value in properties)
        self.out = open(os.path.join(FOLDER, "out"), "w+")
        command = [PETIOLE, "discover", "onvif", "--details", path, "-o", "wide"]
        self.process = start(NODE, *command, stdout=self.out, stderr=subprocess.STDOUT)

    def text(self):
        return open(self.out.name).read()

    def lines(self, change):
        return [line for line in self.text().splitlines() if line.startswith(change)]

    def until(self, what, seconds, condition):
        since = time.monotonic()
        while not condition():
            if time.monotonic() - since > seconds:
                raise AssertionError(f"not in {seconds} s: {what}\n{self.text()[-3000:]}")
            time.sleep(0.02)
        took = time.monotonic() - since
        print(f"  {what}: {took:.2f} s", flush=True)
        return took

    def memory(self):
        status = open(f"/proc/{self.process.pid}/status").read()
        return int(re.search(r"VmHWM:\s*(\d+)", status).group(1)) / 1024

    def end(self):
        end(self.process)


def sent():
    """Returns the number of packets that the node has sent."""
    said = subprocess.run(["ip", "-n", NODE, "-s", "-j", "link", "show", "node0"], capture_output=True, text=True, check=True).stdout
    return json.loads(said)[0]["stats64"]["tx"]["packets"]


def two_hundred_at_once():
    cameras, before, found = Cameras("open", 200), sent(), Discovery("")
    found.until("200 cameras are found", 5, lambda: len(found.lines("new")) == 200)
    print(f"  peak memory: {found.memory():.1f} MB")
    each = (sent() - before) / 200
    time.sleep(5)
    before = sent()
    time.sleep(36)
    # One camera in 30 s is asked again, from the tenth minute on.
    rest = (sent() - before) / 36 + each / 30
    print(f"  at rest: {rest:.2f} packets a second, with {each:.0f} for each camera that is asked")
    assert rest <= 2
    assert not found.lines("gone") and not found.lines("changed")
    print(f"  peak memory: {found.memory():.1f} MB")
    cameras.end()
    found.until("all are gone without a Bye", 60, lambda: len(found.lines("gone")) == 200)
    found.end()


def credentials():
    for mode in ("token", "digest", "sha256"):
        cameras = Cameras(mode, 1)
        found = Discovery("", [("username_default", "admin"), ("password_default", "hunter2")])
        found.until(f"{mode}: the camera says its MAC address", 5, lambda: "SERIAL_NUMBER=S1" in found.text())
        assert "MAC_ADDRESS=aa:bb:cc:00:00:01" in found.text(), found.text()
        expected = "token" if mode == "token" else "digest"
        hows = [call.split()[2] for call in cameras.calls()]
        assert hows.count(expected) == 2 and set(hows) == {"none", expected}, cameras.calls()
        found.end()
        assert "hunter2" not in found.text()
        found = Discovery("", [("username_default", "admin"), ("password_default", "wrong-word")])
        found.until(f"{mode}: wrong credentials are said", 5, lambda: "refuses the credentials" in found.text())
        assert "wrong-word" not in found.text()
        wrong = [call for call in cameras.calls()[len(hows):] if not call.endswith("none")]
        assert len(wrong) <= 2, wrong
        found.end()
        cameras.end()


def left_out():
    cameras = Cameras("digest", 2)
    found = Discovery("uuids: {items: ['000000000002']}", [("username_default", "admin"), ("password_default", "hunter2")])
    found.until("the one camera is found", 5, lambda: len(found.lines("new")) == 1)
    time.sleep(3)
    assert all(call.startswith("10.77.1.2 ") for call in cameras.calls()), cameras.calls()
    found.end()
    cameras.end()


def other_networks():
    cameras = Cameras("open", 9)
    found = Discovery("interfaces: {deny: ['*']}\nsubnets: [10.77.1.0/28]")
    found.until("9 cameras are found one by one", 5, lambda: len(found.lines("new")) == 9)
    found.end()
    cameras.end()


def foreign_publishers():
    cameras, found = Cameras("open", 0), Discovery("")
    wsdd = start(LAN, WSDD, "-i", "lan0", "-4", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) if WSDD else None
    time.sleep(4)
    publisher = start(LAN, sys.executable, "-c", PUBLISHER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert publisher.stdout.readline() == "published\n"
    found.until("what WSDiscovery publishes is found", 3, lambda: len(found.lines("new")) == 1)
    publisher.stdin.write("\n")
    publisher.stdin.flush()
    assert publisher.stdout.readline() == "cleared\n"
    found.until("its Bye is heard", 1, lambda: len(found.lines("gone")) == 1)
    time.sleep(5)
    assert len(found.lines("new")) == 1, found.text()
    for process in [publisher, wsdd]:
        if process:
            end(process)
    found.end()
    cameras.end()


def cameras_of_oxvif():
    if not os.path.exists(OXVIF):
        print("  oxvif is not built: left out")
        return
    cameras = start(LAN, OXVIF, "10.77.0.2", "20", stdout=subprocess.PIPE, text=True)
    assert cameras.stdout.readline().startswith("ready 20 ")
    login = [("username_default", "admin"), ("password_default", "admin")]
    found = Discovery("identity: serial\nstreams: true", login)
    found.until("20 of oxvif's cameras are found by their serial numbers", 5, lambda: len(found.lines("new")) == 20)
    first = next(line for line in found.lines("new") if "OX-7 " in line)
    assert "STREAM_URI_0=rtsp://" in first and "STREAM_PROFILE_3=" in first, first
    found.end()
    found = Discovery("identity: serial", [("username_default", "admin"), ("password_default", "wrong-word")])
    found.until("wrong credentials are said", 5, lambda: "refuses the credentials" in found.text())
    found.end()
    end(cameras)


def marked():
    cameras = Cameras("open", 3)
    path = os.path.join(FOLDER, "marked.yaml")
    with open(path, "w") as file:
        file.write("identity: endpoint")
    mark = "00000000-0000-4000-a000-000000000002"
    look = ["ip", "netns", "exec", NODE, PETIOLE, "discover", "onvif", "--details", path, "-o"]
    printed = subprocess.run([*look, "yaml", "--mark", mark], capture_output=True, text=True, check=True).stdout
    with open(path, "w") as file:
        file.write(printed)
    found = json.loads(subprocess.run([*look, "json"], capture_output=True, text=True, check=True).stdout)
    assert [device["id"] for device in found] == [mark], (printed, found)
    print("  the printed Configuration finds the marked camera alone")
    cameras.end()


def main():
    try:
        for namespace in (NODE, LAN):
            ip("netns", "add", namespace)
            ip("-n", namespace, "link", "set", "lo", "up")
        ip("link", "add", "node0", "netns", NODE, "type", "veth", "peer", "name", "lan0", "netns", LAN)
        for namespace, name, address in ((NODE, "node0", "10.77.0.1"), (LAN, "lan0", "10.77.0.2")):
            ip("-n", namespace, "address", "add", f"{address}/16", "dev", name)
            ip("-n", namespace, "link", "set", name, "up")
            ip("-n", namespace, "route", "add", "239.0.0.0/8", "dev", name)
        for number in range(1, 201):
            ip("-n", LAN, "address", "add", f"10.77.1.{number}/16", "dev", "lan0")
        for part in (two_hundred_at_once, credentials, left_out, other_networks, foreign_publishers, marked, cameras_of_oxvif):
            if PARTS and part.__name__ not in PARTS:
                continue
            print(part.__name__.replace("_", " "), flush=True)
            part()
    finally:
        for process in RUNNING:
            end(process)
        for namespace in (NODE, LAN):
            subprocess.run(["ip", "netns", "delete", namespace], check=False)


main()
