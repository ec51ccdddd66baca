"""``unweave ledger``: what a third party does with a file, and an owner with a service."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from unweave.cli.app import app
from unweave.serve import database
from unweave.serve.ledger import Ledger


@pytest.fixture
def home(tmp_path: Path) -> Path:
    ledger = Ledger.at(tmp_path / "service")
    for number in range(3):
        with database.writing(ledger.engine) as connection:
            ledger.append(connection, "received", {"number": number})
    return tmp_path / "service"


def call(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["ledger", *map(str, arguments)])
    return done.exit_code, " ".join(done.output.split())


def test_from_a_service_to_a_third_party(home: Path, tmp_path: Path) -> None:
    point, file = tmp_path / "point.json", tmp_path / "ledger.jsonl"
    assert "4 entries, as of" in call("checkpoint", home, "--out", point)[1]
    assert call("checkpoint", home)[1].startswith('{"checkpoint":{')
    assert "Check them anywhere" in call("export", home, "--out", file)[1]
    for path in (file, home):
        code, told = call("verify", path)
        assert (code, "In order: 4 entries" in told, "could have rewritten" in told) == (0, True, True)
        code, told = call("verify", path, "--checkpoint", point)
        assert (code, "the ledger that 1 published checkpoint saw" in told) == (0, True)
    code, told = call("verify", file, "--json")
    found = json.loads(told)
    assert (code, found["entries"]) == (0, 4)
    assert "as expected" in call("verify", file, "--key", found["first_key"])[1]


def test_what_is_wrong_is_said_in_one_line(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "ledger.jsonl"
    call("export", home, "--out", file)
    file.write_text(file.read_text().replace('"number":1', '"number":2'))
    cases = {
        ("verify", file): "entry 3 is not signed with the key that was in force",
        ("verify", tmp_path / "absent"): "cannot read",
        ("verify", home, "--key", "ab"): "another one's",
        ("verify", home, "--checkpoint", file): "no line of a ledger",
        ("verify", home, "--checkpoint", tmp_path / "absent"): "cannot read",
        ("verify", tmp_path): "is no folder of a service",
        ("export", tmp_path / "absent", "--out", file): "is no folder of a service",
        ("checkpoint", tmp_path): "is no folder of a service",
    }
    for arguments, told in cases.items():
        code, output = call(*arguments)
        assert code == 1, arguments
        assert told in output, arguments
    assert not (tmp_path / "keys").exists(), "nothing is made where there is no service"


def test_what_is_missing_is_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "pip install 'unweave[serve]'" in call("verify", home)[1]
