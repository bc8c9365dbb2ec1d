"""The commands against a server that `rejoinder serve` started: an answer from birth to purge."""

import json
import re
import signal
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from commandline import run_command

ROOT = Path(__file__).parents[2]
CONFIG = """
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0", token: s3cret}}
upstreams: {{u: {{base_url: "http://127.0.0.1:{port}/v1"}}}}
store: {{path: {folder}/store.db}}
policies: {{p: {{}}}}
routes: [{{to: u, cache: p}}]
"""
COMPLETION = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m-1",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi."}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
}


class Completions(BaseHTTPRequestHandler):
    """An upstream with one answer."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(COMPLETION).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture(scope="module")
def upstream_port():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Completions)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def served(upstream_port, tmp_path_factory):
    """URLs of the data port and the admin port."""
    folder = tmp_path_factory.mktemp("served")
    config = folder / "config.yaml"
    config.write_text(CONFIG.format(port=upstream_port, folder=folder))
    with subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", "serve", str(config)],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        watchdog = threading.Timer(120, process.kill)
        watchdog.start()
        said = ""
        while not (urls := re.search(r"(http://\S+)/v1 \(admin: (http://[^)\s]+)\)", said)):
            line = process.stderr.readline()
            assert line, f"the server ended: {said}"
            said += line
        yield urls[1], urls[2]
        process.send_signal(signal.SIGTERM)
        assert process.wait() == 0
        watchdog.cancel()


@pytest.fixture
def rejoinder(served):
    def run(*arguments, token="s3cret"):
        environ = {"REJOINDER_ADMIN": served[1], "REJOINDER_ADMIN_TOKEN": token}
        return run_command(*arguments, environ=environ)

    return run


def ask(data_url, text):
    answer = httpx.post(
        f"{data_url}/v1/chat/completions",
        json={"model": "m", "messages": [{"role": "user", "content": text}]},
        headers={"x-cache-tags": "doc:42"},
        timeout=60,
        trust_env=False,
    )
    assert answer.status_code == 200, answer.text
    return answer.headers["x-cache"]


def test_an_answer_is_listed_shown_purged_and_gone(served, rejoinder):
    assert [ask(served[0], "What is a refund?") for _ in range(2)] == ["miss", "exact"]

    (entry,) = json.loads(rejoinder("entries", "--tag", "doc:42", "--json").stdout)["entries"]
    listing = rejoinder("entries", "--tenant", entry["tenant"])
    assert listing.returncode == 0, listing.stderr
    assert listing.stdout.startswith(entry["key"])
    assert "7+2 tokens" in listing.stdout
    assert "doc:42" in listing.stdout

    shown = json.loads(rejoinder("entry", entry["key"], "--json").stdout)
    assert (shown["model"], shown["upstream"], shown["policy"]) == ("m-1", "u", "p")

    assert rejoinder("purge", "--tag", "doc:42", "--dry-run").stdout == "would purge 1 answer\n"
    assert ask(served[0], "What is a refund?") == "exact"
    assert rejoinder("purge", "--tag", "doc:42").stdout.startswith("purged 1 answer; ")
    assert ask(served[0], "What is a refund?") == "miss"


def test_one_answer_is_deleted_by_its_key(served, rejoinder):
    ask(served[0], "Delete me.")
    page = json.loads(rejoinder("entries", "--json").stdout)
    key = page["entries"][0]["key"]
    assert rejoinder("entry", key, "--delete").returncode == 0
    gone = rejoinder("entry", key)
    assert gone.returncode == 1
    assert "answered 404" in gone.stderr


def test_a_listing_goes_on_where_its_page_ended(served, rejoinder):
    for text in ("one", "two", "three"):
        ask(served[0], text)
    page = json.loads(rejoinder("entries", "--limit", "2", "--json").stdout)
    rest = rejoinder("entries", "--limit", "1000", "--cursor", page["cursor"], "--json")
    everything = json.loads(rejoinder("entries", "--limit", "1000", "--json").stdout)["entries"]
    assert page["entries"] + json.loads(rest.stdout)["entries"] == everything


def test_figures_are_shown(rejoinder):
    done = rejoinder("stats")
    assert done.returncode == 0
    assert done.stdout.startswith("requests\n")
    assert "\nsaved since the start\n" in done.stdout
    assert "\nstore\n  entries " in done.stdout
    assert "store" in json.loads(rejoinder("stats", "--json").stdout)


def test_feedback_on_an_answer_that_is_not_known_is_said_to_be_so(rejoinder):
    done = rejoinder("feedback", "no-such-request", "wrong")
    assert done.returncode == 1
    assert "404" in done.stderr
    assert "no-such-request" in done.stderr
    assert rejoinder("feedback", "x", "maybe").returncode == 2


def test_a_wrong_token_is_refused_where_one_is_set(rejoinder):
    done = rejoinder("stats", token="wrong")
    assert done.returncode == 1
    assert "--token or REJOINDER_ADMIN_TOKEN" in done.stderr
