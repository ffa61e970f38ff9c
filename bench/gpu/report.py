"""Writes the page of tools/gpu_check from the results of its parts (gpu.json): each figure with its limit. A figure
that could not be measured has the verdict "not measured" and the reason, never "met".
"""

import random
import statistics

LARGE = 268435456  # elements, as in stats_bench.cu
RESAMPLES = 4000
LEAST_PAIRS = 20
PENDING = (
    "attaching to an untouched program that uses cuBLAS: there are no interposers yet",
)


class Figure:
    def __init__(self, name, limit, measured=None, met=None, why=""):
        self.name, self.limit, self.measured, self.met, self.why = name, limit, measured, met, why

    def verdict(self):
        if self.met is None:
            return f"not measured: {self.why}" if self.why else "not measured"
        return "met" if self.met else "**missed**"

    def row(self):
        measured = "" if self.measured is None else self.measured
        return f"| {self.name} | {measured} | {self.limit} | {self.verdict()} |"


def why_not(part):
    """Returns why a part has no figures; "" if it has."""
    if not part:
        return "not asked for"
    for key in ("skipped", "failed"):
        if key in part:
            return part[key] if key == "skipped" else f"failed: {part[key]}"
    return ""


def _ratio(name, limit, text, part, of, to, value):
    """Returns a figure from two benchmarks of one part; value(of, to) -> (number, shown)."""
    why = why_not(part)
    if not why:
        missing = [b for b in (of, to) if b not in part]
        why = f"no {', '.join(missing)} among the results" if missing else ""
    if why:
        return Figure(name, text, why=why)
    number, shown = value(part[of], part[to])
    return Figure(name, text, shown, bool(limit(number)))


def _rates(of, to):
    share = of["bytes_per_second"] / to["bytes_per_second"]
    return share, f"{of['bytes_per_second'] / 1e9:,.0f} GB/s, {share:.1%}"


def _times(fast, slow):
    ratio = slow["nanoseconds"] / fast["nanoseconds"]
    return ratio, f"{ratio:.1f} ×"


def copy_of(moved):
    """Returns the benchmark of a device copy that reads and writes `moved` bytes in total."""
    return f"Copy/{moved // 2}/manual_time"


OF_MANY = 2 * 302153728  # bytes, as in stats_bench.cu
PAIR = 2 * 1024 * 151936  # elements of both sides


def speed_figures(part):
    out = []
    for t, size in (("f32", 4), ("bf16", 2), ("f16", 2), ("e4m3", 1), ("e5m2", 1)):
        out.append(_ratio(f"statistics of {t}, share of the device copy", lambda x: x >= 0.85,
                          "≥ 85 %", part, f"Stats/{t}/{LARGE}/manual_time", copy_of(size * LARGE),
                          _rates))
    out.append(_ratio("statistics of 48 tensors of bf16 in one launch, share of the device copy",
                      lambda x: x >= 0.85, "≥ 85 %", part, "StatsOfMany/bf16/manual_time",
                      copy_of(OF_MANY), _rates))
    for t in ("f32", "bf16"):
        out.append(_ratio(f"statistics of {t} against a reduction each", lambda x: x > 1,
                          "faster", part, f"Stats/{t}/{LARGE}/manual_time",
                          f"StatsInManyPasses/{t}/{LARGE}/manual_time", _times))
    pair = "Pair/bf16/1024/151936/manual_time"
    out.append(_ratio("logit pair of bf16, share of the device copy", lambda x: x >= 0.60,
                      "≥ 60 %", part, pair, copy_of(2 * PAIR), _rates))
    out.append(_ratio("logit pair of f32, share of the device copy", lambda x: x >= 0.80,
                      "≥ 80 %", part, pair.replace("bf16", "f32"), copy_of(4 * PAIR), _rates))
    out.append(_ratio("logit pair of bf16 against an operation each", lambda x: x >= 8, "≥ 8 ×",
                      part, pair, "PairInManyPasses/1024/151936/manual_time", _times))
    return out


def peer_figures(speed, peers):
    """Compares our kernels with PyTorch's operations on one device."""
    out = []
    for name, benchmark, limit, text in (
            ("statistics of f32", f"Stats/f32/{LARGE}/manual_time", 1, "faster"),
            ("statistics of bf16", f"Stats/bf16/{LARGE}/manual_time", 1, "faster"),
            ("logit pair of bf16", "Pair/bf16/1024/151936/manual_time", 8, "≥ 8 ×"),
            ("logit pair of f32", "Pair/f32/1024/151936/manual_time", 8, "≥ 8 ×")):
        name = f"{name} against PyTorch"
        why = why_not(speed) or why_not(peers)
        if not why and (benchmark not in speed or benchmark not in peers["peers"]):
            why = f"no {benchmark} among the results"
        if why:
            out.append(Figure(name, text, why=why))
            continue
        ratio, shown = _times(speed[benchmark], peers["peers"][benchmark])
        count = len(peers["peers"][benchmark]["operations"])
        out.append(Figure(name, text, f"{shown} of {count} of PyTorch {peers['torch']}",
                          bool(ratio > limit or ratio == limit == 8)))
    return out


def _number(metric):
    """Converts ncu's [value, unit] to base units."""
    scale = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
    value, unit = metric
    return float(value.replace(",", "")) * scale.get(unit[:1] if unit.endswith("byte") else "", 1)


def routing_figure(part):
    name, limit = "routing reads its scores and choices once", "≤ 1.05 of their bytes"
    why = why_not(part)
    if why:
        return Figure(name, limit, why=why)
    found = part.get("Routing/bf16/1048576/128/manual_time", {})
    why = why_not(found)
    if why:
        return Figure(name, limit, why=why)
    read = found.get("dram__bytes_read.sum")
    if read is None:
        return Figure(name, limit, why="the profiler gave no count of bytes")
    share = _number(read) / (1048576 * (128 * 2 + 8 * 4))
    return Figure(name, limit, f"{share:.3f}", share <= 1.05)


def host_figure(part):
    """Returns the host cost: the median of the paired differences, and their middle half."""
    name, limit = "host time of a due observation besides the launches", "≤ 1 µs"
    benchmark = "Besides/sampled:0/manual_time"
    why = why_not(part)
    if not why and "besides_ns" not in part.get(benchmark, {}):
        why = f"no {benchmark} among the results"
    if why:
        return Figure(name, limit, why=why)
    found = part[benchmark]
    pairs = int(found.get("besides_pairs", 0))
    if pairs < LEAST_PAIRS:
        return Figure(name, limit, why=f"{pairs} pairs of lumps are too few")
    extra, low, high = (found[f"besides{which}_ns"] / 1e3 for which in ("", "_low", "_high"))
    shown = (f"{extra:.2f} µs [{low:.2f}, {high:.2f}] of {found['nanoseconds'] / 1e3:.2f}, "
             f"{pairs} pairs")
    return Figure(name, limit, shown, bool(extra <= 1))


def step_figure(part, name="step of a transformer block in bf16, default sampling"):
    """Returns mean step with probes over the mean without, by pairs of neighbouring blocks."""
    limit = "≤ 0.5 %"
    why = why_not(part)
    if why:
        return Figure(name, limit, why=why)
    if part["lost"] > 0:
        return Figure(name, limit, why=f"{part['lost']} calls were lost, which cost nothing")
    blocks = [(b["probes"], statistics.fmean(b["milliseconds"])) for b in part["blocks"]]
    pairs = [(with_, without) for (on, with_), (off, without) in zip(blocks[::2], blocks[1::2])
             if on and not off]
    if len(pairs) < 10:
        return Figure(name, limit, why=f"{len(pairs)} pairs of blocks are too few")
    draw = random.Random(1)
    ratios = [w / o - 1 for w, o in pairs]
    middle = statistics.median(ratios)
    spread = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    low, high = spread[RESAMPLES // 40], spread[-RESAMPLES // 40]
    whole = sum(w for w, _ in pairs) / sum(o for _, o in pairs) - 1
    shown = (f"{middle:+.2%} [{low:+.2%}, {high:+.2%}], of all time {whole:+.2%}; a step "
             f"{statistics.median(o for _, o in pairs):.2f} ms, {part['taken']} calls taken, "
             f"{part['lost']} lost")
    return Figure(name, limit, shown, max(middle, whole) <= 0.005)


def test_figures(part):
    why = why_not(part)
    if why:
        return [Figure("tests labelled gpu", "all pass", why=why)]
    return [Figure(f"`{name}`", "all pass", f"{found['passed']} passed" if "skipped" not in found
                   else None, None if "skipped" in found else "failed" not in found and
                   found["passed"] > 0, found.get("skipped", ""))
            for name, found in part.items()]


def sanitizer_figures(part):
    why = why_not(part)
    if why:
        return [Figure("compute-sanitizer", "0 errors", why=why)]
    out = []
    for name, found in part.items():
        if "skipped" in found or "not to the end" in found.get("failed", ""):
            out.append(Figure(name, "0 errors", why=found.get("skipped") or found["failed"]))
            continue
        clean = "failed" not in found and found["summary"].startswith("0 ")
        out.append(Figure(name, "0 errors", found["summary"] or found.get("failed"), clean))
    return out


TRAINED = {"dropless": [], "score-drop": ["causality/moe-future-leak"]}  # rules that must have findings


def trainer_figures(part, audits):
    name = "PyTorch {}, {}: "
    out = []
    for router, rules in TRAINED.items():
        why = why_not(part) or why_not(part.get(router))
        label = name.format((part or {}).get("torch", ""), router).replace(" ,", ",")
        same, found = label + "losses with probes and without", label + "findings"
        wanted = ", ".join(rules) or "none"
        if why:
            out += [Figure(same, "the same bits", why=why), Figure(found, wanted, why=why)]
            continue
        steps = part[router]["steps"]
        out.append(Figure(same, "the same bits", f"{steps} steps", part[router]["same_losses"]))
        if router not in audits:
            out.append(Figure(found, wanted, why="tools/gpu_check report judges the records"))
            continue
        stated = ", ".join(audits[router]) or "none"
        out.append(Figure(found, wanted, stated, audits[router] == rules))
    return out


def figures(results):
    """Returns all figures in groups: [(heading, [Figure])]."""
    get = results.get
    return [
        ("Same as the CPU references", test_figures(get("tests"))),
        ("A trainer", trainer_figures(get("trainer"), get("audits", {}))),
        ("Speed", speed_figures(get("speed")) + [routing_figure(get("profile")),
                                                 host_figure(get("host")),
                                                 step_figure(get("step")),
                                                 step_figure(get("step_graph"),
                                                             "the same step as a CUDA graph that "
                                                             "holds the probes"),
                                                 step_figure(get("step_copies"),
                                                             "the same step during copies of 256 MB "
                                                             "in both directions")]),
        ("Against PyTorch", peer_figures(get("speed"), get("peers"))),
        ("compute-sanitizer", sanitizer_figures(get("sanitizers"))),
    ]


def missed(results):
    """Returns the names of the figures that were measured and missed."""
    return [f.name for _, group in figures(results) for f in group if f.met is False]


TOOLS = ("profile", "sanitizers")  # if one of these is not permitted, its figures show that


def failed(results):
    """Returns the parts that failed as a whole, whose figures are unknown."""
    return [f"{name}: {found[key]}" for name, part in results.items()
            for found in (part, *(v for v in part.values() if isinstance(v, dict)))
            for key in ("failed", "broke") if key in found and name not in TOOLS]


def measured(results):
    return any(f.met is not None for _, group in figures(results) for f in group)


def _table(head, rows):
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *rows, ""]


def _device(part):
    why = why_not(part)
    if why:
        return [f"No device: {why}.", ""]
    return _table(("device", ""), [f"| {key} | {value} |" for key, value in part.items()])


def _all_speeds(part):
    if why_not(part):
        return []
    rows = []
    for name, row in part.items():
        rate = row["bytes_per_second"]
        rows.append(f"| `{name.removesuffix('/manual_time')}` | {row['nanoseconds'] / 1e3:,.2f} | "
                    f"{'' if rate is None else f'{rate / 1e9:,.1f}'} |")
    return _table(("benchmark", "µs", "GB/s"), rows)


def _first(part):
    """Returns the figures on which the kernels' budgets depend."""
    why = why_not(part)
    if why:
        return [f"Not taken: {why}.", ""]
    rows = []
    for name, row in part.items():
        rate, items = row["bytes_per_second"], row.get("items_per_second")
        stated = f"{rate / 1e9:,.0f} GB/s" if rate else f"{items / 1e9:,.3f} G/s" if items else ""
        rows.append(f"| `{name.removesuffix('/manual_time')}` | {row['nanoseconds'] / 1e3:,.2f} | "
                    f"{stated} |")
    return _table(("of the device", "µs", "rate"), rows)


def _products(part, audits):
    why = why_not(part)
    if why:
        return [f"Not taken: {why}.", ""]
    rows = []
    for p in part["products"]:
        requested = p["outcome"] == "asked"
        stated = (p["verdict"], p["order"], p["arithmetic"] or p["evidence"],
                f"{p['matches']}/{p['samples']}") if requested else (f"{p['outcome']}: {p['why']}",
                                                                "", "", "")
        rows.append("| " + " | ".join((f"`{p['name']}`", *stated, audits.get(p["name"], ""))) + " |")
    broke = [f"Not to the end: {part['broke']}.", ""] if "broke" in part else []
    return broke + _table(("product", "verdict", "order", "arithmetic", "replayed",
                           "of random data, by plumb audit"), rows)


def _profiles(part):
    if why_not(part):
        return [f"Not taken: {why_not(part) or 'nothing'}.", ""]
    unknown = part.get("unknown", {}).get("metrics", [])
    out = [f"Not known to this profiler: {', '.join(f'`{m}`' for m in unknown)}.", ""] if unknown else []
    for name, found in part.items():
        if name == "unknown":
            continue
        out += [f"`{name.removesuffix('/manual_time')}`", ""]
        if why_not(found):
            out += [f"Not taken: {why_not(found)}.", ""]
            continue
        out += _table(("metric", "value", "unit"),
                      [f"| `{m}` | {v} | {u} |" for m, (v, u) in found.items()])
    return out


def _clocks(part):
    rows = [f"| {name} | {when} | {', '.join(f'{key} {value}' for key, value in found.items())} |"
            for name, both in (part or {}).items() for when, found in both.items()]
    return _table(("clocks of", "", ""), rows) if rows else []


def _recordings(part):
    why = why_not(part)
    if why:
        return [f"None: {why}.", ""]
    sizes = ", ".join(f"`{name}` {size:,} bytes" for name, size in part["bytes"].items())
    return [f"PyTorch {part['torch']}, NCCL {'.'.join(map(str, part['nccl']))}: {sizes}."
            + (f" {part['missing']}." if part["missing"] else ""), ""]


def markdown(results):
    """Returns the whole page. results["audits"]: the results of plumb audit for dumps and records, by name."""
    lines = ["# On the GPU", "", "Written by `tools/gpu_check`; medians of five repetitions, all in "
             "one run on one device.", "", *_device(results.get("device"))]
    lines += ["## First", "", *_first(results.get("first"))]
    for heading, group in figures(results):
        lines += [f"## {heading}", "",
                  *_table(("figure", "measured", "wanted", ""), [f.row() for f in group])]
    lines += ["## All times", "", *_all_speeds(results.get("speed")), *_all_speeds(results.get("host")),
              *_clocks(results.get("clocks")),
              "## Products of cuBLASLt", "", *_products(results.get("products"), results.get("audits", {})),
              "## Profiles", "", *_profiles(results.get("profile")),
              "## Recordings", "", *_recordings(results.get("recordings")),
              "## Not there yet", "", *(f"- {text}" for text in PENDING), ""]
    return "\n".join(lines)
