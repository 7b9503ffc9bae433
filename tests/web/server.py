"""Serves the page as `petiole web` does, with clusters of any size that are made of what it says of a small one."""
import copy
import datetime
import http.server
import json
import pathlib
import re
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIVE = ROOT / "crates/petiole-people/src/live"
# What the server says of three devices: a Rust test writes it.
RECORDED = json.loads((ROOT / "tests/web/recorded.json").read_text())
PLACES = ["Front door", "Loading dock", "Yard", "Roof", "Hall", "Stairs", "Office", "Cellar", "Gate", "Garage", "Kitchen", "Workshop"]
KINDS = [("cams", "camera", 2), ("printers", "printer", 1), ("thermometers", "thermometer", 4), ("scanners", "scanner", 1)]
NOW = datetime.datetime.now(datetime.timezone.utc)
MESSAGES = {
    its["problem"]: its["message"].replace("node-1-cams-ec86bf", "its-broker") for its in RECORDED["state"]["devices"] if "problem" in its
}
PROBLEMS = ["DeviceGone", "BrokerCrashes", "Unhealthy on node-1", "Flapping"]


def files():
    """Returns the files that page.rs embeds, by their paths."""
    text = (LIVE / "page.rs").read_text()
    named = re.findall(r'path: "([^"]+)",\s+content_type: "([^"]+)",\s+text: include_str!\("([^"]+)"\)', text)
    scripts = re.findall(r'script\("([^"]+)", include_str!\("([^"]+)"\)\)', text)
    named += [(path, "text/javascript; charset=utf-8", file) for path, file in scripts]
    return {path: (kind, (LIVE / file).read_bytes()) for path, kind, file in named}


def policy():
    """Returns the Content-Security-Policy of web.rs."""
    return re.search(r'"(default-src [^"]+)"', (LIVE / "web.rs").read_text()).group(1)


def device(n, count):
    """Returns the device of a number. Of 30 devices one has a problem."""
    its = copy.deepcopy(RECORDED["state"]["devices"][-1])
    configuration, kind, capacity = KINDS[n * 7 // 5 % len(KINDS)]
    nodes = 2 if count <= 30 else max(4, count // 40)
    name = f"{configuration}-{n * 2654435761 % (1 << 24):06x}"
    first = n * 31 % nodes
    on = [f"node-{first + 1}"] if kind in ("scanner",) else [f"node-{first + 1}", f"node-{(first + 1) % nodes + 1}"]
    on.sort()
    problem = PROBLEMS[n // 30 % len(PROBLEMS)] if n % 30 == 11 else None
    in_use = 0 if problem == "DeviceGone" else (n * 5 + n // 3) % (capacity + 1)
    place = PLACES[n % len(PLACES)]
    its.update(
        instance=name, device=f"{place} {kind}" + (f" {n // len(PLACES) + 1}" if count > 30 else ""), configuration=configuration,
        resource=f"akri.sh/{name}", address=f"198.51.100.{n % 250 + 1}:{554 if kind == 'camera' else 631}",
        nodes=[{"name": node, "healthy": problem != "DeviceGone"} for node in on],
        health=problem if problem and problem != "BrokerCrashes" else "Healthy", capacity=capacity,
        used=[{"slot": f"{name}-{slot}", "node": on[slot % len(on)], "pods": [f"default/{on[slot % len(on)]}-{name}-pod"]} for slot in range(in_use)],
    )
    its.pop("brokers", None)
    if problem:
        its["problem"] = problem
    if problem in MESSAGES:
        its.update(since=(NOW - datetime.timedelta(minutes=n)).isoformat(), message=MESSAGES[problem])
    if in_use:
        its["brokers"] = {"ready": in_use - (problem == "BrokerCrashes"), "all": in_use}
    return its


def cluster(count):
    """Returns the state of a cluster with so many devices."""
    state = copy.deepcopy(RECORDED["state"])
    if count == 3:
        return state
    devices = [device(n, count) for n in range(count)]
    devices.sort(key=lambda its: (its.get("problem") is None, its["instance"]))
    state.update(devices=devices, problems=sum("problem" in its for its in devices))
    if not count:
        state.update(configurations=[], changes=[])
    return state


class Server:
    """One cluster on a port of its own. `say` sends a later state. While it `is_away`, it answers as a proxy without its server."""

    def __init__(self, count):
        self.state = cluster(count)
        self.changed = threading.Condition()
        self.version = 0
        self.is_away = False
        self.told = None
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def say(self, change):
        with self.changed:
            change(self.state)
            self.version += 1
            self.changed.notify_all()

    def go(self, is_away):
        with self.changed:
            self.is_away = is_away
            self.changed.notify_all()

    def details(self, name):
        if not any(f"{its['namespace']}/{its['instance']}" == name for its in self.state["devices"]):
            return None
        return self.told or RECORDED["details"].get(name) or RECORDED["details"]["default/cams-ec86bf"]

    def handler(self):
        server, pages, csp = self, files(), policy()
        pages["/model_tests.js"] = ("text/javascript", (ROOT / "tests/web/model_tests.js").read_bytes())

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, kind, body=None):
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Security-Policy", csp)
                self.send_header("X-Content-Type-Options", "nosniff")
                self.send_header("Connection", "close")
                self.end_headers()
                if body is not None:
                    self.wfile.write(body)

            def do_GET(self):
                self.close_connection = True
                try:
                    self.get()
                except (BrokenPipeError, ConnectionResetError):
                    # The browser left the page.
                    pass

            def get(self):
                if self.path in pages:
                    return self.answer(200, *pages[self.path])
                if self.path == "/events":
                    return self.events()
                details = server.details(self.path.removeprefix("/devices/"))
                if details is None:
                    return self.answer(404, "text/plain", b"there is no such device\n")
                return self.answer(200, "application/json", json.dumps(details).encode())

            def events(self):
                if server.is_away:
                    return self.answer(502, "text/plain", b"no server\n")
                self.answer(200, "text/event-stream")
                said = -1
                while True:
                    with server.changed:
                        server.changed.wait_for(lambda: server.is_away or server.version != said)
                        if server.is_away:
                            return
                        said, text = server.version, json.dumps(server.state)
                    self.wfile.write(f"data: {text}\n\n".encode())

        return Handler
