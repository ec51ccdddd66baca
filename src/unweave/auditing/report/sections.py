"""The parts of a report beside its tests, one function each, in the order of the page."""

import json

from unweave.auditing.audit import Audit
from unweave.auditing.numbers import duration, number, spread
from unweave.auditing.report.figures import icon
from unweave.auditing.report.markup import Markup, tag
from unweave.auditing.report.pieces import anchor, fact_list, listed, model_of, scrolled, section, shown, slug
from unweave.auditing.report.words import explain_recovery, list_limits
from unweave.auditing.words import FINDINGS, sentence
from unweave.receipt.lines import describe_removed
from unweave.receipt.receipt import Receipt
from unweave.training.agreement import in_words

__all__ = ["classes", "limits", "made", "paper", "request", "title", "verdict"]

CLAIMS = ("Verdict", "Because", "Warning", "Method", "Certified")
"""Lines of a receipt in which the method speaks of itself."""


def title(audit: Audit) -> str:
    """The title of the page."""
    return f"{audit.headline} – audit of {model_of(audit)}"


def verdict(audit: Audit) -> Markup:
    """The conclusion, with the tests that it rests on."""
    told = [entry for entry in audit.evidence if entry.finding in ("remembers", "differs")]
    reasons = [
        tag(
            "li",
            tag("a", shown(entry), href=f"#{anchor(entry)}"),
            f": {FINDINGS[entry.finding]}",
        )
        for entry in sorted(told, key=lambda entry: entry.finding != "remembers")
    ]
    return tag(
        "section",
        tag("p", f"Audit of forgetting: {model_of(audit)}, {audit.request.describe()}", class_="eyebrow"),
        tag("h1", icon(audit.verdict), tag("span", audit.headline)),
        tag("p", audit.reason, class_="lead"),
        *([tag("ul", *reasons, class_="reasons")] if reasons else []),
        tag("p", "What this cannot say stands ", tag("a", "below", href="#limits"), ".", class_="small soft"),
        class_=f"verdict {slug(audit.verdict)}",
    )


def request(audit: Audit) -> Markup:
    """What was to be forgotten, and what the method says of itself."""
    config = audit.config
    facts = [
        ("Request", f"{audit.request.describe()} (digest {audit.request.digest[:12]})"),
        ("Removed from the graph", describe_removed(config["removed"])),
        ("Model", model_of(audit)),
    ]
    if config["nodes"]:
        facts.append(("Nodes in question", f"{config['nodes']} trained on, against {config['held_out']} held out"))
    if config["edges"]:
        facts.append(("Edges in question", f"{config['edges']} deleted, against {config['pairs']} pairs without one"))
    claims: list[Markup] = []
    if audit.receipt is None:
        claims.append(tag("p", "There is no receipt: what was done to the model is not known here.", class_="soft"))
    else:
        if audit.receipt.request_digest != audit.request.digest:
            claims.append(tag("p", "Of several requests, the receipt is that of the last; the audit is of them all."))
        said = [(name, text) for name, text in _lines(audit.receipt) if name in CLAIMS]
        claims += [tag("h3", "What the receipt says of itself"), listed(said)]
    return section("What was asked", "asked", fact_list(facts), *claims)


def classes(audit: Audit) -> list[Markup]:
    """F1 of each class, and whether forgetting won a score back."""
    told = explain_recovery(audit)
    found = [tag("p", told)] if told else []
    if any(audit.classes.get("before", [])):
        (before,), (after,), retrained = (audit.classes[key] for key in ("before", "after", "retrained"))
        rows = [
            tag(
                "tr",
                tag("th", str(label), scope="row"),
                *(
                    tag("td", text)
                    for text in (
                        number(before[label], "F1"),
                        number(after[label], "F1"),
                        spread([scores[label] for scores in retrained], "F1"),
                    )
                ),
            )
            for label in before
        ]
        heads = ("Class", "Before", "After", "Retrained")
        table = tag(
            "table",
            tag("caption", "F1 of each class on the test nodes; retrained: mean ± standard deviation."),
            tag("thead", tag("tr", *(tag("th", head, scope="col") for head in heads))),
            tag("tbody", *rows),
        )
        found.append(scrolled(table, "F1 by class"))
    return [section("Scores", "scores", *found)] if found else []


def limits(audit: Audit, models: str | None) -> Markup:
    """What the audit cannot say."""
    found = [tag("li", text) for text in list_limits(audit, models)]
    kept = [] if audit.receipt is None else [t for t in audit.receipt.remembers if t["state"] == "kept"]
    parts = [tag("ul", *found)]
    if kept:
        parts.append(tag("p", "Beside the model, by its receipt, these still remember:"))
        parts.append(tag("ul", *(tag("li", sentence(f"{t['what']} ({t['where']}): {t['why']}")) for t in kept)))
    return section("What this audit cannot say", "limits", *parts)


def made(audit: Audit, command: str | None) -> Markup:
    """How the audit was made, and how to make it again."""
    config, here = audit.config, audit.environment
    total = config["retrained"] + config["trained"] + config["shadows"]
    recipe, trainer = config["recipe"], config["trainer"]
    facts = [
        (
            "Models trained to compare with",
            f"{total}: {config['retrained']} without the deleted data, {config['trained']} with it, "
            f"{config['shadows']} shadow models that saw a random half",
        ),
        ("Seed", str(config["seed"])),
        ("Agreement of seeds", f"{config['agreement']:.2f} of 1; {in_words(config['agreement'])}"),
        ("Took", duration(audit.seconds)),
        ("Training", f"by {trainer}" if trainer else _recipe(recipe)),
        ("Versions", ", ".join(f"{k} {here[k]}" for k in ("python", "torch", "torch_geometric", "numpy", "scipy"))),
        ("Device", f"{here['device']} ({here['device_name']})"),
    ]
    parts = [fact_list(facts)]
    if command is not None:
        parts.append(tag("p", "The same figures as JSON: ", tag("code", command)))
    document = audit.to_dict() | {"receipt": None}
    numbers = tag(
        "details",
        tag("summary", "Every figure of this page as JSON"),
        tag("pre", json.dumps(document, allow_nan=False)),
    )
    return section("How it was made", "made", *parts, numbers)


def _recipe(recipe: dict[str, object]) -> str:
    told = {key: value for key, value in recipe.items() if value is not None and value is not False and key != "seed"}
    return ", ".join(key if value is True else f"{key} {value}" for key, value in told.items()).replace("_", " ")


def paper(audit: Audit) -> list[Markup]:
    """The receipt in full."""
    if audit.receipt is None:
        return []
    words = tag("details", tag("summary", "The receipt in words"), listed(_lines(audit.receipt)), class_="printed")
    document = json.dumps(audit.receipt.to_dict(), indent=1, allow_nan=False)
    return [
        section(
            "Receipt", "receipt", words, tag("details", tag("summary", "The receipt as JSON"), tag("pre", document))
        )
    ]


def _lines(receipt: Receipt) -> list[tuple[str, str]]:
    """A receipt as people read it: titles and what stands behind them; a line without title goes on the one before."""
    found: list[tuple[str, str]] = []
    for name, text in receipt.lines():
        if name or not found:
            found.append((name, text))
        else:
            found[-1] = (found[-1][0], f"{found[-1][1]} {text}")
    return found
