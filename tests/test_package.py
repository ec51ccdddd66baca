"""The built wheel installs and works in an environment that has its dependencies and nothing of this checkout."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

from unweave._core.version import __version__

ROOT = Path(__file__).parent.parent


INSTALLED = """
import runpy, sys
from importlib.metadata import version
import unweave
from unweave.cli.app import app

print(unweave.__file__)
assert version("unweave") == unweave.__version__
try:
    app({first})
except SystemExit as end:
    assert not end.code
sys.argv = {then}
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(*command: object, cwd: Path) -> str:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    result = subprocess.run(
        [str(c) for c in command], capture_output=True, text=True, cwd=cwd, env=environment, timeout=600, check=False
    )
    assert result.returncode == 0, result.stderr + result.stdout
    return result.stdout


def test_the_wheel(tmp_path: Path) -> None:
    build = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    name = run(sys.executable, "-c", build, tmp_path, cwd=ROOT).strip()
    with zipfile.ZipFile(tmp_path / name) as wheel:
        files = wheel.namelist()
    assert "unweave/py.typed" in files
    assert all(f.startswith(("unweave/", "unweave-")) for f in files)

    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    # The dependencies are those installed here; a path file does not run the editable install's own.
    site = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path).strip()
    Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    into = ("--python", python, "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run(sys.executable, "-m", "pip", *into, tmp_path / name, cwd=tmp_path)

    unweave = tmp_path / "env" / "bin" / "unweave"
    assert run(unweave, "--version", cwd=tmp_path) == f"unweave {__version__}\n"
    train = ["train", "--data", "demo", "--model", "sgc", "--epochs", "3", "--out", "a"]
    forget = [str(unweave), "forget", "a", "--forget", "edges:0.05", "--out", "b"]
    told = run(python, "-c", INSTALLED.format(first=train, then=forget), cwd=tmp_path)  # torch is imported once
    assert told.startswith(str(tmp_path))
    assert "How near" in told
