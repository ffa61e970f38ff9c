"""A verdict as one HTML page."""

from html import escape

_STYLE = ("body{font:15px/1.5 sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}table{border-collapse:collapse}"
          "td.m{width:14px;height:14px;border:1px solid #eee}th{font-weight:normal;font-size:11px;color:#666;padding-right:4px}"
          "dt{font-weight:bold}.finding{color:#a00}.passed{color:#070}.inconclusive{color:#850}")  # fmt: skip


def _matrix(matrix):
    if not matrix:
        return ""
    lines = []
    for (first, last), shares in zip(matrix["positions"], matrix["moved"]):
        cells = "".join(_cell(share, first, columns) for share, columns in zip(shares, matrix["positions"]))
        lines.append(f"<tr><th>{first}</th>{cells}</tr>")
    text = ("Rows of this table: tokens from this position on were replaced. Columns: rows of the output. Red: the share of the trials "
            "in which a row moved that must not follow these tokens.")  # fmt: skip
    return f"<h2>The leak's matrix</h2><p>{text}</p><table>{''.join(lines)}</table>"


def _cell(share, first, columns):
    if share is None:
        return '<td class="m" style="background:#f4f4f4" title="may move"></td>'
    words = f"replaced from {first} on: rows {columns[0]} to {columns[1]} moved in {100 * share:.3g} % of the trials"
    colour = f"rgba(200,0,0,{0.15 + 0.85 * share:.2f})" if share else "#fff"
    return f'<td class="m" style="background:{colour}" title="{escape(words)}"></td>'


def _findings(verdict):
    parts = []
    for one in verdict.findings:
        where = f"<p>Modules: <code>{escape(', '.join(m or '(model)' for m in one.modules))}</code></p>" if one.modules else ""
        fix = f"<p>Fix: {escape(one.fix)}</p>" if one.fix else ""
        parts.append(f"<h2>{escape(one.rule)}</h2><p>{escape(one.level)}, {escape(one.strength)}, cause {escape(one.cause)}</p>"
                     f"<p>{escape(one.message)}</p>{where}{fix}")  # fmt: skip
    return "".join(parts)


def page(verdict):
    rate = "" if verdict.excluded_rate is None else f"{100 * verdict.excluded_rate:.3g} %"
    facts = [("trials", verdict.trials), ("positions covered", f"{100 * verdict.cut_share:.3g} %"), ("forward passes", verdict.forwards),
             ("mode", verdict.mode), ("excluded rate of a leak, at 99 %", rate), ("filled for the check", ", ".join(verdict.filled))]  # fmt: skip
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(str(value))}</dd>" for name, value in facts if value not in (None, ""))
    notes = "".join(f"<li>{escape(one)}</li>" for one in verdict.notes)
    notes += "".join(f"<li>not judged: {escape(f'{one.subject}: {one.id}: {one.text}')}</li>" for one in verdict.reasons)
    return (f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Causality: {verdict.verdict}</title><style>{_STYLE}</style>'
            f'<h1>Causality: <span class="{verdict.verdict}">{verdict.verdict}</span></h1><p>{escape(verdict.message)}</p>'
            f"{_findings(verdict)}{_matrix(verdict.matrix)}<h2>Coverage</h2><dl>{listed}</dl><ul>{notes}</ul></html>\n")  # fmt: skip
