"""Steers a headless Chromium over a pipe, by the Chrome DevTools Protocol. Needs nothing but Python."""
import base64
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]
ANSWER_SECONDS = 60
# The virtual key codes of the keys that are pressed.
KEYS = {"Enter": 13, "Escape": 27, "ArrowDown": 40, "ArrowUp": 38, "ArrowLeft": 37, "ArrowRight": 39, "End": 35, "Tab": 9}


def found():
    """Returns the path of a Chromium, or None."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self, path):
        self.folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        flags = [
            "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={self.folder.name}", "--no-first-run",
            "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--disable-extensions", "--mute-audio",
            "--disable-background-networking", "--disable-component-update", "--disable-sync",
        ]
        if os.geteuid() == 0:
            # Its sandbox is not for root. It shows nothing but pages of this repository.
            flags.append("--no-sandbox")
        script = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
        self.process = subprocess.Popen(
            ["bash", "-c", script, path, *flags, "about:blank"], pass_fds=(theirs_in, theirs_out),
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs_in)
        os.close(theirs_out)
        self.out, self.into = ours_out, ours_in
        self.rest, self.number, self.events = b"", 0, []

    def close(self):
        self.process.terminate()
        self.process.wait()
        self.folder.cleanup()

    def read(self):
        while b"\0" not in self.rest:
            part = os.read(self.into, 1 << 20)
            if not part:
                raise RuntimeError("the browser has ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, session=None, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if session:
            message["sessionId"] = session
        os.write(self.out, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < end:
            answer = self.read()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)
        raise RuntimeError(f"{method}: no answer in {ANSWER_SECONDS} s")


class Page:
    """A page of some width and theme."""

    def __init__(self, browser, url, width, theme, height=800):
        self.browser = browser
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        browser.events.clear()
        for domain in ["Page", "Runtime", "Log", "Performance"]:
            self.call(f"{domain}.enable")
        scheme = [{"name": "prefers-color-scheme", "value": theme}]
        self.call("Emulation.setEmulatedMedia", features=scheme)
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        self.size(width, height)
        self.call("Page.navigate", url=url)

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)

    def call(self, method, **parameters):
        return self.browser.call(method, self.session, **parameters)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)

    def js(self, expression):
        """Returns the value of an expression, which may be a promise."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def until(self, condition, seconds=15):
        end = time.monotonic() + seconds
        while not self.js(condition):
            if time.monotonic() > end:
                shown = self.js("location.hash + ' ' + document.activeElement.id + ' ' + document.getElementById('main').innerText.slice(0, 200)")
                raise AssertionError(f"not so in {seconds} s: {condition}, at {shown}")
            time.sleep(0.05)

    def press(self, key):
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        code = KEYS.get(key, ord(key.upper()) if len(key) == 1 and key.isalnum() else 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, text=text, windowsVirtualKeyCode=code)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, windowsVirtualKeyCode=code)

    def complaints(self):
        """Returns the errors and warnings on the console so far."""
        found = []
        for event in self.browser.events:
            its = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(its["exceptionDetails"].get("exception", {}).get("description", "an exception"))
            elif event["method"] == "Runtime.consoleAPICalled" and its["type"] in ("error", "warning", "assert"):
                found.append(str([part.get("value") for part in its["args"]]))
            elif event["method"] == "Log.entryAdded" and its["entry"]["level"] in ("error", "warning"):
                found.append(f"{its['entry']['text']} {its['entry'].get('url', '')}")
        return found

    def picture(self, path):
        # Transitions end first.
        time.sleep(0.3)
        data = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
