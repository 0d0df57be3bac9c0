"""A headless Chromium for tests, driven through its debugging pipe: no driver program, no package, no port.

The protocol is Chrome's own (DevTools protocol), NUL-terminated JSON on two pipes. What a page logs, what it
asks for and what its security policy refuses is kept for the test to look at.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Final

NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_COMMAND_S: Final = 120.0
_ARGUMENTS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-extensions",
    "--disable-sync",
    "--no-default-browser-check",
    "--no-first-run",
    "--no-proxy-server",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--font-render-hinting=none",
)


def find_chromium() -> str | None:
    """The program, by `TIDEMARK_CHROMIUM` or on the path."""
    named = os.environ.get("TIDEMARK_CHROMIUM")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Chromium:
    """One browser with one page. Close it."""

    def __init__(self, program: str, folder: Path) -> None:
        from_us, self._to = os.pipe()
        self._from, to_us = os.pipe()
        # A browser run by root has no sandbox to stand on.
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *_ARGUMENTS, *sandbox, f"--user-data-dir={folder}", "about:blank"]
        # Its pipes are the descriptors 3 and 4: the shell moves them there from its input and output.
        moved = 'exec "$@" 3<&0 4>&1 </dev/null >&2'
        with (folder.parent / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", moved, "chromium", *command],
                stdin=from_us,
                stdout=to_us,
                stderr=log,
                start_new_session=True,
            )
        os.close(from_us)
        os.close(to_us)
        self._number = 0
        self._rest = b""
        self._session: str | None = None
        self.logged: list[str] = []
        self.asked: list[str] = []
        try:
            target = self.call("Target.createTarget", url="about:blank")["targetId"]
            self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                self.call(f"{domain}.enable")
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the browser and its children."""
        for pipe in (self._to, self._from):
            os.close(pipe)
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, 9)
            self._process.wait(20.0)

    def open(self, address: str) -> None:
        """Goes there; returns when the document is there."""
        failed = self.call("Page.navigate", url=address).get("errorText")
        assert not failed, failed
        self.until("document.readyState === 'complete'")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited; as JSON."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def until(self, expression: str, timeout_s: float = 90.0, why_not: str = "") -> None:
        """Returns when an expression is true; else `why_not`, evaluated, is part of the failure."""
        end = time.monotonic() + timeout_s
        while not self.evaluate(f"!!({expression})"):
            if time.monotonic() > end:
                why = self.evaluate(why_not) if why_not else self.text("body")[:3_000]
                raise AssertionError(f"never true: {expression}\n{why}")
            time.sleep(0.1)

    def text(self, selector: str) -> str:
        """What is to be read in the first element; "" when there is none."""
        return str(self.evaluate(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    def type(self, text: str) -> None:
        """Into what has the focus."""
        self.call("Input.insertText", text=text)

    def press(self, key: str, code: int) -> None:
        """A key with its virtual key code: Tab 9, Enter 13."""
        common = {"key": key, "code": key, "windowsVirtualKeyCode": code}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **common, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def look(self, width: int, height: int, dark: bool = False, scale: float = 1.0) -> None:
        """The size of the window in CSS pixels, and which colours the reader prefers."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=width < 600,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, file: Path, whole: bool = True) -> None:
        """A PNG of the page, or of what the window shows."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        file.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; events that come before its answer are noted."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        end = time.monotonic() + _COMMAND_S
        while True:
            found = self._next(end, method)
            if found.get("id") == self._number:
                assert "error" not in found, (method, found["error"])
                return dict(found["result"])
            self._note(found)

    def _next(self, end: float, waiting_for: str) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(end - time.monotonic(), 0.0))
            assert ready, f"Chromium did not answer {waiting_for} in time"
            piece = os.read(self._from, 1 << 20)
            assert piece, f"Chromium ended during {waiting_for}"
            self._rest += piece
        content, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(content))

    def _note(self, event: dict[str, Any]) -> None:
        method, content = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.asked.append(content["request"]["url"])
        elif method == "Log.entryAdded":
            self.logged.append(f"{content['entry']['level']}: {content['entry']['text']}")
        elif method == "Runtime.exceptionThrown":
            details = content["exceptionDetails"]
            self.logged.append(f"error: {details.get('exception', {}).get('description', details['text'])}")
        elif method == "Runtime.consoleAPICalled":
            values = [str(each.get("value", each.get("description"))) for each in content["args"]]
            self.logged.append(f"{content['type']}: {' '.join(values)}")
