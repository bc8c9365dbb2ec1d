"""The command line, against an admin port on loopback."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import ThreadingUnixStreamServer
from urllib.parse import parse_qs, urlsplit

import pytest
from commandline import run_command

ROOT = Path(__file__).parents[2]
KEY = "ab" * 32
COMMANDS = (
    *("serve", "check", "schema", "purge", "stats", "entries", "entry"),
    *("export", "import", "import-litellm", "warm", "feedback", "completion"),
    *("explain", "erase", "analyze", "profile"),
)
WITHOUT_JSON = {"serve", "schema", "completion"}
"""They print nothing, JSON in any case, and a script."""
ENTRY = {
    "key": KEY,
    "scope": "cd" * 32,
    "tenant": "acme",
    "policy": "standard",
    "upstream": "local",
    "model": "smollm2-135m-instruct",
    "surface": "chat",
    "prompt": "What is\na \x1b[31mrefund?",
    "tags": ["doc:42", "kb:prices"],
    "created_at": 1_700_000_000.0,
    "expires_at": 1_700_003_600.0,
    "input_tokens": 12,
    "output_tokens": 34,
    "size_bytes": 2048,
}


class AdminPort(BaseHTTPRequestHandler):
    """Keeps what it was asked; answers in the admin API's shapes."""

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.answer()

    def do_POST(self):
        self.answer()

    def do_DELETE(self):
        self.answer()

    def answer(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        url = urlsplit(self.path)
        self.server.asked.append(
            {
                "request": f"{self.command} {url.path}",
                "query": parse_qs(url.query),
                "body": json.loads(body) if body else None,
                "authorization": self.headers.get("authorization"),
            }
        )
        status, answer = self.server.answers[f"{self.command} {url.path}"]
        payload = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)


@pytest.fixture
def admin():
    server = ThreadingHTTPServer(("127.0.0.1", 0), AdminPort)
    server.asked = []
    server.answers = {}
    server.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def rejoinder(*arguments, **environ):
    return run_command(*arguments, environ=environ)


def rejoinder_alone(*arguments):
    """As a process of its own, whose end closes what a library leaves open."""
    return subprocess.run(
        [sys.executable, "-m", "proxy.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )


def test_purge_sends_what_was_named_and_tells_what_it_did(admin):
    answer = {"matched": 12, "entries": 3, "pages": 4, "sequence": 5}
    admin.answers["POST /cache/purge"] = (200, answer)
    done = rejoinder(
        "purge", "--tag", "doc:42", "--tag", "kb:prices", "--key", KEY, "--model", "m",
        "--tenant", "acme", "--soft", "--admin", admin.url, "--token", "t0ken",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == (
        "purged 12 answers; 3 entries and 4 KV pages freed now; purge sequence 5\n"
    )
    (asked,) = admin.asked
    assert asked["authorization"] == "Bearer t0ken"
    assert asked["body"] == {
        "tags": ["doc:42", "kb:prices"],
        "keys": [KEY],
        "models": ["m"],
        "tenants": ["acme"],
        "soft": True,
    }


def test_a_dry_run_says_that_nothing_was_done(admin):
    answer = {"matched": 1, "entries": 0, "pages": 0, "sequence": 5}
    admin.answers["POST /cache/purge"] = (200, answer)
    done = rejoinder("purge", "--all", "--dry-run", REJOINDER_ADMIN=admin.url)
    assert (done.returncode, done.stdout) == (0, "would purge 1 answer\n")
    assert admin.asked[0]["body"] == {"all": True, "dry_run": True}


def test_one_of_a_thing_is_told_as_one(admin):
    answer = {"matched": 1, "entries": 1, "pages": 1, "sequence": 5}
    admin.answers["POST /cache/purge"] = (200, answer)
    done = rejoinder("purge", "--all", "--admin", admin.url)
    assert done.stdout == "purged 1 answer; 1 entry and 1 KV page freed now; purge sequence 5\n"


def test_a_missing_package_is_installed_by_the_python_that_misses_it(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "upstreams: {u: {base_url: 'http://h'}}\nroutes: [{to: u}]\n"
        "embedder: {model: 'package:not_there'}\n"
    )
    done = rejoinder("check", path)
    assert done.stderr.endswith(
        f"package not_there is not installed: {sys.executable} -m pip install not-there\n"
    )


def test_the_exit_codes_are_in_the_help():
    told = rejoinder("--help").stdout
    for code in ("0: done", "1: failed", "2: the command line", "3: done, but not all"):
        assert code in told


def test_a_purge_too_large_to_count_is_told_and_json_is_the_server_s(admin):
    answer = {"matched": None, "entries": 0, "pages": 0, "sequence": 7}
    admin.answers["POST /cache/purge"] = (200, answer)
    done = rejoinder("purge", "--all", "--admin", admin.url)
    assert done.stdout.startswith("purged answers (too many to count); ")
    done = rejoinder("purge", "--all", "--json", "--admin", admin.url)
    assert json.loads(done.stdout) == answer


def test_a_purge_of_nothing_is_a_mistake_and_asks_nobody(admin):
    done = rejoinder("purge", "--soft", "--admin", admin.url)
    assert done.returncode == 2
    assert done.stderr == (
        "rejoinder: nothing to purge: give --tag, --key, --model, --tenant or --all\n"
    )
    assert admin.asked == []


def test_stats_are_a_table_for_people_and_json_for_programs(admin):
    figures = {
        "store": {"entries": 3, "memory_bytes": 2048},
        "policies": {"standard": {"state": "open", "bound": 0.0004, "hits": 12}},
        "in_flight": 1,
        "requests": {"miss": 5000, "exact": 12345},
        "hit_rate": 0.25,
        "saved": {"tokens": 1234567, "seconds": 7300.0, "money": {"USD": 0.0031234, "EUR": 1250}},
        "upstreams": [{"upstream": "main", "server": "http://h", "in_flight": 2}],
        "new_to_us": {"kept": True, "gone": None},
    }
    admin.answers["GET /cache/stats"] = (200, figures)
    done = rejoinder("stats", "--admin", admin.url, REJOINDER_ADMIN_TOKEN="from-env")
    assert done.stdout.splitlines() == [
        "requests",
        "  exact     12,345   71.2%",
        "  miss       5,000   28.8%",
        "  hit rate             25%",
        "",
        "saved since the start",
        "  tokens     1,234,567",
        "  time           2.0 h",
        "  money    0.00312 USD",
        "  money   1,250.00 EUR",
        "",
        "now",
        "  in flight  1",
        "",
        "store",
        "  entries        3",
        "  memory   2.0 KiB",
        "",
        "policies: standard",
        "  state   open",
        "  bound  0.04%",
        "  hits      12",
        "",
        "upstreams",
        "  main http://h  in flight 2",
        "",
        "new_to_us",
        "  kept  yes",
        "  gone    -",
    ]
    assert admin.asked[0]["authorization"] == "Bearer from-env"
    assert json.loads(rejoinder("stats", "--json", "--admin", admin.url).stdout) == figures


def test_entries_are_listed_a_page_at_a_time(admin):
    admin.answers["GET /cache/entries"] = (200, {"entries": [ENTRY], "cursor": "next page"})
    done = rejoinder(
        "entries", "--tag", "doc:42", "--text", "refund", "--limit", "5", "--cursor", "c0",
        "--admin", admin.url,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert admin.asked[0]["query"] == {
        "tag": ["doc:42"], "q": ["refund"], "limit": ["5"], "cursor": ["c0"],
    }  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[0] == KEY
    assert "smollm2-135m-instruct (local)  tenant acme" in lines[1]
    assert "stale since" in lines[1]
    assert "12+34 tokens  2.0 KiB" in lines[1]
    assert lines[2] == "  What is a \N{REPLACEMENT CHARACTER}[31mrefund?"
    assert lines[3] == "  tags: doc:42, kb:prices"
    assert done.stderr == "more: the same with --cursor 'next page'\n"


def test_an_empty_listing_says_so(admin):
    admin.answers["GET /cache/entries"] = (200, {"entries": [], "cursor": None})
    done = rejoinder("entries", "--admin", admin.url)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "no entries\n")


def test_one_entry_is_shown_and_deleted(admin):
    admin.answers[f"GET /cache/entries/{KEY}"] = (200, ENTRY)
    admin.answers[f"DELETE /cache/entries/{KEY}"] = (204, b"")
    shown = rejoinder("entry", KEY, "--json", "--admin", admin.url)
    assert json.loads(shown.stdout) == ENTRY
    assert KEY in rejoinder("entry", KEY, "--admin", admin.url).stdout
    deleted = rejoinder("entry", KEY, "--delete", "--admin", admin.url)
    assert (deleted.returncode, deleted.stdout) == (0, f"deleted {KEY}\n")
    assert admin.asked[-1]["request"] == f"DELETE /cache/entries/{KEY}"


def test_an_error_of_the_server_is_one_line_in_its_own_words(admin):
    error = {"message": "No entry has this key.", "type": "x", "param": None, "code": None}
    admin.answers["GET /cache/entries/k"] = (404, {"error": error})
    done = rejoinder("entry", "k", "--admin", admin.url)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"rejoinder: GET {admin.url}/cache/entries/k was answered 404: No entry has this key.\n"
    )


def test_a_refused_token_points_to_the_option_and_is_not_shown(admin):
    error = {"message": "Not without the token.", "type": "x", "param": None, "code": None}
    admin.answers["GET /cache/stats"] = (401, {"error": error})
    done = rejoinder("stats", "--admin", admin.url, "--token", "wrong-token")
    assert done.returncode == 1
    assert done.stderr.endswith("(--token or REJOINDER_ADMIN_TOKEN gives the admin token)\n")
    assert "wrong-token" not in done.stderr


@pytest.mark.parametrize("answer", [(502, b"<html>"), (200, b"<html>"), (200, {"entries": 3})])
def test_something_else_than_an_admin_port_is_told_apart(admin, answer):
    admin.answers["GET /cache/entries"] = answer
    done = rejoinder("entries", "--admin", admin.url)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "is this its admin port (--admin or REJOINDER_ADMIN names it)?" in done.stderr


def test_a_connection_that_is_refused_is_one_line_that_says_what_was_tried():
    done = rejoinder("stats", "--admin", "http://127.0.0.1:9")
    assert done.returncode == 1
    assert done.stderr.startswith(
        "rejoinder: no answer to GET http://127.0.0.1:9/cache/stats: cannot connect"
    )
    assert "(--admin or REJOINDER_ADMIN names it)" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("url", ["127.0.0.1:8081", "ftp://h", "http://["])
def test_an_address_that_is_none_is_one_line_and_trying_again_cannot_help(url):
    done = rejoinder("stats", "--admin", url)
    assert done.returncode == 2
    assert done.stderr.startswith("rejoinder: not an address: ")
    assert done.stderr.count("\n") == 1


def test_a_socket_where_nobody_listens_is_one_line():
    done = rejoinder_alone("stats", "--admin", "unix:/no/such.sock")
    assert done.returncode == 1
    assert done.stderr.startswith("rejoinder: no answer to GET ")


def test_what_the_admin_port_refuses_as_wrong_cannot_be_helped_by_trying_again(admin):
    error = {"message": "No cursor.", "type": "x", "param": None, "code": None}
    admin.answers["GET /cache/entries"] = (400, {"error": error})
    assert rejoinder("entries", "--admin", admin.url).returncode == 2


def test_a_request_that_is_nested_too_deeply_is_told(tmp_path):
    (tmp_path / "deep.json").write_text("[" * 100_000 + "]" * 100_000)
    done = rejoinder("explain", str(tmp_path / "deep.json"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nested too deeply" in done.stderr


class UnixAdminPort(ThreadingUnixStreamServer):
    """Gives handlers the peer's address in the form that they expect."""

    daemon_threads = True

    def get_request(self):
        request, _ = super().get_request()
        return request, ("local", 0)


def test_an_admin_port_on_a_unix_socket_is_reached(tmp_path):
    path = f"{tmp_path}/admin.sock"
    with UnixAdminPort(path, AdminPort) as server:
        server.asked = []
        server.answers = {"GET /cache/stats": (200, {"in_flight": 3})}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        done = rejoinder("stats", "--admin", f"unix:{path}")
        server.shutdown()
        thread.join()
    assert (done.returncode, done.stdout.split()) == (
        0,
        ["requests", "hit", "rate", "-", "now", "in", "flight", "3"],
    )


GATEWAY = {
    "REJOINDER_ADMIN_TOKEN": "t",
    "SEARCH_TEAM_KEY": "k1",
    "SUPPORT_TEAM_KEY": "k2",
    "OPENAI_API_KEY": "o",
    "AZURE_DEPLOYMENT_URL": "https://x.openai.azure.com/openai/deployments/d",
    "AZURE_API_KEY": "a",
}


# Any file will do: what stands in it is read at the start.
FLEET = {
    "FLEET_CA_FILE": "README.md",
    "FLEET_CERT_FILE": "README.md",
    "FLEET_KEY_FILE": "README.md",
    "HOSTED_API_KEY": "h",
}


@pytest.mark.parametrize(
    ("name", "environ", "summary"),
    [
        ("quickstart", {}, "1 upstream, 1 route"),
        ("sidecar", {}, "1 upstream, 1 route"),
        ("gateway", GATEWAY, "2 upstreams, 3 routes"),
        ("fleet", FLEET, "3 upstreams, 4 routes"),
        ("cluster", GATEWAY, "2 upstreams, 2 routes"),
        ("application", {}, "1 upstream, 1 route"),
    ],
)
def test_the_shipped_configs_work(name, environ, summary):
    done = rejoinder("check", f"configs/{name}.yaml", **environ)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == f"configs/{name}.yaml: works ({summary})"


def test_every_shipped_config_is_tried():
    shipped = {path.stem for path in (ROOT / "configs").glob("*.yaml")}
    assert shipped == {"quickstart", "sidecar", "gateway", "fleet", "cluster", "application"}


def test_a_gateway_without_its_keys_names_each_of_them():
    done = rejoinder("check", "configs/gateway.yaml")
    assert done.returncode == 2
    for name in GATEWAY:
        assert f"the environment has no {name}, and there is no default" in done.stderr
    assert len(done.stderr.splitlines()) == len(GATEWAY)


@pytest.mark.parametrize("command", [["check"], ["serve"], ["serve", "--check"]])
def test_a_config_mistake_is_readable_lines_without_a_traceback(tmp_path, command):
    path = tmp_path / "bad.yaml"
    text = "upstreams:\n  u: {base_ur: 'http://h'}\nroutes: [{to: u}]\n"
    path.write_text(f"{text}shutdown: {{deadline: soon}}\n")
    done = rejoinder(*command, path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        f"{path}:2: upstreams.u.base_ur: unknown key; did you mean `base_url`?",
        f"{path}:4: shutdown.deadline: expected a duration such as 250ms, 10s, 5m, 1h or 2d, "
        "got 'soon'",
    ]


def test_check_prints_json_and_warnings(tmp_path):
    path = tmp_path / "odd.yaml"
    path.write_text("upstreams: {u: {base_url: 'http://h'}}\nroutes: [{to: u}, {to: u}]\n")
    warning = f"{path}:2: routes[1]: never reached: routes[0] takes every such request before it"
    plain = rejoinder("check", path)
    assert (plain.returncode, plain.stderr) == (0, f"warning: {warning}\n")
    report = json.loads(rejoinder("check", path, "--json").stdout)
    assert report == {"ok": True, "problems": [], "warnings": [warning], "engines": {}}


def test_schema_is_a_json_schema():
    done = rejoinder("schema")
    assert done.returncode == 0
    assert json.loads(done.stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples(command):
    done = rejoinder(command, "--help")
    assert done.returncode == 0
    assert "Examples" in done.stdout
    assert f"rejoinder {command}" in done.stdout
    assert ("--json" in done.stdout) == (command not in WITHOUT_JSON)


def test_feedback_prints_what_was_counted_for_programs(admin):
    counted = {"request_id": "r1", "verdict": "wrong"}
    admin.answers = {"POST /cache/feedback": (200, counted)}
    done = rejoinder("feedback", "r1", "wrong", "--json", "--admin", admin.url)
    assert (done.returncode, json.loads(done.stdout)) == (0, counted)


def test_a_profile_is_told_to_programs_with_the_place_of_its_trace(admin, tmp_path):
    told = {"upstream": "local", "num_steps": 2, "steps_s": 0.5, "phases": {"linear": 0.5}}
    admin.answers = {"POST /engine/profile": (200, {**told, "trace": "dHJhY2U="})}
    out = tmp_path / "trace.json.gz"
    done = rejoinder("profile", "--json", "--out", out, "--admin", admin.url)
    assert (done.returncode, json.loads(done.stdout)) == (0, {**told, "trace": str(out)})
    assert out.read_bytes() == b"trace"


def test_an_export_to_standard_output_has_no_room_for_a_summary():
    done = rejoinder("export", "--json")
    assert done.returncode == 2
    assert "--json needs a file" in done.stderr


def test_help_lists_every_command():
    listed = rejoinder("--help").stdout
    for command in COMMANDS:
        assert f"│ {command} " in listed


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_a_script_that_knows_the_commands(shell):
    done = rejoinder("completion", shell)
    assert done.returncode == 0
    assert "purge" in done.stdout
    assert "dry-run" in done.stdout


@pytest.mark.parametrize("arguments", [["nonsense"], ["stats", "--nope"], ["check"]])
def test_a_wrong_command_line_is_exit_code_2(arguments):
    done = rejoinder(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_is_no_traceback(admin):
    """`rejoinder entries | head -1`: the listing is larger than a pipe holds."""
    page = {"entries": [ENTRY] * 2000, "cursor": None}
    admin.answers["GET /cache/entries"] = (200, page)
    with subprocess.Popen(
        [sys.executable, "-m", "proxy.cli", "entries", "--admin", admin.url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout.readline().decode().strip() == KEY
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 1


def test_help_and_check_load_nothing_heavy():
    program = (
        "import sys; from proxy.cli import main\n"
        "assert not {'yaml', 'proxy.settings.file'} & set(sys.modules)\n"
        "main(['--help']); main(['check', 'configs/quickstart.yaml'])\n"
        "heavy = {'litestar', 'httpx', 'aiohttp', 'torch', 'numpy', 'faiss', 'onnxruntime'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)) or None)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
