"""The quickstart as a new user starts it: a process of its own, the bundled models, real sockets.

Its config is `configs/quickstart.yaml` with other ports, and with the store in a test's folder.
"""

import os
import re
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_DEADLINE_S = 240
STOP_DEADLINE_S = 60


def command(*arguments: str) -> list[str]:
    """`rejoinder` of the environment that runs the tests."""
    return [str(Path(sys.executable).with_name("rejoinder")), *arguments]


def config(store: Path, *, extra_upstreams: str = "", extra_routes: str = "") -> str:
    """The quickstart's config. The extra parts stand where its comments show such parts."""
    text = (ROOT / "configs/quickstart.yaml").read_text()
    for old, new in (
        ("listen: 127.0.0.1:8080", "listen: 127.0.0.1:0"),
        ("listen: 127.0.0.1:8081", "listen: 127.0.0.1:0"),
        ("path: var/rejoinder.db", f"path: {store}"),
        ("\nstore:", f"{extra_upstreams}\nstore:"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text + extra_routes


class Quickstart:
    """`rejoinder serve`, from its first line to its end."""

    def __init__(self, text: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "quickstart.yaml"
        path.write_text(text)
        self.process = subprocess.Popen(
            command("serve", str(path)),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.said: list[str] = []
        self.url = ""
        self.admin_url = ""
        self._ready = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._ready.wait(START_DEADLINE_S) or not self.url:
            self.stop()
            raise AssertionError("not ready:\n" + "".join(self.said))

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            match = re.match(r"Rejoinder answers on (\S+)/v1 \(admin: (\S+)\)", line)
            if match:
                self.url, self.admin_url = match.groups()
                self._ready.set()
        self._ready.set()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that talks to this server."""
        return subprocess.run(
            command(*arguments, "--admin", self.admin_url),
            capture_output=True,
            text=True,
            timeout=60,
        )

    def stop(self) -> int:
        """SIGTERM, and wait. The exit code, also when it was stopped before."""
        self.process.terminate()
        code = self.process.wait(STOP_DEADLINE_S)
        self._reader.join(STOP_DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._folder.cleanup()
        return code
