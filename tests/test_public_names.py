"""The public surface: what is exported, sorted, and in the order the architecture allows."""

import ast
from pathlib import Path

import unweave
from unweave.auditing import Audit, write_report
from unweave.run import audit as runs

SOURCE = Path(unweave.__file__).parent


def test_exported_names_are_pinned() -> None:
    assert unweave.__all__ == [
        "AbnormalRequestError", "Audit", "BudgetError", "Calibration", "Checkpoint", "ClassLossError", "DataError",
        "DataUnavailableError", "DivergenceError",
        "EmptyRequestError", "Explanation", "IntegrityError", "MethodError", "ModelError", "NegativeCurvatureError",
        "NoProgressError", "Plan", "Polished", "Prepared", "Receipt", "Recipe", "Rehearsal", "Request", "RequestError",
        "Run", "RunError", "Screening", "SolverError", "Trainer", "Unlearned", "UnweaveError", "audit", "compare",
        "draw", "explain", "load", "losses", "methods", "models", "polish", "prepare", "rehearse", "screen", "split",
        "trace_path", "train", "unlearn",
    ]  # fmt: skip
    assert all(hasattr(unweave, name) for name in unweave.__all__)


def test_audit_is_a_function_and_a_package() -> None:
    assert unweave.audit is runs.audit
    assert Audit is unweave.Audit
    assert callable(write_report)


def test_every_error_derives_from_one() -> None:
    errors = [getattr(unweave, name) for name in unweave.__all__ if name.endswith("Error")]
    assert all(issubclass(error, unweave.UnweaveError) for error in errors)


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        elif isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
    return found


def test_arrows_point_one_way() -> None:
    """The library never imports the command line; solvers know no methods; only the command line needs extras."""
    for path in SOURCE.rglob("*.py"):
        where = path.relative_to(SOURCE).parts[0]
        names = imports(path)
        if where != "cli":
            assert not any(n.startswith(("unweave.cli", "typer", "rich")) for n in names), path
        if where == "solvers":
            assert not any(n.startswith("unweave.methods") for n in names), path
        if where not in ("cli", "experiments", "__init__.py"):
            assert not any(n.startswith("unweave.experiments") for n in names), path


def test_no_pickle_in_the_library() -> None:
    for path in SOURCE.rglob("*.py"):
        assert not {"pickle", "dill", "cloudpickle", "marshal"} & imports(path), path
        assert "torch.load" not in path.read_text(encoding="utf-8"), path
