"""The public surface: what is exported, sorted, and in the order the architecture allows."""

import ast
from pathlib import Path

import pytest

import unweave
from unweave import errors
from unweave.objective import losses
from unweave.run.audit import audit

SOURCE = Path(unweave.__file__).parent


def test_exported_names_are_pinned() -> None:
    assert sorted(unweave.__all__) == [
        "Audit", "Change", "Loss", "Method", "Plan", "Receipt", "Recipe", "Repair", "Request", "Run", "Training",
        "UnweaveError", "__version__", "audit", "compare", "draw", "inspect", "integrations",
        "load", "load_folder", "losses", "methods", "models", "polish", "prepare", "repair", "save_folder", "split",
        "tasks", "train", "unlearn",
    ]  # fmt: skip
    assert dir(unweave) == sorted(unweave.__all__)


def test_every_short_name_is_there() -> None:
    for name in (*unweave._VOCABULARY, *unweave._BESIDE):
        assert getattr(unweave, name) is not None
    assert unweave.audit is audit
    assert unweave.losses is losses
    with pytest.raises(AttributeError, match="nothing"):
        _ = unweave.nothing


def test_every_error_derives_from_one() -> None:
    found = [value for name, value in vars(errors).items() if name.endswith("Error")]
    assert len(found) > 10
    assert all(issubclass(error, unweave.UnweaveError) for error in found)
    assert all(getattr(unweave, error.__name__) is error for error in found)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def test_only_the_command_line_needs_its_extras() -> None:
    """Which room may import which is held by import-linter (``make check``)."""
    for path in SOURCE.rglob("*.py"):
        if path.relative_to(SOURCE).parts[0] != "cli":
            assert not any(n.startswith(("typer", "rich")) for n in imports(path)), path


def test_no_pickle_in_the_library() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not {"pickle", "dill", "cloudpickle", "marshal"} & imports(path), path
        loads = [line for line in path.read_text(encoding="utf-8").splitlines() if "torch.load(" in line]
        assert all("weights_only=True" in line for line in loads), path
