"""The page in a real browser: no error, no sideways scrolling, sorting and pointing work, on a desk and on a phone."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from support.records import record, study

from paretune.harness.report.page import page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium binary")

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--hide-scrollbars", "--enable-logging=stderr"),
)

PROBE = """
<script>
addEventListener("load", function () {
  const table = document.querySelector("table.sortable");
  const heads = Array.from(table.tHead.rows[0].cells);
  const column = heads.findIndex((head) => head.textContent === "latency");
  const order = () => Array.from(table.tBodies[0].rows).map((row) => row.cells[column].dataset.value).join(" ");
  heads[column].querySelector("button").click();
  const up = order();
  heads[column].querySelector("button").click();
  const down = order();
  document.querySelector("svg .point").dispatchEvent(new MouseEvent("mouseenter"));
  const said = document.querySelector(".detail").textContent;
  const wide = document.documentElement.scrollWidth + " of " + innerWidth;
  parent.postMessage(JSON.stringify({ up: up, down: down, said: said, wide: wide }), "*");
});
</script>
"""


FRAME = """<!DOCTYPE html><body style="margin:0">
<iframe src="report.html" width="{width}" height="1500" frameborder="0"></iframe>
<script>addEventListener("message", (event) => {{ document.body.dataset.probe = event.data; }});</script></body>
"""
"""A browser window has a least width; a frame has none."""


def browse(tmp_path, width, *more):
    drawn = page([*study(), record("vae:x", latency_s=12.0)], budget="7GiB")
    (tmp_path / "report.html").write_text(drawn.replace("</body>", PROBE + "</body>"))
    file = tmp_path / "frame.html"
    file.write_text(FRAME.format(width=width))
    profile = tmp_path / f"profile{width}"
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},1600", *more, file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("width", [1280, 400])
def test_page_works_in_a_browser(tmp_path, width):
    dom = browse(tmp_path, width, "--dump-dom")
    found = re.search(r'data-probe="([^"]*)"', dom)
    assert found is not None
    told = found[1].replace("&quot;", '"')
    known = "2.0 2.1 3.0 4.0 12.0"
    assert f'"up":"{known}' in told
    assert f'"down":"{" ".join(reversed(known.split()))}' in told
    assert re.search(r'"said":"[^"]+needs [0-9.]+ GiB"', told)
    page_width, window = re.search(r'"wide":"([0-9]+) of ([0-9]+)"', told).groups()
    assert int(page_width) <= int(window) == width


@pytest.mark.parametrize("width", [1280, 400])
def test_page_is_drawn(tmp_path, width):
    picture = tmp_path / "page.png"
    browse(tmp_path, width, f"--screenshot={picture}")
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG") and int.from_bytes(data[16:20]) == width
    assert len(data) > 30_000
