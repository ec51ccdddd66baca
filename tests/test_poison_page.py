"""The benchmark of poisons: its page and figure are made from its file, which is resumed."""

import sys
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

import poison
import poison_page


def document(forget: str, attack: float, f1: float) -> dict[str, Any]:
    """A cell in which every method but retraining leaves an attack and an F1."""
    rows = [
        {"method": name, "attack": attack, "attack_std": 0.01, "attack_before": 0.9, "f1_mean": f1 + 0.02 * place}
        for place, name in enumerate(poison_page.METHODS)
    ]
    rows[-1] |= {"attack": 0.03, "f1_mean": 0.85}
    config = {"data": "demo", "model": "gcn", "forget": forget, "seeds": 2, "epochs": 60, "forgettable": False}
    environment = {"device_name": "a machine", "torch": "2", "torch_geometric": "2"}
    return {
        "config": config | {"finetune": "as long as gif"},
        "environment": environment,
        "rows": rows,
        "commit": "c" * 40,
    }


def test_the_page_and_the_figure_are_made_from_the_file(tmp_path: Path) -> None:
    assert "Nothing has been run" in poison_page.page({})
    documents = [document("triggered:0.1", 0.71, 0.75), document("triggered:0.1@0.5", 0.82, 0.845)]
    poison.write(tmp_path, {poison_page.cell_of(d): d for d in documents})
    found = poison.read(tmp_path)
    assert found == {poison_page.cell_of(d): d for d in documents}
    page = poison_page.page(found)
    assert "| 0.1 | all | 0.90 | 0.71 | 0.71 | 0.71 | 0.71 | 0.03 | +0.20 | +0.40 | +0.60 |" in page
    assert "| 0.1 | half | 0.90 | 0.82 | 0.82 | 0.82 | 0.82 | 0.03 | – | – | – |" in page, "too little F1 was lost"
    assert "0.71 ± 0.01" in page
    assert poison_page.draw(found, tmp_path / "attack.png").stat().st_size > 10_000


def test_the_committed_page_is_made_from_the_committed_file() -> None:
    found, page = poison.read(poison.RESULTS), poison.RESULTS / "README.md"
    assert page.exists() == bool(found)
    assert not found or page.read_text(encoding="utf-8") == poison_page.page(found)
