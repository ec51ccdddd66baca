"""Turn ``$…$`` and ``$$…$$`` of a page into MathML when the site is built, so that no page fetches a script."""

import re
from typing import Any

from latex2mathml.converter import convert

CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    parts = CODE.split(markdown)
    return "".join(part if i % 2 else _converted(part) for i, part in enumerate(parts))


def _converted(text: str) -> str:
    text = re.sub(r"\$\$(.+?)\$\$", lambda m: convert(m[1].strip(), display="block"), text, flags=re.DOTALL)
    return re.sub(r"(?<![\\\w])\$([^$\n]+?)\$(?!\w)", lambda m: convert(m[1].strip()), text)
