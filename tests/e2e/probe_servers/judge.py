#!/usr/bin/env python3
"""Asks real servers of other languages, in a network namespace of its own: judge.py PETIOLE FOLDER-OF-build, started by
`unshare --net`. Prints a line for each check."""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
PETIOLE, FOLDER = sys.argv[1:3]
PYTHON = f"{FOLDER}/python/bin/python"
WORK = tempfile.mkdtemp()
SECRET = "hunter2-of-the-judge"
os.environ["PATH"] += ":/usr/sbin:/sbin"
counts = {True: 0, False: 0}
said_by_us = []


def check(what, holds, why=""):
    counts[bool(holds)] += 1
    print(("ok: " if holds else "FAILED: ") + what + ("" if holds else f": {why}"), flush=True)


def run(*command):
    return subprocess.run(command, cwd=WORK, check=True, capture_output=True, text=True).stdout


def write(name, text):
    path = f"{WORK}/{name}"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    return path


class Process:
    """A process that ends with the block, with the lines of its output and their times."""

    def __init__(self, *command, **options):
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
        self.lines, self.news = [], threading.Condition()
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            with self.news:
                self.lines.append((time.monotonic(), line.rstrip()))
                self.news.notify_all()

    def line(self, pattern, seconds, since=0.0):
        """The time of a line that matches, and comes after `since`."""
        end = time.monotonic() + seconds
        with self.news:
            while True:
                for at, line in self.lines:
                    if at >= since and re.search(pattern, line):
                        return at
                if not self.news.wait(end - time.monotonic()) and time.monotonic() >= end:
                    return None

    def text(self):
        return "\n".join(line for _, line in self.lines)

    def kill(self):
        self.child.kill()
        self.child.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()


class Everything:
    """A host that takes every connection on some ports, counts it, and sends back what it gets."""

    def __init__(self, address, *ports):
        self.count = 0
        for port in ports:
            listener = socket.create_server((address, port), backlog=200)
            threading.Thread(target=self.serve, args=(listener,), daemon=True).start()

    def serve(self, listener):
        while True:
            client, _ = listener.accept()
            self.count += 1
            threading.Thread(target=self.echo, args=(client,), daemon=True).start()

    @staticmethod
    def echo(client):
        try:
            while data := client.recv(4096):
                client.sendall(data)
        except OSError:
            pass
        client.close()


def until_open(address, port):
    for _ in range(150):
        try:
            return socket.create_connection((address, port)).close()
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"nobody listens at {address}:{port}")


def manifest(details, properties=None):
    handler = {"name": "probe", "discoveryDetails": details}
    if properties:
        handler["discoveryProperties"] = [{"name": name, "value": value} for name, value in properties.items()]
    configuration = {"apiVersion": "akri.sh/v0", "kind": "Configuration", "metadata": {"name": "probe"}}
    configuration["spec"] = {"discoveryHandler": handler, "capacity": 1}
    return write(f"details-{time.monotonic_ns()}.json", json.dumps(configuration))


# As the chart tells agents.
os.environ["PETIOLE_PROBE_CLUSTER_NETWORKS"] = "10.244.0.0/16"


def follow(details, properties=None, *more):
    """A running `petiole discover probe`, whose lines are changes."""
    process = Process(PETIOLE, "discover", "probe", "--details", manifest(details, properties), "-o", "wide", *more)
    said_by_us.append(process)
    return process


def look(details, properties=None):
    """The devices of a first look, by their ids, and the time it took."""
    began = time.monotonic()
    command = [PETIOLE, "discover", "probe", "--details", manifest(details, properties), "-o", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    listed = json.loads(done.stdout) if done.stdout else []
    return {device["id"]: device["properties"] for device in listed}, time.monotonic() - began


def marked(details, mark):
    """The devices that a Configuration finds which `--mark` has printed."""
    command = [PETIOLE, "discover", "probe", "--details"]
    printed = subprocess.run([*command, manifest(details), "-o", "yaml", "--mark", mark], capture_output=True, text=True)
    done = subprocess.run([*command, write("marked.yaml", printed.stdout), "-o", "json"], capture_output=True, text=True)
    return [device["id"] for device in json.loads(done.stdout or "[]")], printed


def modbus(address, vendor):
    server = Process(PYTHON, f"{HERE}/modbus.py", address, "502", vendor)
    until_open(address, 502)
    return server


def modbus_devices():
    with modbus("10.1.2.11", "Acme") as press, modbus("10.1.2.12", "Other"):
        found, _ = look("{hosts: 10.1.2.0/24, ask: modbus}")
        both = set(found) == {"10.1.2.11:502", "10.1.2.12:502"}
        check("pymodbus: two of 254 addresses are devices", both, found)
        found_again, printed = marked("{hosts: 10.1.2.0/24, ask: modbus}", "10.1.2.12:502")
        check("pymodbus: a printed Configuration finds the marked device alone", found_again == ["10.1.2.12:502"], printed)
        said = found.get("10.1.2.11:502", {})
        is_whole = said.get("PROBE_VENDOR") == "Acme" and said.get("PROBE_MODEL") == "Press 4" and len(said.get("PROBE_APPLICATION_NAME", "")) == 200
        check("pymodbus: an identification in several answers is whole", is_whole, said)
        found, _ = look("{hosts: 10.1.2.0/24, ask: {modbus: {unit: 1}}, match: {PROBE_VENDOR: Acme}}")
        check("pymodbus: a filter leaves out the other vendor", set(found) == {"10.1.2.11:502"}, found)
        with follow("{hosts: 10.1.2.0/24, ask: modbus, intervalSeconds: 5}", None, "-v") as listening:
            check("pymodbus: it is in the table", listening.line("^new .*10.1.2.11:502.*PROBE_VENDOR=Acme", 20), listening.text())
            check("pymodbus: the progress is shown", listening.line("of 254 hosts are asked", 20), listening.text()[-2000:])
            press.kill()
            killed = time.monotonic()
            gone = listening.line("^gone .*10.1.2.11:502", 40, killed)
            took = gone - killed if gone else 0
            check(f"pymodbus: it is gone after three rounds: {took:.1f} s", gone and 10 <= took <= 21, listening.text()[-2000:])
            with modbus("10.1.2.11", "Acme"):
                check("pymodbus: it is back", listening.line("^new ", 20, time.monotonic()), listening.text()[-2000:])


def snmp():
    conf = f"agentAddress udp:10.1.2.13:161\nrocommunity {SECRET}\nsysName press-13\nsysLocation hall 4\n"
    with Process("snmpd", "-f", "-Lo", "-C", "-c", write("snmpd.conf", conf), "-p", f"{WORK}/snmpd.pid") as server:
        server.line("NET-SNMP version", 10)
        found, _ = look("{hosts: 10.1.2.0/24, ask: snmp}", {"community": SECRET})
        said = found.get("10.1.2.13:161", {})
        check("snmpd: one of 254 addresses is a device", set(found) == {"10.1.2.13:161"}, found)
        is_whole = said.get("PROBE_NAME") == "press-13" and said.get("PROBE_LOCATION") == "hall 4" and "Linux" in said.get("PROBE_DESCRIPTION", "")
        check("snmpd: it has what it says", is_whole, (said, server.text()))
        with follow("{hosts: 10.1.2.13, ask: snmp}", {"community": SECRET + "-not"}, "-v") as listening:
            check("snmpd: a wrong community is said without it", listening.line("discoveryProperty community", 10), listening.text())


def certificates():
    names = "subjectAltName=DNS:press-14.plant"
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.crt", "-subj", "/CN=judge", "-days", "2")
    run("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-keyout", "host.key", "-out", "host.csr", "-subj", "/CN=press-14/serialNumber=P4-14")
    write("names", names)
    run("openssl", "x509", "-req", "-in", "host.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-out", "host.crt", "-days", "2", "-extfile", "names")
    run("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "other.key", "-out", "other.crt", "-subj", "/CN=other", "-days", "2")
    fingerprint = run("openssl", "x509", "-in", "host.crt", "-noout", "-fingerprint", "-sha256").split("=")[1]
    return fingerprint.strip().replace(":", "").lower()


def nginx():
    fingerprint = certificates()
    write("www/status", '{"device": {"serial": "P4-14"}}')
    conf = f"""daemon off; pid {WORK}/nginx.pid; error_log stderr; worker_processes 1; events {{}}
        http {{ access_log off; client_body_temp_path {WORK}/a; proxy_temp_path {WORK}/b; fastcgi_temp_path {WORK}/c; uwsgi_temp_path {WORK}/d; scgi_temp_path {WORK}/e;
        server {{ listen 10.1.2.14:80; listen 10.1.2.14:443 ssl; listen 10.1.2.15:443 ssl; root {WORK}/www; ssl_certificate {WORK}/host.crt;
                  ssl_certificate_key {WORK}/host.key; add_header X-Serial P4-14; }}
        server {{ listen 10.1.2.16:80; return 302 http://10.1.2.14/status; }} }}"""
    os.chmod(WORK, 0o755)
    with Process("nginx", "-e", "stderr", "-c", write("nginx.conf", conf)) as server:
        until_open("10.1.2.14", 443)
        found, _ = look("{hosts: 10.1.2.0/24, ask: {http: {path: /status, header: X-Serial, json: /device/serial}}, identity: json}")
        said = found.get("P4-14", {})
        is_it = len(found) == 1 and said.get("PROBE_HEADER") == "P4-14" and said.get("PROBE_SERVER", "").startswith("nginx")
        check("nginx: a value in JSON is the identity, and a redirect leads nowhere", is_it, (found, server.text()))
        found, _ = look("{hosts: 10.1.2.0/24, ask: {http: {status: 302}}}")
        check("nginx: a status can be asked for", set(found) == {"10.1.2.16:80"}, found)
        found, _ = look("{hosts: 10.1.2.0/24, ask: tls}")
        said = found.get(fingerprint, {})
        is_it = said.get("PROBE_CERTIFICATE_SUBJECT") == "press-14" and said.get("PROBE_CERTIFICATE_NAMES") == "press-14.plant"
        check("nginx: its certificate is the identity, at two addresses the same one", len(found) == 1 and is_it, found)
        found, _ = look("{hosts: 10.1.2.14, ask: tls, identity: serial}")
        check("nginx: the serial number of a certificate is an identity", set(found) == {"P4-14"}, found)
        https = "{hosts: 10.1.2.14, ask: {https: {path: /status}}}"
        for ca, is_taken in [("ca.crt", True), ("other.crt", False)]:
            with open(f"{WORK}/{ca}") as file:
                found, _ = look(https, {"ca": file.read()})
            check(f"nginx: with the authority {ca} it is {'a' if is_taken else 'no'} device", bool(found) == is_taken, found)


def redfish_and_rtsp():
    emulator = [f"{FOLDER}/python/bin/sushy-emulator", "--fake", "-i"]
    certificate = ["--ssl-certificate", f"{WORK}/host.crt", "--ssl-key", f"{WORK}/host.key"]
    with Process(*emulator, "10.1.2.17", "-p", "80"), Process(*emulator, "10.1.2.18", "-p", "443", *certificate) as server:
        until_open("10.1.2.17", 80)
        until_open("10.1.2.18", 443)
        for ask, address in [("{redfish: {tls: false}}", "10.1.2.17"), ("redfish", "10.1.2.18")]:
            found, _ = look(f"{{hosts: 10.1.2.0/24, ask: {ask}}}")
            is_it = [(len(id), said["PROBE_ADDRESS"]) for id, said in found.items()] == [(36, address)]
            check(f"sushy-tools: a service root of Redfish has a UUID: {ask}", is_it, (found, server.text()))
    if os.path.exists(f"{FOLDER}/javascript/ready"):
        with Process("node", f"{HERE}/rtsp.js", "554", env=os.environ | {"NODE_PATH": f"{FOLDER}/javascript/node_modules"}) as server:
            until_open("10.1.2.19", 554)
            found, _ = look("{hosts: [10.1.2.19, 10.1.2.20], ask: rtsp}")
            is_it = set(found) == {"10.1.2.19:554", "10.1.2.20:554"}
            # It has no header Public.
            is_it = is_it and found["10.1.2.19:554"]["PROBE_STATUS"] == "200"
            check("rtsp-streaming-server: OPTIONS is answered", is_it, (found, server.text()))


def bounds():
    Everything("10.1.2.21", 80, 161, 443, 502, 554, 8080)
    for ask in ["modbus", "http", "https", "tls", "redfish", "{redfish: {tls: false}}", "rtsp"]:
        found, _ = look(f"{{hosts: 10.1.2.21, ask: {ask}}}")
        check(f"a host that sends everything back is no device of {ask}", not found, found)
    found, took = look("{hosts: 10.1.2.0/24, ask: tcp, port: 8080, probesPerSecond: 50}")
    check("a host that takes everything is one device of tcp", set(found) == {"10.1.2.21:8080"}, found)
    check(f"254 hosts at 50 a second, the silent ones three times, take {took:.1f} s", 15 <= took < 19)
    _, took = look("{hosts: 10.1.3.0/24, ask: tcp, port: 8080, probesPerSecond: 1000}")
    check(f"253 hosts that never answer take {took:.1f} s", 11 <= took < 18)
    outside = [Everything(address, 9000) for address in ["127.0.0.1", "10.1.4.1"]]
    inside = Everything("10.1.2.22", 9000)
    look("{hosts: [10.1.2.0/24, 126.255.255.250-127.0.0.3], ask: tcp, port: 9000}")
    asked = [host.count for host in outside]
    check("neither the machine nor another network is asked", inside.count == 1 and asked == [0, 0], asked)
    found, _ = look("{hosts: 127.0.0.1, ask: tcp, port: 9000}")
    check("the machine is if it is named", set(found) == {"127.0.0.1:9000"}, found)


def main():
    run("ip", "link", "set", "lo", "up")
    # Every address of it is this machine's.
    for network in ["10.1.2.0/24", "10.1.4.0/24"]:
        run("ip", "route", "add", "local", network, "dev", "lo")
    run("ip", "link", "add", "silent", "type", "bridge")
    run("ip", "address", "add", "10.1.3.1/24", "dev", "silent")
    run("ip", "link", "set", "silent", "up")
    modbus_devices()
    snmp()
    nginx()
    redfish_and_rtsp()
    bounds()
    check("no secret is in any output", not any(SECRET in process.text() for process in said_by_us))
    shutil.rmtree(WORK)
    print(f"{counts[True]} passed, {counts[False]} failed")
    sys.exit(bool(counts[False]))


main()
