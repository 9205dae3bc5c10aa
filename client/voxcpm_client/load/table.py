"""Rows as text, each when it is done."""

from __future__ import annotations

from voxcpm_client.load.row import Row, Spread

_WIDTHS = (12, 6, 6, 21, 21, 9, 6, 9, 7, 15, 5)
_HEADS = (
    ("", "", "", "TTFA ms", "gap ms", "", "RTF", "", "", "sent late ms", ""),
    ("load", "n", "ok", "p50/p90/p99", "p50/p99/max", "underruns", "p50", "audio-s/s", "req/s", "p99/max", "CPU %"),
)


def head() -> str:
    return "\n".join(_line(names) for names in _HEADS)


def text_of(row: Row) -> str:
    """The row under `head`, and a line below for what the columns do not tell."""
    cells = (
        str(row.pattern),
        str(len(row.outcomes)),
        str(row.num_ok),
        _figures(row.ttfa_ms, "p50", "p90", "p99"),
        _figures(row.gap_ms, "p50", "p99", "largest"),
        str(row.num_underruns),
        "-" if row.rtf is None else f"{row.rtf.p50:.3f}",
        f"{row.audio_s_per_s:.2f}",
        f"{row.requests_per_s:.2f}",
        _figures(row.lag_ms, "p99", "largest"),
        f"{row.cpu_pct:.0f}",
    )
    notes = [f"{code} {count}" for code, count in row.errors.items()]
    if row.num_unfinished:
        notes.append(f"stopped while {row.num_unfinished} more requests were under way")
    if row.window is not None and not row.window.is_steady:
        notes.append("too short for a steady state: speech per second is that of the whole load")
    return "\n".join([_line(cells), *(f"    {note}" for note in notes)])


def _line(cells: tuple[str, ...]) -> str:
    return " ".join([cells[0].ljust(_WIDTHS[0]), *(c.rjust(w) for c, w in zip(cells[1:], _WIDTHS[1:], strict=True))])


def _figures(figures: Spread | None, *names: str) -> str:
    if figures is None:
        return "-"
    values = [getattr(figures, name) for name in names]
    return "/".join(f"{value:.1f}" if value < 100 else f"{value:.0f}" for value in values)
