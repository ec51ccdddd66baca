"""The picture of a report in the documentation: a GCN on Cora that was made to forget, on a desk and on a phone.

    python benchmarks/audit_report.py

trains the model, lets ``gif`` forget a tenth of the training nodes, audits it, and opens the report in Chromium
(``apt-get install chromium``; ``playwright`` is among the development tools). It writes docs/audit-report.png, in a
minute or two on two cores.
"""

import io
import os
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

import unweave as uw
from unweave.auditing import write_report

PICTURE = Path(__file__).parent.parent / "docs" / "audit-report.png"
HEIGHT, GAP, COLOURS = 1520, 24, 256
VIEWS = ((1104, "main"), (390, "main"), (390, "#test-membership-likelihood-ratio"))
"""Width of the window, and what stands at its top."""


def make_report(folder: Path) -> Path:
    """Train, forget and audit."""
    data = uw.load("cora", seed=0)
    model = uw.models.GCN(data.num_features, data.num_classes)
    before = uw.train(model, data, seed=0, epochs=100)
    after = before.forget(uw.draw("nodes:0.1", data, seed=0), "gif")
    found = uw.audit(before, after, jobs=os.cpu_count() or 1)
    print(found)
    return write_report(found, folder / "audit.html")


def photograph(page: Path) -> list[Image.Image]:
    """The report as it is seen."""
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    shots: list[Image.Image] = []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for width, first in VIEWS:
            tab = browser.new_page(viewport={"width": width, "height": HEIGHT})
            tab.goto(page.as_uri())
            box = tab.locator(first).bounding_box()
            top = 0.0 if box is None else max(0.0, box["y"] - 20)
            clip = {"x": 0.0, "y": top, "width": float(width), "height": float(HEIGHT)}
            shots.append(Image.open(io.BytesIO(tab.screenshot(full_page=True, clip=clip))))  # type: ignore[arg-type]
        browser.close()
    return shots


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        shots = photograph(make_report(Path(folder)))
    sheet = Image.new("RGB", (sum(shot.width for shot in shots) + GAP * (len(shots) - 1), HEIGHT), "#c9ccd1")
    left = 0
    for shot in shots:
        sheet.paste(shot, (left, 0))
        left += shot.width + GAP
    sheet.quantize(COLOURS, Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(f"{PICTURE}: {PICTURE.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
