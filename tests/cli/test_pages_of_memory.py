"""The command line has torch ask for large pages, unless somebody decided otherwise."""

import os

import pytest

from unweave import cli


@pytest.mark.parametrize(("given", "there"), [(None, "1"), ("0", "0")])
def test_asks_for_large_pages(monkeypatch: pytest.MonkeyPatch, given: str | None, there: str) -> None:
    monkeypatch.setenv("THP_MEM_ALLOC_ENABLE", given or "")  # so that it is put back
    if given is None:
        monkeypatch.delenv("THP_MEM_ALLOC_ENABLE")
    monkeypatch.setattr("sys.argv", ["unweave", "--version"])
    with pytest.raises(SystemExit):
        cli.main()
    assert os.environ["THP_MEM_ALLOC_ENABLE"] == there
