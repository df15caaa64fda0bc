"""A browser without a window, driven by its own protocol: `with Chromium() as browser: browser.go(address)`."""

from __future__ import annotations

import base64
import contextlib
import json
import shutil
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from websockets.sync.client import connect

COMMAND = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
_SECONDS = 60.0


class Chromium:
    """One page in one browser. `messages` is what the page complained of in its console."""

    def __init__(self, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        assert COMMAND is not None
        self._folder = tempfile.mkdtemp()
        self._process = subprocess.Popen(
            [
                *(COMMAND, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
                *("--disable-background-networking", "--no-first-run", "--no-proxy-server", "--mute-audio"),
                *("--remote-debugging-port=0", f"--user-data-dir={self._folder}", "about:blank"),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.messages: list[str] = []
        self._number = 0
        self._open = contextlib.ExitStack()
        try:
            self._socket = self._open.enter_context(connect(self._page(), max_size=64 << 20, proxy=None))
            for domain in ("Page", "Runtime", "Log"):
                self.do(f"{domain}.enable")
            self.size(width, height)
            scheme = "dark" if dark else "light"
            self.do(
                "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}]
            )
        except BaseException:
            self.close()
            raise

    def _page(self) -> str:
        until, port = time.monotonic() + _SECONDS, Path(self._folder) / "DevToolsActivePort"
        while time.monotonic() < until:
            with contextlib.suppress(OSError, IndexError, StopIteration):
                number = port.read_text().split("\n")[0]
                with urllib.request.urlopen(f"http://127.0.0.1:{number}/json", timeout=5) as answer:
                    found = next(one for one in json.load(answer) if one["type"] == "page")
                return str(found["webSocketDebuggerUrl"])
            time.sleep(0.1)
        raise TimeoutError("The browser did not start.")

    def size(self, width: int, height: int) -> None:
        self.do(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )

    def do(self, method: str, **options: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": options}))
        while True:
            said = json.loads(self._socket.recv(timeout=_SECONDS))
            if said.get("method") in ("Log.entryAdded", "Runtime.exceptionThrown"):
                self.messages.append(json.dumps(said["params"]))
            if said.get("id") == self._number:
                assert "error" not in said, said
                return said["result"]

    def run(self, script: str) -> Any:
        """The value of an expression in the page."""
        return self.do("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def until(self, script: str) -> Any:
        """The value of an expression, once it is true."""
        end = time.monotonic() + _SECONDS
        while time.monotonic() < end:
            if found := self.run(script):
                return found
            time.sleep(0.1)
        raise TimeoutError(f"{script} did not become true: {self.run('document.body.innerText')}")

    def go(self, address: str) -> None:
        self.do("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")

    def picture(self, path: str | Path) -> None:
        height = int(self.run("document.documentElement.scrollHeight"))
        clip = {"x": 0, "y": 0, "width": int(self.run("innerWidth")), "height": height, "scale": 1}
        found = self.do("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        Path(path).write_bytes(base64.b64decode(found["data"]))

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._open.close()
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
