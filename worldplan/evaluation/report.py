"""The report: one HTML file that opens anywhere, computed from records and nothing else.

Pictures and videos are inside the file, there is no script, and its content policy forbids every
request. The same records give the same file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from worldplan.errors import UsageError
from worldplan.evaluation import figures, files
from worldplan.evaluation.claims import Claims, claims
from worldplan.evaluation.ranking import Ranking, rank
from worldplan.evaluation.result import check, to_estimate
from worldplan.evaluation.sections import Episodes, Success, episodes, successes
from worldplan.evaluation.validity import Validity
from worldplan.evaluation.videos import Clip
from worldplan.types import Estimate, EvalRecord

# rows of the agreement table: key, label, in percent of success, definition
_MEASURES = (
    ("pearson", "Pearson r", False, "linear correlation of the two scores (r, not r²)"),
    ("spearman", "Spearman ρ", False, "Pearson r of the ranks; ties share their mean rank"),
    ("kendall", "Kendall τ-b", False, "share of pairs in the same order minus share in the opposite"),
    ("mmrv", "MMRV", True, ""),
    ("pairwise_accuracy", "Pairs in order", False, "of pairs that really differ; ties in the model count ½"),
    ("regret_at_1", "Regret, best 1", True, "real score lost by taking the model's first choice"),
    ("regret_at_3", "Regret, best 3", True, "real score lost by taking the best of the model's first three"),
    ("precision_at_1", "Overlap, best 1", False, "whether both name the same best policy"),
    ("precision_at_3", "Overlap, best 3", False, "share of the model's best three among the real best three"),
    ("mean_absolute_error", "Mean absolute error", True, "mean distance of the two scores"),
    ("bias", "Bias", True, "mean of model minus real; above 0 the model is optimistic"),
    ("slope", "Slope", False, "of the line that predicts the real score from the model's; 1 if calibrated"),
    ("intercept", "Intercept", True, "of the same line; 0 if calibrated"),
    ("permutation_p", "Permutation p", False, "how often shuffled policies correlate at least as well"),
)
_TIES = {
    "simpler": "a tie in the model charges the better policy (comparison with >)",
    "paper": "a tie in the model charges the worse policy (comparison with <)",
    "both": "a tie in the model charges both policies",
    "exclude": "a tie in the model charges nobody",
}


@dataclass(frozen=True)
class Measure:
    """A row of the agreement table."""

    label: str
    estimate: Estimate
    without: Estimate | None
    style: str
    definition: str


@dataclass(frozen=True)
class TaskSection:
    """What a report shows of one task; figures are inline SVG."""

    name: str
    claims: Claims
    ranking: Ranking
    success: Sequence[Success]
    bars: str
    measures: Mapping[str, Sequence[Measure]]
    scatter: str
    episodes: Sequence[Episodes]


def report(
    records: Iterable[EvalRecord],
    out: str | os.PathLike[str],
    *,
    result: Mapping[str, Any] | None = None,
    validity: Validity | None = None,
    videos: Sequence[Clip] = (),
    ranking: Ranking | None = None,
    real_name: str = "simulator",
    title: str = "Policy evaluation",
) -> Path:
    """Writes the report as one self-contained HTML file; see `html`."""
    page = html(
        records,
        result=result,
        validity=validity,
        videos=videos,
        ranking=ranking,
        real_name=real_name,
        title=title,
    )
    return files.write_text(out, page)


def html(
    records: Iterable[EvalRecord],
    *,
    result: Mapping[str, Any] | None = None,
    validity: Validity | None = None,
    videos: Sequence[Clip] = (),
    ranking: Ranking | None = None,
    real_name: str = "simulator",
    title: str = "Policy evaluation",
) -> str:
    """The report as text, a pure function of its arguments.

    Args:
        records: episodes of one task or several, real, imagined or both. A policy named as one of the
            baselines, or with ``meta["baseline"]``, stands apart; ``meta["demanding"]`` splits starts.
        result: of the same run: baselines the records lack, protocol, versions, command and notes.
        validity: curves by step.
        videos: clips, in order.
        ranking: already computed from the same records, if there is one task; else computed here.
        real_name: what reality is: ``"simulator"``, or ``"robot"``.
        title: heading.

    Raises:
        UsageError: there are no records.
        DataError: the result does not fit its schema.
        MissingExtra: matplotlib is not installed.
    """
    known = list(records)
    if not known:
        raise UsageError("there is nothing to report", expected="at least one record", found="none")
    if result is not None:
        check(result)
    names = sorted({record.task for record in known} - {""}) or [""]
    parts = {name: [r for r in known if r.task == name or (len(names) == 1)] for name in names}
    loose = [record for record in known if record.task == "" and len(names) > 1]
    if loose:
        raise UsageError(
            f"{len(loose)} records name no task, and there are several",
            expected=f"one of: {', '.join(names)}",
        )
    baselines = {}
    if result is not None and len(names) == 1:
        for name, value in result["baselines"].items():
            if (estimate := to_estimate(value)) is not None:
                baselines[name] = estimate
    given = ranking if len(names) == 1 else None
    tasks = [_task(name, part, baselines, given, real_name) for name, part in parts.items()]
    return _page(
        title=title,
        real_name=real_name,
        tasks=tasks,
        curves=_curves(validity),
        validity=validity,
        videos=list(videos),
        result=result,
        protocol=_flat(result["protocol"]) if result else [],
        notes=[n for n in result["notes"] if all(n not in t.ranking.notes for t in tasks)] if result else [],
        policies=len({record.policy for record in known}),
        count=len(known),
    )


def inline(svg: bytes, name: str) -> str:
    """An SVG as part of a page: ids of its own, and colours that follow the page's theme."""
    text = svg.decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    text = re.sub(r"font-family: [^;\"]*", "font-family: inherit", text)
    text = re.sub(r"font: ([\d.]+px) [^;\"]*", r"font-size: \1; font-family: inherit", text)
    for variable, colour in figures.PALETTE.items():
        text = text.replace(colour, f"var(--{variable})")
    return text


def _task(
    name: str,
    records: Sequence[EvalRecord],
    baselines: Mapping[str, Estimate],
    ranking: Ranking | None,
    real_name: str,
) -> TaskSection:
    ranked = ranking or rank(records)
    rows = successes(records, real_name, baselines)
    identity = re.sub(r"\W", "-", f"fig-{name}")
    bars = [figures.Bar(row.policy, row.all, row.kind) for row in rows if not row.self_score]
    kinds: dict[figures.Kind, str] = {"real": real_name, "imagined": "model"}
    measures = {model: _measures(ranked, found) for model, found in ranked.by_model.items()}
    order = sorted(measures, key=lambda model: (model != ranked.model, model))
    return TaskSection(
        name,
        claims(records, ranked, real_name),
        ranked,
        rows,
        inline(figures.success_bars(bars, names=kinds), f"{identity}-bars") if bars else "",
        {model: measures[model] for model in order},
        _scatter(ranked, real_name, f"{identity}-scatter"),
        episodes(records, real_name),
    )


def _scatter(ranking: Ranking, real_name: str, name: str) -> str:
    points = [
        figures.Point(str(number), row.real, row.imagined, row.self_score)
        for number, row in enumerate(ranking.rows, start=1)
        if row.real and row.imagined and (row.model == ranking.model or row.self_score)
    ]
    if not points:
        return ""
    drawn = figures.scatter(points, real_name=f"the {real_name}", rate=ranking.score == "success")
    return inline(drawn, name)


def _measures(ranking: Ranking, agreement: Mapping[str, Estimate]) -> list[Measure]:
    rows = []
    for key, label, percent, definition in _MEASURES:
        if key in agreement:
            if key == "mmrv":
                definition = (
                    "mean over policies of the largest score gap they are ranked wrongly across; "
                    f"gaps taken from the {ranking.weight_by} scores; {_TIES[ranking.ties]}"
                )
            without = agreement.get(f"{key}_leave_one_out")
            style = "percent" if percent and ranking.score == "success" else "plain"
            rows.append(Measure(label, agreement[key], without, style, definition))
    return rows


def _curves(validity: Validity | None) -> list[str]:
    if validity is None:
        return []
    found = []
    for index, (key, curve) in enumerate(validity.curves.items()):
        if not key.endswith("_copy"):
            label = "frame PSNR" if key == "psnr" else key.replace("_", " ")
            drawn = figures.by_step(curve, validity.curves.get(f"{key}_copy"), name=label)
            found.append(inline(drawn, f"fig-validity-{index}"))
    return found


def _flat(values: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    rows: list[tuple[str, Any]] = []
    for key, value in values.items():
        rows += _flat(value, f"{path}{key}.") if isinstance(value, Mapping) else [(f"{path}{key}", value)]
    return rows


def _page(**context: Any) -> str:
    import jinja2

    source = resources.files("worldplan.evaluation").joinpath("report.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters.update(number=_number, interval=_interval, count=_count)
    return environment.from_string(source).render(**context, palette=figures.PALETTE)


def _digits(value: float | None, style: str, signed: bool = False) -> str:
    if value is None:
        return "–"
    if style == "plain" and value and abs(value) < 0.0005:
        return "< 0.001" if value > 0 else "> \N{MINUS SIGN}0.001"
    sign = "+" if signed and value else ""
    number = value * {"percent": 100, "milliseconds": 1000}.get(style, 1)
    form = {"percent": ".1f", "plain": ".3f"}.get(style, ",.0f" if abs(number) >= 100 else "#.3g")
    return format(number, sign + form).replace("-", "\N{MINUS SIGN}")


def _number(estimate: Estimate | None, style: str = "percent", signed: bool = False) -> str:
    return "–" if estimate is None else _digits(estimate.value, style, signed)


def _interval(estimate: Estimate | None, style: str = "percent", signed: bool = False) -> str:
    if estimate is None or (estimate.low is None and estimate.high is None):
        return ""
    if estimate.low is None or estimate.high is None:
        end = "from" if estimate.high is None else "up to"
        return f"{end} {_digits(estimate.low if estimate.high is None else estimate.high, style, signed)}"
    join = " to " if estimate.low < 0 or signed else "\N{EN DASH}"
    return f"{_digits(estimate.low, style, signed)}{join}{_digits(estimate.high, style, signed)}"


def _count(estimate: Estimate | None) -> str:
    if estimate is None or estimate.value is None:
        return ""
    return f"{round(estimate.value * estimate.n)}/{estimate.n}"
