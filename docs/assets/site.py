"""What the site adds to the pages when it is built: formulas without a script, and the pages of what was measured.

Formulas, ``$…$`` and ``$$…$$``, become MathML, which every browser draws: no page fetches anything. Links that lead
out of ``docs`` in the repository (``../benchmarks/results/…``) lead to copies in the site.
"""

import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)
OUT = re.compile(r"(\]\()\.\./([^)#\s]+)")


def on_files(files: Files, config: Any) -> Files:
    """Put the pages of what was measured, and every file that a page links to, into the site."""
    for page in sorted((ROOT / "benchmarks" / "results").glob("*/README.md")):
        for part in sorted(page.parent.iterdir()):
            if part.suffix in (".md", ".png", ".svg", ".html", ".json"):
                _add(files, config, part)
    for page in sorted((ROOT / "docs").glob("*.md")):
        for link in OUT.findall(page.read_text(encoding="utf-8")):
            _add(files, config, ROOT / link[1])
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called by mkdocs with the text of every page."""
    if not page.file.src_uri.startswith("repository/"):
        markdown = OUT.sub(lambda m: f"{m[1]}{_place(m[2])}", markdown)
    else:
        markdown = re.sub(r"\]\((?:\.\./)+docs/", "](../../../../", markdown)
    parts = CODE.split(markdown)
    return "".join(part if i % 2 else _formulas(part) for i, part in enumerate(parts))


def _place(path: str) -> str:
    return f"repository/{path}"


def _add(files: Files, config: Any, path: Path) -> None:
    name = _place(path.resolve().relative_to(ROOT).as_posix())
    if path.is_file() and files.get_file_from_path(name) is None:
        files.append(File.generated(config, name, abs_src_path=str(path)))


def _formulas(text: str) -> str:
    text = re.sub(r"\$\$(.+?)\$\$", lambda m: convert(m[1].strip(), display="block"), text, flags=re.DOTALL)
    return re.sub(r"(?<![\\\w])\$([^$\n]+?)\$(?!\w)", lambda m: convert(m[1].strip()), text)
