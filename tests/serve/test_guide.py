"""The guide is true: its commands and its code run beside a service that was started as it says."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.test_cli import unweave
from tests.test_docs import DOCS, blocks

PAGE = DOCS / "service.md"
MAIN = [sys.executable, "-c", "from unweave.cli import main; main()"]
SERVERS = ("unweave serve", "unweave work")
"""Commands that end only when they are told to."""


def run(command: str, place: Path, port: int, token: str) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("UNWEAVE_TOKEN", token)
        patch.setenv("UNWEAVE_URL", f"http://127.0.0.1:{port}")
        done = unweave(*shlex.split(command, comments=True)[1:], cwd=place)
    assert done.exit_code == 0, f"{command}: {done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int, str]]:
    """The folder in which the demo runs, its port and its first token; it is stopped in good order."""
    place = tmp_path_factory.mktemp("guide")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = place / "log"
    command = [*MAIN, "serve", "--demo", "--home", "service", "--port", str(port)]
    with log.open("w") as file:
        started = time.monotonic()
        process = subprocess.Popen(
            command, cwd=place, stdout=file, stderr=subprocess.STDOUT, env=os.environ | {"OMP_NUM_THREADS": "1"}
        )
        while "Open http" not in log.read_text() and process.poll() is None and time.monotonic() < started + 120:
            time.sleep(0.1)
        found = re.search(r"unweave_\S+", log.read_text())
        assert found, log.read_text()
        yield place, port, found[0]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM), log.read_text()
    assert "Traceback" not in log.read_text(), log.read_text()
    assert found[0] not in log.read_text().split("Open http", 1)[1]


def test_the_guide_runs(served: tuple[Path, int, str], monkeypatch: pytest.MonkeyPatch) -> None:
    place, port, token = served
    (place / "ids.csv").write_text("id,node\ncustomer 4711,12\ncustomer 4712,13\ncustomer 4713,15\n")
    (place / "change.json").write_text('{"correct": {"labels": {"customer 4713": 1}}}')
    run("unweave train --data demo --model sgc --weight-decay 1e-3 --forgettable --out runs/a", place, port, token)
    commands = [line for block in blocks("bash", PAGE) for line in block.splitlines() if line.startswith("unweave ")]
    assert len(commands) > 8
    later = []
    for command in commands:
        if command.startswith((*SERVERS, "unweave train")):
            continue
        if command.startswith("unweave register"):
            run(command, place, port, token)
        else:
            later.append(command)
    code, more = blocks("python", PAGE)
    monkeypatch.chdir(place)
    exec(code.replace("8722", str(port)) + more, {"token": token})
    for command in later:
        told = run(command.replace("/backups/monday", "copy").replace("--home service", ""), place, port, token)
        assert told
    assert (place / "copy" / "keys" / "secret").exists()


def test_the_demo_ends_by_itself(served: tuple[Path, int, str]) -> None:
    place, port, token = served
    told = run("unweave request papers --subject author-0100 --wait --json", place, port, token)
    assert '"state": "done"' in told
