"""The report of an audit: what it says, that its numbers are those of the audit, and that it is one safe file."""

import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.audits import VERDICTS, entry, made_audit, receipt
from unweave.auditing import Audit, Evidence, write_report
from unweave.auditing.after.carried import Carried
from unweave.auditing.numbers import duration, effect, interval, number, spread
from unweave.auditing.report.markup import VOID, Markup, join, tag
from unweave.auditing.report.page import render_report
from unweave.auditing.report.words import explain_recovery
from unweave.auditing.words import FINDINGS, answer
from unweave.errors import UnweaveError


class Page(HTMLParser):
    """A page taken apart; elements that are not closed, or closed out of turn, are refused."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[str] = []
        self.documents: list[dict[str, object]] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" in self.open or "title" in self.open:
            return
        if "pre" in self.open:
            self.documents.append(json.loads(data))
            return
        self.text += data + " "
        if "tr" in self.open:
            self.rows[-1] += data + " "

    def values(self, attribute: str) -> list[str]:
        return [str(found[attribute]) for _, found in self.elements if attribute in found]

    def row(self, name: str) -> str:
        (found,) = [row for row in self.rows if row.lower().startswith(name.lower())]
        return found

    def both(self, name: str) -> list[str]:
        """What a test found, and its figures."""
        return [row for row in self.rows if row.lower().startswith(name.lower())]


def page(audit: Audit, **options: str) -> Page:
    return Page(render_report(audit, **options))


@pytest.mark.parametrize("verdict", VERDICTS)
def test_the_verdict_comes_first_in_words_and_by_a_sign(verdict: str) -> None:
    found = made_audit(verdict)
    shown = page(found)
    headline = {
        "remembers": "Not gone", "differs": "Not what retraining gives", "gone": "Gone, as far as these tests can see",
        "cannot tell": "These tests cannot tell",
    }[verdict]  # fmt: skip
    names = [name for name, _ in shown.elements]
    assert names.index("h1") < names.index("h2") < names.index("table")
    assert found.headline == headline
    assert shown.text.index(headline) < shown.text.index(found.reason) < shown.text.index("What was asked")
    assert str(found).startswith(f"{headline}. {found.reason}\n"), "the same words in Python and on the command line"
    assert f"verdict {verdict.replace(' ', '-')}" in shown.values("class")
    signs = [attributes.get("class") for name, attributes in shown.elements if name == "svg"]
    assert signs[0] == "icon"
    assert names.count("article") == len(found.evidence)


def test_every_test_is_told_in_a_sentence_before_any_figure() -> None:
    found = made_audit()
    shown, told = page(found).text, str(found)
    for text in (shown, told):
        figures = text.index("The figures")
        for e in found.evidence:
            assert text.index(f"{e.question} ") < text.index(answer(e)) < figures
        for word in ("seed floor", "AUC", "no power"):
            assert word not in text[:figures]


def test_every_test_has_its_question_its_threat_its_power_and_a_figure() -> None:
    found = made_audit()
    shown = page(found)
    for e in found.evidence:
        assert shown.text.count(e.question) == 2
        assert e.threat[1:] in shown.text
    assert (
        "Would have noticed 8 of 8 models that saw the data, and most that remember 34\N{NO-BREAK SPACE}% of it."
        in shown.text
    )
    assert "No: it would have noticed 0 of 8 models that saw the data." in shown.text
    assert "asks what else the model does" in shown.text
    assert "notices what gives away more than retraining does" in shown.text
    figures = [attributes for name, attributes in shown.elements if attributes.get("role") == "img"]
    assert len(figures) == 2 * len(found.evidence) + 1, "one in the table and one in the panel of each, and the axis"
    titles = [name for name, _ in shown.elements if name == "title"]
    assert len(titles) == len(figures) + 1
    for group in ("Deleted nodes", "Deleted edges", "Both models side by side", "What else changed"):
        assert group in shown.text


def test_the_numbers_are_those_of_the_audit() -> None:
    found = made_audit()
    shown = page(found)
    first, second = found.evidence[:2]
    answered, row = shown.both(first.name)
    low, high = first.usual
    for told in ("0.710", "0.680", f"{low:.3f}", f"{high:.3f}", f"{first.effect:+.1f}", "8 of 8"):
        assert told in row
    assert f"{100 * first.noticeable:.0f}\N{NO-BREAK SPACE}%" in row  # type: ignore[operator]
    assert "still remembers" in answered
    answered, row = shown.both(second.name)
    assert "cannot tell" in answered
    assert "0 of 8" in row
    assert "95 % interval 0.620\N{NO-BREAK SPACE}…\N{NO-BREAK SPACE}0.740" in shown.text
    assert "TPR at 1 % FPR" in shown.text
    assert "0.068" in shown.text
    assert "0.815\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}0.024" in shown.row("0")
    assert "100 min" not in shown.text
    assert "2 min" in shown.text


@pytest.mark.parametrize(
    ("found", "finding", "says"),
    [
        (entry("one", 0.70), "remembers", "as with models that saw the data"),
        (entry("one", 0.51), "as retrained", "this test would have shown it"),
        (entry("one", 0.30), "differs", "pushed away rather than left out"),
        (entry("one", 0.70, shift=0.0), "differs", "something was done to it that retraining does not do"),
        (entry("one", 0.51, shift=0.0), "no power", "would have found the same had nothing been done"),
        (entry("one", 0.40, shift=-0.2, side="above"), "as retrained", "No more so than retraining"),
        (entry("one", 0.70, shift=-0.2, side="above"), "differs", "Yes, more so than retraining"),
        (entry("one", 0.51, asks="else"), "as retrained", "Yes, as far as retrained models agree"),
        (entry("one", 0.70, asks="else"), "differs", "No: no retrained model would be expected"),
    ],
)
def test_every_finding_in_words(found: Evidence, finding: str, says: str) -> None:
    assert found.finding == finding
    assert says in answer(found)
    shown = page(made_audit(evidence=(found,)))
    assert says in shown.text
    assert FINDINGS[finding] in shown.both("one")[0]


def test_a_group_that_is_not_known_is_shown_under_its_own_name() -> None:
    found = made_audit(evidence=(entry("backdoor", 0.7, group="poison"),))
    assert "Poison" in page(found).text


def test_limits_and_what_was_left_out_are_said() -> None:
    config = made_audit().config | {"quick": True, "left_out": "the strongest attacks", "shadows": 0}
    told = page(made_audit(config=config), models="here/audit.models", command="unweave audit a b --json").text
    for words in (
        "left out the strongest attacks",
        "8 of those in here/audit.models were trained with deleted data",
        "unweave audit a b --json",
        "in about 5\N{NO-BREAK SPACE}% of audits",
        "each allows 1.0\N{NO-BREAK SPACE}%",
        "3 nodes of the request were not trained on; they are left out.".capitalize(),
        "these still remember",
    ):
        assert words in told
    alone = page(made_audit(), models=None).text
    assert "models that remember" not in alone
    assert "quick audit" not in alone.lower()


def test_a_receipt_is_there_in_full_or_its_absence_is_said() -> None:
    shown = page(made_audit())
    assert "What the receipt says of itself" in shown.text
    for name, text in receipt().lines():
        assert f"{name} {text}" in shown.text
    figures, whole = shown.documents
    assert figures == json.loads(made_audit().to_json()) | {"receipt": None}
    assert whole == json.loads(receipt().to_json())
    assert "Of several requests" in shown.text
    without = page(made_audit(receipt=None)).text
    assert "There is no receipt" in without
    assert "The receipt in words" not in without


def test_a_score_that_was_won_back() -> None:
    assert "50\N{NO-BREAK SPACE}% of what it cost came back" in str(explain_recovery(made_audit()))
    scores = made_audit().recovery
    assert "no score to win back" in str(explain_recovery(made_audit(recovery=scores | {"before": [0.80]})))
    nothing: dict[str, list[float]] = {"before": [], "after": [], "retrained": []}
    bare = made_audit(recovery=nothing, classes={"before": [{}], "after": [{}], "retrained": [{}] * 8})
    assert explain_recovery(bare) is None
    assert "Scores" not in page(bare).text


def test_what_comes_from_outside_is_escaped() -> None:
    evil = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;"
    found = made_audit(
        config=made_audit().config | {"data": evil, "model": evil},
        evidence=(replace(entry("one", 0.7), name=evil, question=evil, threat=evil, unit=evil, group=evil),),
        notes=(evil,),
        receipt=replace(receipt(), warnings=[evil], method={"name": evil}),
    )
    shown = page(found, models=evil, command=evil)
    assert not {"script", "img"} & {name for name, _ in shown.elements}
    assert not [key for _, attributes in shown.elements for key in attributes if key.startswith("on")]
    assert shown.text.count(evil) >= 8


@pytest.mark.parametrize("verdict", VERDICTS)
def test_nothing_is_loaded_and_every_link_leads_somewhere(verdict: str) -> None:
    text = render_report(made_audit(verdict))
    shown = Page(text)
    ids = shown.values("id")
    assert len(ids) == len(set(ids))
    for target in shown.values("href"):
        assert target == "data:," or target.removeprefix("#") in ids
    assert not shown.values("src")
    assert not shown.values("style")
    (style,) = re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)
    assert "url(" not in style
    assert "@import" not in style
    assert "default-src 'none'" in shown.values("content")[0]
    assert "lang" in dict(shown.elements)["html"]


def test_it_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "audit.html"
    assert write_report(made_audit(), path) == path
    before = path.read_bytes()
    assert before.startswith(b"<!doctype html>")
    umask = os.umask(0)
    os.umask(umask)
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask

    def fails(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "replace", fails)
    with pytest.raises(UnweaveError, match="no space left"):
        write_report(made_audit("gone"), path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_models_that_agree_to_the_last_digit() -> None:
    alike = entry("alike", 0.5, retrained=[0.5] * 8)
    flat = replace(alike, before=alike.retrained[0], after=alike.retrained[0], trained=alike.retrained)
    shown = page(made_audit(evidence=(alike, flat)))
    assert shown.text.count("agree to the last digit") == 2
    assert "nan" not in shown.text.lower().replace("nanc", "")
    assert not re.search(r"nan|inf", " ".join(shown.values("x") + shown.values("cx")))


def test_words_and_numbers() -> None:
    assert number(0.12345, "AUC") == "0.123"
    assert number(-0.000012345, "nats") == "−1.23e−05"
    assert number(3.0, "epochs") == "3.0"
    assert effect(None) == "–"
    assert effect(-3.14) == "−3.1"
    assert effect(-0.01) == "0.0"
    assert effect(-2e6) == "below −1000"
    assert interval(None, 0.5, "AUC") == "up to\N{NO-BREAK SPACE}0.500"
    assert spread([0.01, 0.012, 0.014]).split() == ["0.0120", "±", "0.0020"]
    assert spread([1.0, 1.0]).split() == ["1", "±", "0"]
    assert [duration(s) for s in (8.4, 600, 9000)] == ["8 s", "10 min", "2.5 h"]


def test_text_is_escaped_and_markup_is_not() -> None:
    assert tag("p", "a < b", Markup("<b>c</b>"), class_="x", data_label='"') == (
        '<p class="x" data-label="&quot;">a &lt; b<b>c</b></p>'
    )
    assert tag("meta", name="n") == '<meta name="n">'
    assert join(["<", Markup("<")]) == "&lt;<"


def test_where_no_test_can_tell_that_none_finds_it_is_not_said() -> None:
    """A test without power can find that a model differs; that no other finds the data then means nothing."""
    weak = (entry("membership, loss threshold", 0.9, shift=0.0),)
    assert "No test here is able to find the deleted data" in made_audit(evidence=weak).reason
    assert "No test that can tell finds the deleted data" in made_audit("differs").reason
    alone = (entry("membership, loss threshold", 0.68),)
    assert made_audit(evidence=alone).reason.startswith("The one test that can tell still takes")


def test_what_the_model_carries_unseen_is_said_first_and_last() -> None:
    """A model with more in it than the one before is not called gone, and one that holds its weights is not."""
    more, old = "it has a buffer 'spare' of shape [16, 20]", "the old weights of 'conv1' in the buffer 'spare'"
    found = made_audit("gone", carried=Carried(more=(more,)), notes=tuple(Carried(more=(more,)).notes))
    assert found.verdict == "cannot tell"
    held = made_audit("gone", carried=Carried(more=(more,), old=(old,)), notes=tuple(Carried(old=(old,)).notes))
    assert held.verdict == "remembers"
    for audit, words in ((found, more), (held, old)):
        assert words in audit.reason
        assert words in str(audit)
        text = page(audit).text
        assert text.index(words) < text.index("What was asked")
        assert words in text[text.index("What this audit cannot say") :]
        assert words in str(audit.to_dict()["carried"])
    assert made_audit("differs", carried=Carried(more=(more,))).verdict == "differs"


def test_how_much_could_have_been_left_is_said() -> None:
    found = made_audit("gone")
    assert found.noticeable == min(e.noticeable for e in found.evidence if e.noticeable is not None)
    words = f"still remembered up to about {100 * found.noticeable:.0f}\N{NO-BREAK SPACE}% of the deleted data"
    assert words in found.reason
    text = page(found).text
    assert words in text[text.index("What this audit cannot say") :]
    assert made_audit("cannot tell").noticeable is None
