"""Each file of `deploy/` by the strictest reader that can be installed: the tool itself where there
is one on the machine, else its parser or schema."""

import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import crossplane
import httpx
import kubernetes_validate
import pytest
import yaml
from compose_spec import ComposeSpecification, PyCompose

from proxy.admin.gate import gate_of
from proxy.settings.file import parse

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES_VERSIONS = ("1.29", "1.34")
"""The first that has native sidecars, and a later one."""
MOST_EXPOSED = "15"
"""Of 100, as `systemd-analyze security` counts; it calls up to 20 safe."""


def run(*command, **options):
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, timeout=120, check=False, **options
    )


def needs(program):
    reason = f"{program} is not installed here; the file is parsed by other tests"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


def documents(path):
    return list(yaml.safe_load_all(path.read_text()))


def test_hadolint_finds_nothing_in_the_dockerfile():
    done = run(Path(sys.executable).with_name("hadolint"), DEPLOY / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_dockerfile_copies_what_is_there_and_starts_a_config_that_is_in_the_image():
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert "proxy" in copied
    kept = (ROOT / ".dockerignore").read_text().splitlines()
    for source in copied:
        assert (ROOT / source).exists()
        assert f"!{source}" in kept
    (config,) = re.findall(r'^CMD \["serve", "/etc/rejoinder/(.+)"\]$', text, re.MULTILINE)
    assert (ROOT / "configs" / config).is_file()
    assert re.search(r"^USER \d+$", text, re.MULTILINE), "Kubernetes checks a number only"


@pytest.fixture
def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def test_the_compose_file_follows_the_compose_specification(compose):
    text = (DEPLOY / "compose.yaml").read_text()
    PyCompose.from_yaml(text)  # knows every key
    ComposeSpecification.model_validate(compose)  # and the kinds of values
    with pytest.raises(ValueError, match="pids_limt"):
        PyCompose.from_yaml(text.replace("pids_limit", "pids_limt"))


def config_inside(service):
    """The config as it is read in the container."""
    environ = {
        name: re.sub(r"\$\{(\w+):\?.*\}", r"http://\1.internal", value)
        for name, value in service["environment"].items()
    }
    name = Path(service["command"][1]).name
    return parse(Path(name), (ROOT / "configs" / name).read_text(), environ=environ).config


def test_the_compose_file_gives_the_config_all_that_it_needs(compose):
    service = compose["services"]["rejoinder"]
    config = config_inside(service)
    assert config.store.redis == "redis://redis:6379/0"
    grace_s = int(service["stop_grace_period"].removesuffix("s"))
    assert grace_s > config.shutdown.deadline
    assert (ROOT / "deploy" / service["build"]["context"]).resolve() == ROOT
    assert (ROOT / service["build"]["dockerfile"]).is_file()


def test_prometheus_in_the_compose_file_is_let_in_where_it_scrapes(compose):
    service = compose["services"]["rejoinder"]
    admin = config_inside(service).admin
    scraping = yaml.safe_load((DEPLOY / "prometheus/prometheus.yaml").read_text())
    assert all((DEPLOY / "prometheus" / name).is_file() for name in scraping["rule_files"])
    (job,) = scraping["scrape_configs"]
    secret = Path(job["authorization"]["credentials_file"])
    assert secret.parent == Path("/run/secrets")
    name = compose["secrets"][secret.name]["environment"]
    assert name in service["environment"]["REJOINDER_ADMIN_TOKEN"]
    (target,) = job["static_configs"][0]["targets"]
    host, _, port = target.partition(":")
    assert host in compose["services"]
    assert admin.listen.endswith(f":{port}")
    gate = gate_of(admin)
    gate.check("/metrics", {"host": target, "authorization": f"Bearer {admin.token}"})


@needs("promtool")
def test_prometheus_takes_its_config(tmp_path):
    folder = tmp_path / "prometheus"
    shutil.copytree(DEPLOY / "prometheus", folder)
    token = tmp_path / "token"
    token.write_text("a-token")
    config = folder / "prometheus.yaml"
    config.write_text(config.read_text().replace("/run/secrets/admin_token", str(token)))
    done = run("promtool", "check", "config", config)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("version", KUBERNETES_VERSIONS)
def test_the_kubernetes_objects_follow_the_api_s_schema_strictly(version):
    for document in documents(DEPLOY / "kubernetes/sidecar.yaml"):
        kubernetes_validate.validate(document, version, strict=True)


def test_a_mistake_in_a_kubernetes_object_would_be_seen():
    (_, deployment) = documents(DEPLOY / "kubernetes/sidecar.yaml")
    deployment["spec"]["template"]["spec"]["initContainers"][0]["restartpolicy"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, KUBERNETES_VERSIONS[0], strict=True)


def test_the_sidecar_is_native_drains_in_time_and_its_config_works():
    settings, deployment = documents(DEPLOY / "kubernetes/sidecar.yaml")
    config = parse(Path("sidecar"), settings["data"]["rejoinder.yaml"], environ={}).config
    pod = deployment["spec"]["template"]["spec"]
    (sidecar,) = pod["initContainers"]
    assert sidecar["restartPolicy"] == "Always"
    asleep_s = int(sidecar["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert asleep_s + config.shutdown.deadline < pod["terminationGracePeriodSeconds"]
    assert sidecar["args"][1] == "/etc/rejoinder/rejoinder.yaml"
    (base,) = (one["value"] for one in pod["containers"][0]["env"] if one["name"].endswith("URL"))
    assert base == f"http://{config.listen}/v1"
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert f"http://{config.listen}/" in sidecar[probe]["exec"]["command"][-1]


@pytest.fixture
def unit(tmp_path):
    """The unit with programs that exist here: systemd looks for them."""
    text = (DEPLOY / "systemd/rejoinder.service").read_text()
    path = tmp_path / "rejoinder.service"
    path.write_text(text.replace("/opt/rejoinder/bin/rejoinder", shutil.which("true")))
    return path


@needs("systemd-analyze")
def test_systemd_understands_every_line_of_the_unit(unit):
    done = run("systemd-analyze", "verify", "--man=no", unit)
    mine = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, mine) == (0, [])


@needs("systemd-analyze")
def test_systemd_finds_the_unit_little_exposed(unit):
    done = run("systemd-analyze", "security", "--offline=yes", f"--threshold={MOST_EXPOSED}", unit)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_unit_waits_longer_for_the_end_than_the_configs_do(unit):
    (timeout,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit.read_text(), re.MULTILINE)
    deadlines = [
        int(found)
        for path in (ROOT / "configs").glob("*.yaml")
        for found in re.findall(r"deadline: (\d+)s\}", path.read_text())
    ]
    assert deadlines
    assert int(timeout) > max(deadlines)


@pytest.fixture
def nginx_conf(tmp_path):
    """The snippet where it belongs, on ports and with a certificate that are there."""
    snippet = (DEPLOY / "nginx/rejoinder.conf").read_text()
    for name in ("crt", "key"):
        snippet = snippet.replace(
            f"/etc/nginx/tls/llm.example.com.{name}", str(tmp_path / f"tls.{name}")
        )
    (tmp_path / "rejoinder.conf").write_text(snippet)
    path = tmp_path / "nginx.conf"
    path.write_text(
        f"pid {tmp_path}/pid;\nerror_log stderr;\nevents {{}}\n"
        f"http {{ access_log off; include {tmp_path}/rejoinder.conf; }}\n"
    )
    return path


def test_every_directive_of_the_nginx_snippet_is_known_and_stands_where_it_may(nginx_conf):
    parsed = crossplane.parse(str(nginx_conf), strict=True)
    assert parsed["errors"] == []
    assert len(parsed["config"]) == 2


@pytest.fixture
def certificate(tmp_path):
    made = run(
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
        "-nodes", "-subj", "/CN=llm.example.com", "-days", "1",
        "-addext", "subjectAltName=DNS:llm.example.com",
        "-keyout", tmp_path / "tls.key", "-out", tmp_path / "tls.crt",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr


@needs("nginx")
@needs("openssl")
def test_nginx_takes_the_snippet(nginx_conf, certificate, tmp_path):
    done = run("nginx", "-t", "-c", nginx_conf, "-p", tmp_path)
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if "[warn]" in line]
    assert [line for line in warned if "http2" not in line] == []


class Held(BaseHTTPRequestHandler):
    """A stream whose second piece says whether the client had read the first by then."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"5\r\nfirst\r\n")
        told = b"after" if self.server.was_read.wait(20) else b"never"
        self.wfile.write(b"5\r\n%b\r\n0\r\n\r\n" % told)


@pytest.fixture
def held():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Held)
    server.daemon_threads = True
    server.was_read = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server
    server.was_read.set()
    server.shutdown()
    thread.join()
    server.server_close()


@needs("nginx")
@needs("openssl")
def test_nginx_passes_each_piece_of_a_stream_on_as_it_comes(
    nginx_conf, certificate, held, tmp_path
):
    port = free_port()
    snippet = (tmp_path / "rejoinder.conf").read_text()
    snippet = snippet.replace("listen 443", f"listen 127.0.0.1:{port}")
    snippet = snippet.replace("    listen [::]:443 ssl http2;\n", "")
    snippet = snippet.replace("server 127.0.0.1:8080;", f"server 127.0.0.1:{held.server_port};")
    (tmp_path / "rejoinder.conf").write_text(snippet)
    nginx = subprocess.Popen(
        ["nginx", "-c", nginx_conf, "-p", tmp_path, "-g", "daemon off; master_process off;"],
        stderr=subprocess.PIPE,
    )
    try:
        trusted = ssl.create_default_context(cafile=tmp_path / "tls.crt")
        with httpx.Client(verify=trusted, timeout=60, trust_env=False) as client:
            pieces = stream(client, f"https://127.0.0.1:{port}/v1/chat/completions")
            assert next(pieces) == b"first"
            held.was_read.set()
            assert next(pieces) == b"after"
    finally:
        nginx.terminate()
        nginx.communicate(timeout=60)


def stream(client, url):
    """The pieces of an answer; asked again until nginx listens."""
    extensions = {"sni_hostname": "llm.example.com"}
    until = time.monotonic() + 60
    while True:
        try:
            with client.stream("POST", url, json={}, extensions=extensions) as answer:
                assert answer.status_code == 200
                yield from answer.iter_raw()
                return
        except httpx.ConnectError:
            assert time.monotonic() < until, "nginx does not listen"
            time.sleep(0.05)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_what_starts_the_container_and_the_pod_finds_out_whether_it_lives():
    """The probes' program, against nobody: it fails, and quickly."""
    text = (DEPLOY / "Dockerfile").read_text()
    (program,) = re.findall(r'CMD \["python", "-c", "(.+)"\]', text)
    program = program.replace("8080", "9")
    done = run(sys.executable, "-c", program, env={"PATH": os.environ["PATH"]})
    assert done.returncode != 0
    assert "Connection refused" in done.stderr
