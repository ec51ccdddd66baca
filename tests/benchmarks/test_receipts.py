"""The stream of very many requests, shortened."""

from pathlib import Path

import receipts
from pages.receipts import PAGE
from shared import write_document


def test_every_request_has_a_receipt_and_every_tenth_its_time(tmp_path: Path) -> None:
    found = receipts.stream(20, tmp_path / "run")
    assert len(found["milliseconds"]) == receipts.TENTHS
    assert min(found["milliseconds"]) > 0
    write_document(tmp_path / "receipts.json", found)
    PAGE.write(tmp_path)
    assert "| 20 |" in (tmp_path / "README.md").read_text()
