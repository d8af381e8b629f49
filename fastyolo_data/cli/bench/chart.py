"""The PNG chart of a bench run. Needs matplotlib, which is imported only here and only when a chart is wanted."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from fastyolo_data.errors import ConfigError

__all__ = ["check_matplotlib", "draw"]

_LINES = ("-", "--", ":", "-.")  # one for each cache mode
_COLOURS = ("#1565c0", "#e65100", "#2e7d32", "#6a1b9a", "#00838f", "#ad1457", "#9e9d24", "#4e342e")


def check_matplotlib() -> None:
    """Raise ConfigError, with the command that installs it, unless matplotlib is there."""
    if importlib.util.find_spec("matplotlib") is None:
        raise ConfigError('--chart needs matplotlib: pip install "fastyolo_data[bench]" (or: pip install matplotlib)')


def draw(path: Path, content: dict[str, Any]) -> None:
    """Draw images per second and, if it was simulated, the share of time a GPU is busy.

    Args:
        path: the PNG file to write.
        content: a `report.document`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    results = content["results"]
    simulated = any(r["gpu"] for r in results)
    width = max(6.0, 1.1 * len(results))
    figure = Figure(figsize=(width + 5 if simulated else width, 4.8), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2 if simulated else 1, squeeze=False)[0]
    several = len({r["cache"] for r in results}) > 1
    labels = [f"{r['adapter']}\n{r['cache']}" if several else r["adapter"] for r in results]
    _bars(axes[0], results, labels)
    if simulated:
        _curves(axes[1], results, labels)
    settings, machine = content["settings"], content["machine"]
    figure.suptitle(
        f"{content['dataset']['images']} images, {settings['imgsz']} px, batch {settings['batch']}, "
        f"{settings['workers']} workers, default augmentation",
        fontsize=12,
    )
    cpus = machine["cpus"]["affinity"] or machine["cpus"]["logical"]
    figure.supxlabel(f"{machine['processor']}, {cpus} CPUs · {content['started'][:10]}", fontsize=8, color="#555555")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def _bars(ax: Any, results: list[dict[str, Any]], labels: list[str]) -> None:
    """Draw the median of the passes as bars, their MAD as whiskers, and every pass as a dot."""
    for i, r in enumerate(results):
        s = r["summary"]
        ax.bar(
            i,
            s["images_per_second"],
            yerr=s["images_per_second_mad"],
            color=_colour(results, r),
            alpha=0.85,
            capsize=6,
            width=0.6,
        )
        speeds = [p["images"] / p["seconds"] for p in r["passes"]]
        ax.plot([i + 0.2] * len(speeds), speeds, ".", color="black", markersize=4, alpha=0.6)
        ax.annotate(
            f"{s['images_per_second']:.0f}",
            (i, max(speeds)),
            (0, 8),
            textcoords="offset points",
            ha="center",
            va="bottom",
        )
    ax.set_xticks(range(len(labels)), labels)
    ax.set_xlim(-0.7, len(labels) - 0.3)
    ax.set_ylabel("images per second")
    ax.set_title("As fast as batches come (median, MAD, every pass)", fontsize=10)
    ax.margins(y=0.15)
    ax.set_ylim(bottom=0)
    _tidy(ax)


def _curves(ax: Any, results: list[dict[str, Any]], labels: list[str]) -> None:
    """Draw the busy share of a simulated GPU against its speed, one line for each contender."""
    rates: list[float] = []
    for i, r in enumerate(results):
        share = {float(rate): 100 * v for rate, v in r["summary"]["gpu_busy_share"].items()}
        rates = sorted(share) or rates
        colour, line = _colour(results, r), _LINES[_rank(results, r, "cache") % len(_LINES)]
        ax.plot(list(share), list(share.values()), f"o{line}", color=colour, label=labels[i].replace("\n", ", "))
        dots = [(p["rate"], 100 * p["busy_seconds"] / p["seconds"]) for p in r["gpu"]]
        ax.plot([d[0] for d in dots], [d[1] for d in dots], ".", color=colour, markersize=4, alpha=0.5)
    ax.set_xscale("log", base=2)
    ax.set_xticks(rates, [f"{rate:g}" for rate in rates])
    ax.minorticks_off()
    ax.set_ylim(0, 105)
    ax.set_xlabel("speed of the simulated GPU, images per second")
    ax.set_ylabel("share of time the GPU is busy, %")
    ax.set_title("GPU kept busy", fontsize=10)
    ax.legend(frameon=False, loc="best")
    _tidy(ax)


def _rank(results: list[dict[str, Any]], result: dict[str, Any], key: str) -> int:
    """Return the position of result[key] among the different values of that key."""
    return list(dict.fromkeys(r[key] for r in results)).index(result[key])


def _colour(results: list[dict[str, Any]], result: dict[str, Any]) -> str:
    """Return the colour of the result's loader, the same in all cache modes."""
    return _COLOURS[_rank(results, result, "adapter") % len(_COLOURS)]


def _tidy(ax: Any) -> None:
    """Remove the box, draw a light grid."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis="y", color="#dddddd")
    ax.set_axisbelow(True)
