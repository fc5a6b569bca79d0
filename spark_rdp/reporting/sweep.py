"""Error against budget: a table and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spark_rdp.errors import JobFailed, invalid
from spark_rdp.planning.plan import Plan
from spark_rdp.reporting.words import against, metric_label, metric_value, plain, ranked

#: Kinds of picture, by the end of the file's name.
PICTURES = (".png", ".svg")
#: Rivals drawn at most, and how far apart, relatively, two curves lie somewhere that can be told apart.
MOST_RIVALS, SAME = 6, 0.1


def sweep_table(plans: Sequence[Plan]) -> RenderableType:
    """One row for each epsilon: the best mechanism, its metric value, and the next best."""
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0))
    table.add_column("epsilon", justify="right")
    table.add_column("mechanism")
    table.add_column(metric_label(plans[0].metric), justify="right")
    table.add_column("next best")
    for plan in plans:
        others = [(name, value) for name, value in ranked(plan) if name != plan.mechanism and value is not None]
        rival = f"{others[0][0]}: {against(plan.metric, others[0][1], plan.metric_value)}" if others else "–"
        table.add_row(plain(plan.epsilon), plan.mechanism, metric_value(plan.metric, plan.metric_value), rival)
    return Group(Text(f"{metric_label(plans[0].metric)} against epsilon", style="bold"), Text(), table)


def check_picture(target: Path) -> None:
    """Refuse a file that no picture can be written to."""
    if target.suffix.lower() not in PICTURES:
        raise invalid("--out", f"a file that ends in {' or '.join(PICTURES)}", str(target), "Rename it.")
    if not target.parent.is_dir():
        raise invalid("--out", "in a folder that exists", str(target), "Make the folder first.")


def draw(plans: Sequence[Plan], target: Path) -> None:
    """Draw the metric value against epsilon, for the plans and for what they were compared with.

    Raises:
        JobFailed: The file cannot be written.
    """
    from spark_rdp.reporting.picture import CHOSEN, RIVALS, canvas, short, ticks

    label = metric_label(plans[0].metric)
    names = dict.fromkeys(plan.mechanism for plan in plans)
    chosen = f"{next(iter(names))} (chosen)" if len(names) == 1 else "the best"
    with canvas((6.4, 4.0), "sweep", f"{label} against epsilon") as drawing:
        (axes,) = drawing.axes()
        for (name, curve), (colour, dashes) in zip(_rivals(plans).items(), RIVALS, strict=False):
            axes.plot(list(curve), list(curve.values()), label=name, color=colour, linestyle=dashes, linewidth=1.6)
        best = _curve(plans, None)
        axes.plot(list(best), list(best.values()), label=chosen, color=CHOSEN, linewidth=2.2)
        axes.set_xscale("log")
        ticks(axes.xaxis, 6, logarithmic=True)
        if plans[0].higher_is_better:
            axes.set_ylim(0, 1)
        else:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(lambda tick, _: short(tick))
        axes.set_xlabel("epsilon")
        axes.set_ylabel(label)
        axes.legend(frameon=False)
        try:
            drawing.figure.savefig(target, format=target.suffix[1:].lower(), dpi=150)
        except OSError as failure:
            raise JobFailed(f"The picture {target} could not be written ({failure.strerror}). Try again.") from None


def _curve(plans: Sequence[Plan], name: str | None) -> dict[float, float]:
    """Metric value by epsilon, of one mechanism, or of the chosen ones."""
    values = {plan.epsilon: plan.metric_value if name is None else plan.alternatives.get(name) for plan in plans}
    return {epsilon: value for epsilon, value in values.items() if value is not None}


def _rivals(plans: Sequence[Plan]) -> dict[str, dict[float, float]]:
    """The curves worth drawing beside the best: those that a reader can tell from it and from each other."""
    drawn = {"": _curve(plans, None)}
    for name in dict.fromkeys(name for plan in plans for name in plan.alternatives):
        curve = _curve(plans, name)
        if curve and not any(_alike(curve, other) for other in drawn.values()):
            drawn[name] = curve
    return dict(list(drawn.items())[1 : MOST_RIVALS + 1])


def _alike(curve: dict[float, float], other: dict[float, float]) -> bool:
    shared = curve.keys() & other.keys()
    return bool(shared) and all(abs(curve[e] - other[e]) <= SAME * abs(other[e]) for e in shared)
