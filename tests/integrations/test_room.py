"""The room has one door, and what needs an extra says so when it is asked for."""

import sys

import pytest

import unweave as uw


def test_without_lightning_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "lightning"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "unweave.integrations.lightning", raising=False)
    monkeypatch.delitem(vars(uw.integrations), "lightning", raising=False)
    monkeypatch.setitem(sys.modules, "lightning", None)
    with pytest.raises(ImportError, match=r"pip install 'unweave\[lightning\]'.*uw\.integrations\.Watch"):
        _ = uw.integrations.lightning


def test_there_is_nothing_else_in_the_room() -> None:
    with pytest.raises(AttributeError, match="it has Watch, lightning"):
        _ = uw.integrations.nothing
