"""The report is one file that needs nothing else, and holds what the records say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from worldplan.errors import DataError, UsageError
from worldplan.evaluation import result, videos
from worldplan.evaluation.estimates import wilson
from worldplan.evaluation.ranking import rank
from worldplan.evaluation.report import html, inline, report
from worldplan.evaluation.validity import Validity, validate
from worldplan.types import Episode, EvalRecord

pytest.importorskip("matplotlib")
VOID = {"meta", "br", "img", "link", "input", "hr", "path", "use", "rect"}


def some(policy: str, wins: int, source: str = "real", task: str = "pusht", n: int = 10) -> list[EvalRecord]:
    model = "judge" if source == "model" else None
    meta = {"demanding": True, "seconds_per_decision": [0.25]}
    return [
        EvalRecord(task, policy, i, f"s{i}", source, float(i < wins), i < wins, 5, 0.1, model, meta)  # type: ignore[arg-type]
        for i in range(n)
    ]


RECORDS = [
    record
    for policy, wins, imagined in (("cem <b>&", 9, 8), ("cloning", 6, 7), ("random", 1, 1))
    for record in some(policy, wins) + some(policy, imagined, "model")
]


def _validity() -> Validity:
    def episode(source: str, wrong: int) -> Episode:
        frames = np.full((4, 8, 8, 3), 9, np.uint8) * np.arange(1, 5, dtype=np.uint8)[:, None, None, None]
        states = np.arange(4.0)[:, None]
        obs = {"pixels": frames + np.uint8(wrong), "state": states + wrong}
        meta = {"start": "s0", "source": source}
        return Episode(obs, states[1:], states[1:, 0], False, True, meta)

    return validate([episode("real", 0)], [episode("model", 1)])


def _full() -> str:
    ranking = rank(RECORDS, resamples=20)
    found = result.build(
        ranking=ranking,
        baselines={"nothing": wilson(0, 10)},
        protocol={"goal_offset": 25, "extra": {"held_out": True}},
        command="worldplan rank 'policies=[a,b]' <x>",
        notes=["A note of the run."],
    )
    clip = videos.clip("first start", np.zeros((3, 16, 16, 3), np.uint8), note="a note below")
    return html(
        RECORDS, result=found, validity=_validity(), videos=[clip], ranking=ranking, title="A <title>"
    )


class _Structure(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(str(value))
            if name in ("src", "href", "xlink:href", "action", "srcset", "poster"):
                self.addresses.append(str(value))

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag, tag


@pytest.fixture(scope="module")
def page() -> str:
    return _full()


def test_the_page_is_well_formed_and_ids_are_unique(page: str) -> None:
    structure = _Structure()
    structure.feed(page)
    assert structure.open == []
    assert len(structure.ids) == len(set(structure.ids))
    local = {address[1:] for address in structure.addresses if address.startswith("#")}
    assert local <= set(structure.ids)


def test_the_page_asks_for_nothing(page: str) -> None:
    structure = _Structure()
    structure.feed(page)
    assert all(address.startswith(("#", "data:")) for address in structure.addresses)
    assert all(found.startswith("#") for found in re.findall(r"url\(([^)]*)\)", page))
    assert "<script" not in page
    assert "@import" not in page
    assert "default-src 'none'" in page
    assert set(re.findall(r"https?://[^\"'\s]*", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_sections_come_in_order(page: str) -> None:
    order = ["This report supports", "It does not validate", "<h2>Success", "<h2>Ranking"]
    order += ["Agreement of judge", "How long imagination holds", "<h2>Videos", "<h2>Episodes"]
    order += ["<h2>Protocol", "Versions", "Command"]
    places = [page.index(heading) for heading in order]
    assert places == sorted(places)


def test_the_numbers_are_those_of_the_records(page: str) -> None:
    text = re.sub(r"<[^>]+>", " ", page)
    assert "9/10" in text
    assert "59.6–98.2" in text  # Wilson's interval of 9 of 10
    found = rank(RECORDS, resamples=20).agreement
    assert f"{found['pearson'].value:.3f}" in text
    assert "gaps taken from the real scores; a tie in the model charges the better policy" in text
    assert "nothing" in text
    assert "extra.held_out" in text
    assert "A note of the run." in text
    assert "250" in text  # milliseconds per decision


def test_names_are_escaped(page: str) -> None:
    assert "<b>&" not in page
    assert "cem &lt;b&gt;&amp;" in page
    assert "<title>A &lt;title&gt;</title>" in page


def test_the_same_records_give_the_same_page(page: str) -> None:
    assert page == _full()


def test_one_file_is_written(tmp_path: Path) -> None:
    path = report(RECORDS, tmp_path / "a b" / "ü.html")
    assert [file.name for file in path.parent.iterdir()] == ["ü.html"]
    assert path.read_text(encoding="utf-8").startswith("<!doctype html>")


@pytest.mark.parametrize(
    "records",
    [
        some("a", 5),
        some("a", 5, "model"),
        some("a", 5) + some("a", 5, "model"),
        [r for p in "abc" for r in some(p, 5) + some(p, 5, "model")],
        [EvalRecord("pusht", "a", 0, "s", "real", 0.0, None, 3, 0.0)],
        some("random", 5),
        some("a", 0) + some("b", 0),
    ],
    ids=["real", "model", "one policy", "constant", "unknown", "baseline", "zero"],
)
def test_little_is_enough(records: list[EvalRecord]) -> None:
    found = html(records)
    assert "nan" not in re.sub(r"<[^>]+>", " ", found).lower().split()
    assert "None" not in found
    structure = _Structure()
    structure.feed(found)
    assert structure.open == []


def test_several_tasks_have_their_own_sections() -> None:
    records = some("a", 5) + some("a", 4, task="reacher")
    found = html(records)
    assert "Success: pusht" in found
    assert "Success: reacher" in found
    structure = _Structure()
    structure.feed(found)
    assert len(structure.ids) == len(set(structure.ids))
    with pytest.raises(UsageError, match="name no task"):
        html(records + some("a", 4, task=""))


def test_wrong_input_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to report"):
        report([], tmp_path / "r.html")
    with pytest.raises(DataError, match="not a result"):
        report(RECORDS, tmp_path / "r.html", result={"success": 1})
    assert not list(tmp_path.iterdir())


def test_inlined_figures_follow_the_theme() -> None:
    svg = b'<?xml version="1.0"?><svg><metadata>x</metadata><g id="a" style="fill: #22262b"/>'
    found = inline(svg + b'<use xlink:href="#a" clip-path="url(#a)"/></svg>', "f")
    assert found == (
        '<svg><g id="f-a" style="fill: var(--ink)"/><use xlink:href="#f-a" clip-path="url(#f-a)"/></svg>'
    )


@pytest.fixture
def chromium() -> str:
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("no Chromium to open the report with")


_PROBE = """
<pre id="probe"></pre>
<script>
addEventListener("load", () => setTimeout(() => {
  const box = selector => [...document.querySelectorAll(selector)].map(e => e.getBoundingClientRect());
  document.getElementById("probe").textContent = JSON.stringify({
    requests: performance.getEntriesByType("resource").map(e => e.name).filter(n => !n.startsWith("data:")),
    overflow: document.documentElement.scrollWidth - innerWidth,
    figures: box("figure svg").map(b => [b.width, b.height]),
    videos: [...document.querySelectorAll("video")].map(v => v.readyState),
    ink: getComputedStyle(document.querySelector("figure svg text")).fill,
    paper: getComputedStyle(document.body).backgroundColor,
  });
}, 1000));
</script></body>
"""


def _open(chromium: str, page: Path, tmp_path: Path, *flags: str) -> str:
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update"]
    command += ["--disable-sync", "--virtual-time-budget=4000", f"--user-data-dir={tmp_path / 'profile'}"]
    command += [*flags, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.browser
@pytest.mark.sims
@pytest.mark.parametrize("dark", [False, True])
def test_a_browser_shows_it_without_the_network(page: str, chromium: str, tmp_path: Path, dark: bool) -> None:
    """Nothing is requested, nothing sticks out on a narrow screen, figures and videos are there."""
    path = tmp_path / "report.html"
    opened = page.replace("default-src 'none';", "default-src 'none'; script-src 'unsafe-inline';", 1)
    path.write_text(opened.replace("</body>", _PROBE), encoding="utf-8")
    flags = ["--dump-dom", "--window-size=500,900"]
    dom = _open(chromium, path, tmp_path, *flags, *(["--force-dark-mode"] if dark else []))
    probe = re.search(r'<pre id="probe">(.*?)</pre>', dom, re.DOTALL)
    assert probe, dom[-2000:]
    found = json.loads(probe[1].replace("&amp;", "&"))
    assert found["requests"] == []
    assert found["overflow"] <= 0
    assert len(found["figures"]) == 4
    assert all(width > 200 and height > 100 for width, height in found["figures"])
    assert len(found["videos"]) == page.count("<video")
    light = [int(value) for value in re.findall(r"\d+", found["paper"])[:3]]
    ink = [int(value) for value in re.findall(r"\d+", found["ink"])[:3]]
    assert (sum(light) < sum(ink)) is dark, (light, ink)


@pytest.mark.browser
@pytest.mark.sims
def test_a_browser_draws_it(page: str, chromium: str, tmp_path: Path) -> None:
    """The screenshot of the file as it is written, content policy and all, is neither empty nor flat."""
    from PIL import Image

    path, picture = tmp_path / "report.html", tmp_path / "shot.png"
    path.write_text(page, encoding="utf-8")
    _open(chromium, path, tmp_path, f"--screenshot={picture}", "--window-size=900,1500", "--hide-scrollbars")
    drawn = np.asarray(Image.open(picture).convert("RGB")).reshape(-1, 3)
    assert len(np.unique(drawn, axis=0)) > 100
    # the colour of real bars is a variable, which an inline style must have resolved
    assert (np.abs(drawn.astype(int) - (0xB4, 0x45, 0x1F)).sum(1) < 12).sum() > 20
