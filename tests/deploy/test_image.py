"""The image is built from pinned parts, runs as nobody in particular, and starts as described."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from contextlib import ExitStack
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from monitor.config.telemetry_section import MetricsSection
from monitor.store import Store
from monitor.telemetry.exporter import Exporter
from tests.deploy.manifests import DEPLOY, ROOT
from tests.telemetry.servers import free_port

DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
NODE = DEPLOY / "docker" / "conclad-node"
BIN = Path(sys.executable).parent


def node(
    *arguments: str, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the container's start script with the programs of this environment."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "CONCLAD_"))}
    return subprocess.run(
        [str(NODE), *arguments],
        env={**inherited, "PATH": f"{BIN}:{os.environ['PATH']}", **variables},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(
        [str(BIN / "hadolint"), str(DOCKERFILE)], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_last_stage_is_small_pinned_and_not_root() -> None:
    text = DOCKERFILE.read_text()
    assert re.search(r"^ARG PYTHON=3\.11\.\d+-slim-\w+$", text, re.MULTILINE)
    build, last = text.split("FROM python:${PYTHON}${PYTHON_DIGEST}\n")
    assert "AS build" in build
    assert re.search(r"^USER \d+:\d+$", last, re.MULTILINE)
    assert "HEALTHCHECK" in last
    for tool in ("apt-get", "gcc", "make ", "pip install"):
        assert tool not in last, "nothing is built or installed in the final stage"
    assert "--constraint constraints.txt" in build


def test_the_version_in_the_examples_is_ours() -> None:
    from monitor import __version__

    assert set(re.findall(r"conclad:(\d+\.\d+\.\d+)", DOCKERFILE.read_text())) == {__version__}


def test_only_what_the_image_needs_is_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*", "what is not named stays out, secrets above all"
    named = {rule[1:].rstrip("/") for rule in rules if rule.startswith("!")}
    copied = {
        part
        for line in re.findall(r"^COPY (?!--from)(?:--\S+ )?(.+)$", DOCKERFILE.read_text(), re.M)
        for part in line.split()[:-1]
    }
    assert copied == named
    assert all((ROOT / name).exists() for name in named)


def test_the_extras_of_the_image_are_pinned() -> None:
    """Whatever the image installs has its version in constraints.txt."""
    pins = {
        line.partition("==")[0].lower().replace("_", "-")
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    assert {"ray", "torch", "torchvision", "openvino", "psycopg", "aiohttp", "grpcio"} <= pins


def test_it_becomes_its_command() -> None:
    done = node("conclad", "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert "conclad" in done.stdout


def test_secrets_come_from_files(tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.write_text("open sesame\n")
    done = node("sh", "-c", 'echo "$PGPASSWORD|$PGPASSWORD_FILE"', PGPASSWORD_FILE=str(secret))
    assert done.stdout == "open sesame|\n"
    gone = node("true", PGPASSWORD_FILE=str(tmp_path / "gone"))
    assert gone.returncode == 2
    assert "cannot be read" in gone.stderr


def test_without_a_cluster_it_makes_a_token_of_its_own() -> None:
    shown = ("sh", "-c", 'echo "$RAY_AUTH_TOKEN"')
    one, two = (node(*shown, RAY_AUTH_MODE="token").stdout.strip() for _ in range(2))
    assert len(one) == 64
    assert one != two
    assert node(*shown, RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="ours").stdout == "ours\n"


def test_joining_a_cluster_needs_its_token() -> None:
    done = node("true", RAY_HEAD="127.0.0.1:1", RAY_AUTH_MODE="token")
    assert done.returncode == 2
    assert "token" in done.stderr


@pytest.mark.parametrize("page", [False, True], ids=["by the store", "by the page"])
def test_healthy_means_that_somebody_holds_the_lease(tmp_path: Path, page: bool) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(Store.open(tmp_path / "state"))
        port = free_port()
        if page:
            stack.enter_context(Exporter(store, MetricsSection(port=port)))

        def is_healthy() -> bool:
            return node("healthy", cwd=tmp_path, CONCLAD_METRICS__PORT=str(port)).returncode == 0

        assert not is_healthy(), "nobody works on it"
        lease = store.acquire_lease("coordinator", "here:1", timedelta(minutes=10))
        assert is_healthy()
        store.release_lease(lease)
        assert not is_healthy()


def test_no_state_is_not_healthy(tmp_path: Path) -> None:
    assert node("healthy", cwd=tmp_path, CONCLAD_METRICS__PORT=str(free_port())).returncode != 0


def test_health_is_cheap(tmp_path: Path) -> None:
    """It is asked every thirty seconds; 'conclad status' takes a second of processor time."""
    with Store.open(tmp_path / "state") as store:
        store.acquire_lease("coordinator", "here:1", timedelta(minutes=10))
        with Exporter(store, MetricsSection(port=free_port())) as exporter:
            assert exporter.url is not None
            port = exporter.url.rpartition(":")[2].partition("/")[0]
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert node("healthy", cwd=tmp_path, CONCLAD_METRICS__PORT=port).returncode == 0
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.3


def test_the_image_carries_bytecode() -> None:
    build, last = DOCKERFILE.read_text().split("FROM python:${PYTHON}${PYTHON_DIGEST}\n")
    # Of what was installed, and of Python's own library, which the base image ships without.
    for stage in (build, last):
        assert "-m compileall" in stage
        assert "--invalidation-mode unchecked-hash" in stage
    assert "__pycache__ -prune" not in build
    assert "PIP_NO_COMPILE=1" in build, "once is enough"


@pytest.mark.parametrize(
    ("variant", "installed", "is_refused"),
    [
        ("cpu", ("torch", "numpy"), False),
        ("cpu", ("torch", "nvidia-cublas-cu12"), True),
        ("cpu", ("torch", "nvidia_cuda_runtime"), True),
        ("cpu", ("torch", "triton"), True),
        ("cuda", ("torch", "nvidia-cublas-cu12", "triton"), False),
    ],
)
def test_a_cpu_image_carries_no_cuda_libraries(
    variant: str, installed: tuple[str, ...], is_refused: bool, tmp_path: Path
) -> None:
    for name in installed:
        folder = tmp_path / f"{name}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    check = DEPLOY / "docker" / "check_variant.py"
    # Only what the test installed: neither this environment's packages nor Python's own.
    code = f"import sys, runpy; sys.path[:] = [{str(tmp_path)!r}, *sys.path]; "
    code += f"sys.argv = ['', {variant!r}]; runpy.run_path({str(check)!r}, run_name='__main__')"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True)
    assert (done.returncode != 0) is is_refused, done.stderr
    assert ("TORCH_INDEX" in done.stderr) is is_refused
    assert DOCKERFILE.read_text().count('check_variant.py "${VARIANT}"') == 2


def test_a_head_is_alive_with_its_autoscaler(tmp_path: Path) -> None:
    """Stand-ins for both pages: what counts is whom the script asks, and what it makes of it."""
    answers = {"/api/healthz": 200, "/metrics": 200}

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers[self.path])
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        port = str(server.server_port)

        def is_alive(autoscaler: str) -> bool:
            asked = node("head-alive", RAY_AGENT_PORT=port, AUTOSCALER_METRIC_PORT=autoscaler)
            return asked.returncode == 0

        assert is_alive(port)
        assert not is_alive(str(free_port())), "the autoscaler is gone"
        answers["/api/healthz"] = 503
        assert not is_alive(port), "GCS is gone"
        server.shutdown()


def test_the_script_is_executable() -> None:
    assert os.access(NODE, os.X_OK)
    assert subprocess.run(["sh", "-n", str(NODE)]).returncode == 0


@pytest.mark.parametrize("variant", ["cpu", "cuda", "tpu"])
def test_variants(variant: str) -> None:
    """The builder's choice of extras, as the shell would take it."""
    [choice] = re.findall(r"RUN (case .*?esac)", DOCKERFILE.read_text(), re.DOTALL)
    script = choice.replace("\\\n", "\n") + '\necho "$extras"'
    done = subprocess.run(
        ["bash", "-c", script], env={"VARIANT": variant}, capture_output=True, text=True
    )
    if variant == "tpu":
        assert done.returncode == 1
        assert "choose cpu or cuda" in done.stderr
    else:
        assert {"cluster", "postgres"} <= set(done.stdout.strip().split(","))
        assert ("openvino" in done.stdout) == (variant == "cpu")
