"""``unweave audit``: its exit codes, what it prints, and what it leaves on disk."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

import unweave as uw
from tests.audits import made_audit
from tests.cli.test_cli import refused, unweave
from tests.scripts import small_demo
from unweave.cli import audit as command

FEW = ("--quick", "--jobs", 1)


@pytest.fixture(scope="module", autouse=True)
def part() -> Iterator[None]:
    """A part of the embedded graph is all of it."""
    with small_demo():
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, a, and another, b, that was made of it by forgetting nodes."""
    path = tmp_path_factory.mktemp("runs")
    done = unweave("train", "--data", "demo", "--model", "sgc", "--epochs", 12, "--out", path / "a")
    assert done.exit_code == 0, done.stderr
    done = unweave("forget", path / "a", "--forget", "nodes:0.1", "--out", path / "b")
    assert done.exit_code == 0, done.stderr
    return path


@pytest.fixture(scope="module")
def audited(runs: Path) -> Path:
    """A report of that."""
    done = unweave("audit", runs / "a", runs / "b", *FEW, "--out", runs / "first.html")
    assert done.exit_code in (0, 3, 4), done.stderr
    for word in ("membership, loss threshold – ", "usual if retrained", "Left out", str(runs / "first.html")):
        assert word in done.stdout
    assert f"{runs / 'first.models'} holds models trained with the deleted data" in done.stdout
    assert "training models to compare with: 32 of 32" in done.stderr
    return runs


def test_a_report_is_written_and_the_document_is_that_of_python(audited: Path) -> None:
    page = (audited / "first.html").read_text(encoding="utf-8")
    assert str(audited / "first.models") in page
    assert f"unweave audit {audited / 'a'} {audited / 'b'} --seed 0 --quick --json" in page
    models = sorted((audited / "first.models").iterdir())
    assert len(models) == 32
    stamps = [path.stat().st_mtime_ns for path in models]

    where = ("--out", audited / "second.html", "--cache", audited / "first.models")
    done = unweave("audit", audited / "a", audited / "b", *FEW, *where, "--json")
    found = json.loads(done.stdout)
    assert found["report"] == str(audited / "second.html")
    assert found["models"] == str(audited / "first.models")
    assert [path.stat().st_mtime_ns for path in models] == stamps, "models that are there are not trained again"
    same = uw.audit(
        uw.Run.open(audited / "a"), uw.Run.open(audited / "b"), quick=True, cache=audited / "first.models"
    ).to_dict()
    timeless = {key: value for key, value in json.loads(json.dumps(same)).items() if key != "seconds"}
    assert {key: found[key] for key in timeless} == timeless
    assert done.exit_code == {"gone": 0, "remembers": 3, "differs": 3, "cannot tell": 4}[found["verdict"]]


def test_a_report_is_not_replaced_unasked(audited: Path) -> None:
    page = audited / "first.html"
    before = page.read_bytes()
    again = ("audit", audited / "a", audited / "b", *FEW, "--out", page)
    refused(unweave(*again), "exists already")
    assert page.read_bytes() == before
    assert unweave(*again, "--overwrite", "--seed", 0).exit_code in (0, 3, 4)
    assert page.read_bytes() != before


@pytest.mark.parametrize(("verdict", "code"), [("gone", 0), ("remembers", 3), ("differs", 3), ("cannot tell", 4)])
def test_the_verdict_is_the_exit_code(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verdict: str, code: int
) -> None:
    monkeypatch.setattr("unweave.run.audit.audit", lambda *_, **__: made_audit(verdict))
    done = unweave("audit", runs / "a", runs / "b", "--out", tmp_path / "x.html")
    assert done.exit_code == code
    assert (tmp_path / "x.html").exists()
    assert done.stdout.startswith(str(made_audit(verdict))), "the same words as in Python"


def test_runs_that_cannot_be_audited(runs: Path, tmp_path: Path) -> None:
    out = ("--quick", "--out", tmp_path / "x.html")
    refused(unweave("audit", runs / "a", runs / "a", *out), "replaced in place")
    refused(unweave("audit", runs / "b", runs / "a", *out), "name the run before the request first")
    shutil.copytree(runs / "b", tmp_path / "copy")
    refused(unweave("audit", runs / "b", tmp_path / "copy", *out), "nothing that")
    other = unweave("forget", runs / "a", "--forget", "nodes:0.02", "--out", tmp_path / "other")
    assert other.exit_code == 0, other.stderr
    refused(unweave("audit", tmp_path / "other", runs / "b", *out), "was not made from")
    trained = unweave("train", "--data", "demo", "--model", "sgc", "--epochs", 2, "--out", tmp_path / "alien")
    assert trained.exit_code == 0, trained.stderr
    refused(unweave("audit", tmp_path / "alien", runs / "b", *out), "another model")
    refused(unweave("audit", tmp_path, runs / "b", *out), "is not a run")
    refused(unweave("audit", runs / "a", runs / "b", "--jobs", 0, *out), "--jobs", code=2)
    assert not (tmp_path / "x.html").exists()
    assert not (tmp_path / "x.models").exists()


def test_deferred_requests_are_verified_first(tmp_path: Path) -> None:
    made = ("train", "--data", "demo", "--model", "gcn", "--epochs", 5, "--out", tmp_path / "a")
    assert unweave(*made).exit_code == 0
    assert unweave("prepare", tmp_path / "a").exit_code == 0
    (tmp_path / "edge.json").write_text('{"edges": [[2, 146]]}')
    done = unweave("forget", tmp_path / "a", "--request", tmp_path / "edge.json", "--defer", "--out", tmp_path / "b")
    assert done.exit_code == 0, done.stderr
    refused(unweave("audit", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "x.html"), "unweave verify")


def test_a_model_of_your_own_is_named(tmp_path: Path) -> None:
    class Own(uw.models.SGC):
        pass

    data = uw.load("demo", seed=0)
    run = uw.train(Own(data.num_features, data.num_classes), data, seed=0, epochs=2)
    run.save(tmp_path / "a")
    run.forget(uw.Request(nodes=[1]), "finetune", epochs=1).save(tmp_path / "b")
    done = unweave("audit", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "x.html")
    refused(done, "--model package.module:factory")


def test_an_interrupted_audit_says_how_to_go_on(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stops(*_: object, progress: Callable[[int, int], None], **__: object) -> None:
        progress(1, 32)
        raise KeyboardInterrupt

    monkeypatch.setattr("unweave.run.audit.audit", stops)
    done = unweave("audit", runs / "a", runs / "b", "--out", tmp_path / "x.html")
    refused(done, f"goes on from the models in {tmp_path / 'x.models'}")
    assert not (tmp_path / "x.html").exists()


@pytest.mark.usefixtures("few_references")
def test_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The commands of the page run, its code does, and its exit codes are those of the command."""
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    (shell,) = re.findall(r"## The command\n\n```bash\n(.*?)```", page, flags=re.DOTALL)
    for line in shell.splitlines():
        audits = "audit" in line.split()
        done = unweave(*shlex.split(line)[1:], *(("--jobs", 1) if audits else ()), cwd=tmp_path)
        assert done.exit_code in ({0, 3, 4} if audits else {0}), f"{line}: {done.stderr}"
    assert (tmp_path / "audit.html").stat().st_size > 50_000
    assert (tmp_path / "audit.models").is_dir()
    told = dict(
        re.findall(r"^\| (gone|not gone|not what|cannot tell)[^|]*\|[^|]*\| (\d) \|$", page, flags=re.MULTILINE)
    )
    codes = command.CODES
    assert [int(code) for code in told.values()] == [codes[v] for v in ("gone", "remembers", "differs", "cannot tell")]
    (code,) = re.findall(r"```python\n(import unweave as uw\nfrom unweave\.auditing .*?)```", page, flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "audit.html").unlink()
    exec(compile(code, "audit.md", "exec"), {})
    assert (tmp_path / "audit.html").exists()
    assert capsys.readouterr().out.split()[0] in ("gone", "remembers", "differs", "cannot")


def test_one_process_a_core_but_one_on_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    assert command._cores("cpu") >= 1
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert command._cores("cuda") == 1
