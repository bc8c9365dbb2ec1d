"""`rejoinder serve` as a process of its own, out of the environment that it is installed in."""

import os
import re
import subprocess
import tempfile
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]
REJOINDER = os.environ.get("REJOINDER", str(ROOT / ".venv/bin/rejoinder"))
START_DEADLINE_S = 240
STOP_DEADLINE_S = 60


class ProxyProcess:
    """Runs until `stop`. `url` is without `/v1`."""

    def __init__(self, config: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "proxy.yaml"
        path.write_text(config)
        self.process = subprocess.Popen(
            [REJOINDER, "serve", str(path)],
            cwd=ROOT,
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

    def stop(self) -> int:
        """SIGTERM, and wait; the exit code."""
        self.process.terminate()
        code = self.process.wait(STOP_DEADLINE_S)
        self._reader.join(STOP_DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._folder.cleanup()
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.said.append(line)
            match = re.match(r"Rejoinder answers on (\S+)/v1 \(admin: (\S+)\)", line)
            if match:
                self.url, self.admin_url = match.groups()
                self._ready.set()
        self._ready.set()
