"""Dumps of flight recorders through `plumb audit`: which rank is named, in both formats; hostile pickles are refused
and run nothing."""
import json
import os
import pathlib
import pickle
import subprocess
import tempfile

PLUMB = pathlib.Path(os.environ["PLUMBLINE_BIN_DIR"]) / "plumb"
RANKS = 4


def entry(number, state, rank, name="nccl:all_reduce", sizes=((1024, 8),), dtype="Float", p2p=False, group=("0", "default_pg")):
    return {"frames": [{"name": "all_reduce", "filename": "/usr/lib/python3/torch/distributed/c10d.py", "line": 9},
                       {"name": "step", "filename": "/home/me/train.py", "line": 57}],
            "record_id": number, "pg_id": 0, "process_group": group, "collective_seq_id": number, "p2p_seq_id": number,
            "op_id": number, "profiling_name": name, "time_created_ns": 1712345678000000000 + number,
            "input_sizes": [list(s) for s in sizes], "input_dtypes": [dtype], "output_sizes": [list(s) for s in sizes],
            "output_dtypes": [dtype], "state": state, "is_p2p": p2p, "retired": state == "completed", "timeout_ms": 600000}


def dump(rank, entries, enqueued=None):
    done = [e["collective_seq_id"] for e in entries if e["state"] == "completed"]
    last = max([e["collective_seq_id"] for e in entries], default=-1) if enqueued is None else enqueued
    return {"version": "2.5", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(RANKS)))}},
            "pg_status": {"0": {"last_enqueued_collective": last, "last_started_collective": last,
                                "last_completed_collective": max(done, default=-1)}},
            "entries": entries}


def audit(folder, *arguments):
    ended = subprocess.run([str(PLUMB), "audit", "--format", "json", str(folder), *arguments], capture_output=True, text=True)
    return ended.returncode, json.loads(ended.stdout)


def write(folder, dumps, form):
    for rank, content in dumps.items():
        if form == "json":
            (folder / f"trace_rank_{rank}.json").write_text(json.dumps(content))
        else:
            (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(content, protocol=form))


def finding(dumps, form):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        write(folder, dumps, form)
        status, report = audit(folder)
        assert all(i["format"] == "flight-recorder" and not i["problems"] for i in report["inputs"]), report["inputs"]
        assert len(report["inputs"]) == len(dumps)
        found = [f for f in report["findings"] if f["rule"] == "performance/hang"]
        verdict = [v for v in report["verdicts"] if v["rule"] == "performance/hang"]
        return status, found, verdict


def completed(rank, upto):
    return [entry(n, "completed", rank) for n in range(1, upto + 1)]


FORMS = ("json", 2, 4)
for form in FORMS:
    # Rank 2 stops before number 6; the others have continued to different depths.
    dumps = {r: dump(r, completed(r, 5) + ([] if r == 2 else [entry(n, "scheduled", r) for n in range(6, 8 + r)])) for r in range(RANKS)}
    status, found, _ = finding(dumps, form)
    assert status == 1 and len(found) == 1, (form, found)
    assert found[0]["details"]["kind"] == "not-launched" and found[0]["details"]["ranks"] == [2], found[0]["details"]
    assert found[0]["details"]["waiting"] == [0, 1, 3] and found[0]["site"]["ranks"] == [2]
    assert "train.py:57 in step" in found[0]["explanation"], found[0]["explanation"]
    assert any("time limit" in a for a in found[0]["assumptions"])

    # The same without the dump of rank 2.
    del dumps[2]
    status, found, _ = finding(dumps, form)
    assert found[0]["details"]["ranks"] == [2] and "no readable dump" in found[0]["explanation"], found

    # A peer has completed what rank 1 has not.
    dumps = {r: dump(r, completed(r, 5) + [entry(6, "started" if r == 1 else "completed", r), entry(7, "scheduled", r)]) for r in range(RANKS)}
    _, found, _ = finding(dumps, form)
    assert found[0]["details"]["kind"] == "not-completed" and found[0]["details"]["ranks"] == [1], found

    # Shapes, dtypes, operations.
    for change in ({"sizes": ((1023, 8),)}, {"dtype": "BFloat16"}, {"name": "nccl:_all_gather_base"}):
        dumps = {r: dump(r, completed(r, 5) + [entry(6, "started", r, **(change if r == 3 else {}))]) for r in range(RANKS)}
        _, found, _ = finding(dumps, form)
        assert found[0]["details"]["kind"] == "mismatched" and found[0]["details"]["ranks"] == [3], (change, found)

    # A view with the same number of elements is the same call.
    dumps = {r: dump(r, completed(r, 5) + [entry(6, "started", r, sizes=((2, 4096),) if r == 3 else ((1024, 8),))]) for r in range(RANKS)}
    status, found, _ = finding(dumps, form)
    assert status == 0 and found[0]["details"]["kind"] == "not-completed" and found[0]["details"]["ranks"] == [], found

    # All ranks at the same call: a note, and no rank is named.
    dumps = {r: dump(r, completed(r, 5) + [entry(6, "started", r)]) for r in range(RANKS)}
    status, found, _ = finding(dumps, form)
    assert status == 0 and found[0]["level"] == "note" and found[0]["details"]["ranks"] == [], found

    # One rank's device has not begun what runs on the others; if half of the ranks have not, none is named.
    for late in ([0], [3], [1, 2]):
        dumps = {r: dump(r, completed(r, 5) + [entry(6, "scheduled" if r in late else "started", r)]) for r in range(RANKS)}
        status, found, _ = finding(dumps, form)
        named = len(late) == 1
        assert (status, found[0]["details"]["ranks"]) == (int(named), late if named else []), (late, found)
        assert found[0]["details"]["kind"] == ("not-started" if named else "not-completed"), (late, found)

    # Dumps from different times.
    dumps = {r: dump(r, completed(r, 3 if r == 0 else 6)) for r in range(RANKS)}
    dumps[3] = dump(3, completed(3, 6) + [entry(7, "scheduled", 3)])
    _, found, verdict = finding(dumps, form)
    assert not found and verdict[0]["verdict"] == "inconclusive" and "different-times" in verdict[0]["reason"], verdict

    # A pipeline: 0 sends to 1, which waits to receive from 0: they match; 2 waits for 3, which has nothing pending.
    dumps = {0: dump(0, completed(0, 5) + [entry(6, "started", 0, name="nccl:send 0->1", p2p=True)]),
             1: dump(1, completed(1, 5) + [entry(9, "started", 1, name="nccl:recv 1<-0", p2p=True)]),
             2: dump(2, completed(2, 5) + [entry(6, "started", 2, name="nccl:recv 2<-3", p2p=True)]),
             3: dump(3, completed(3, 5))}
    _, found, _ = finding(dumps, form)
    assert found[0]["details"]["ranks"] == [3] and found[0]["details"]["kind"] == "not-launched", found

    # Nothing pending.
    _, found, verdict = finding({r: dump(r, completed(r, 5)) for r in range(RANKS)}, form)
    assert not found and verdict[0]["verdict"] == "pass", verdict


# Dumps requested from a running job: rank 1's was written a moment before the others', which looks like a hang.
for seconds, verdict_is in ((2, "inconclusive"), (700, "finding")):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        dumps = {r: dump(r, completed(r, 5) + [entry(6, "started" if r == 1 else "completed", r)] + ([] if r == 1 else [entry(7, "started", r)]))
                 for r in range(RANKS)}
        write(folder, dumps, "json")
        for path in folder.iterdir():
            os.utime(path, (1712345678 + seconds, 1712345678 + seconds))
        _, report = audit(folder)
        stated = [v for v in report["verdicts"] if v["rule"] == "performance/hang"]
        assert [v["verdict"] for v in stated] == [verdict_is], (seconds, stated)
        assert verdict_is == "finding" or stated[0]["reason"].startswith("on-demand: "), stated


# An all-gather of uneven parts over 64 ranks, with long lists: all ranks wait, none is accused.
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    parts = [[100, 64]] * 63 + [[37, 64]]
    for rank in range(64):
        one = dump(rank, [dict(entry(6, "started", rank, name="nccl:all_gather"), input_sizes=[parts[rank]], output_sizes=parts)])
        one["pg_config"]["0"]["ranks"] = str(list(range(64)))
        (folder / f"nccl_trace_rank_{rank}").write_bytes(pickle.dumps(one, protocol=4))
    status, report = audit(folder)
    assert status == 0 and [f["details"]["ranks"] for f in report["findings"]] == [[]], report["findings"]

# Next to good dumps: a file with a dump's name that is not a dump is a problem of the input; another pickle gets a
# note; any other file is ignored.
with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    write(folder, {r: dump(r, completed(r, 5)) for r in range(2)}, 4)
    for file, content in (("nccl_trace_rank_2", pickle.dumps({"a": [1]}, protocol=4)), ("nccl_trace_rank_3", b""), ("other.pkl", pickle.dumps([1], protocol=4)),
                          ("README", b"dumps of Monday")):
        (folder / file).write_bytes(content)
    status, report = audit(folder)
    reported = {pathlib.Path(i["path"]).name: i for i in report["inputs"]}
    assert status == 2, report
    for file in ("nccl_trace_rank_2", "nccl_trace_rank_3"):
        assert reported[file]["format"] == "flight-recorder" and len(reported[file]["problems"]) == 1, reported[file]
    assert reported["other.pkl"]["format"] == "unknown" and not reported["other.pkl"]["problems"], reported["other.pkl"]
    assert "looks like one but is not valid" in reported["other.pkl"]["notes"][0], reported["other.pkl"]
    assert reported["README"]["format"] == "unknown" and not reported["README"].get("notes"), reported["README"]


class Runs:
    def __reduce__(self):
        return (os.system, ("touch " + MARK,))


with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    MARK = str(folder / "ran")
    good = dump(0, completed(0, 5))
    hostile = folder / "nccl_trace_rank_0"
    base = pickle.dumps(good, protocol=4)
    deep = b"\x80\x04}\x8c\x07entries" + b"\x8c\x0eprofiling_name0" + b"](" * 100000
    cases = {"call": pickle.dumps(dict(good, x=Runs()), protocol=2),
             "circle": pickle.dumps((lambda l: l.append(l) or dict(good, x=l))([]), protocol=4),
             "cut": base[:-40], "deep": deep,
             "huge": b"\x80\x04\x8c\x0eprofiling_name0\x8d" + (2**62).to_bytes(8, "little") + b"x"}
    for case, content in cases.items():
        hostile.write_bytes(content)
        status, report = audit(hostile)
        problems = report["inputs"][0]["problems"]
        assert status == 2 and problems and ": byte " in problems[0], (case, status, problems)
        assert not pathlib.Path(MARK).exists(), case
    hostile.write_text(json.dumps(good)[:-30])
    status, report = audit(hostile)
    assert status == 2 and report["inputs"][0]["format"] == "flight-recorder", report["inputs"]
print("ok")
