"""Audits the inputs of scalar_inputs.py with two builds and prints each verdict that changed, by family.

  python3 tests/audit/compare_audits.py OLD/plumb NEW/plumb [SEEDS]        # 10 seeds: some 2,000 inputs
"""

import collections
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

import scalar_inputs


def verdicts(plumb, paths):
    ended = subprocess.run([plumb, "audit", "--quiet", "--format", "json", *paths], capture_output=True, text=True, timeout=300)
    if not ended.stdout:
        return (ended.returncode, "no report"), {}
    found = {}
    for f in json.loads(ended.stdout)["findings"]:
        found[(f["rule"], f["site"].get("op", ""))] = f["level"]
    return ended.returncode, found


def changes(old, new):
    """The changes: "+ level rule", "- level rule", "rule: level to level", "exit status"."""
    out = set()
    if old[0] != new[0]:
        out.add(f"exit status {old[0]} to {new[0]}")
    for key in {*old[1], *new[1]}:
        before, after = old[1].get(key), new[1].get(key)
        if before == after:
            continue
        if before is None:
            out.add(f"+ {after} {key[0]}")
        elif after is None:
            out.add(f"- {before} {key[0]}")
        else:
            out.add(f"{key[0]}: {before} to {after}")
    return tuple(sorted(out))


def compare(task):
    plumbs, family, files = task
    with tempfile.TemporaryDirectory() as folder:
        paths = []
        for name, text in files.items():
            paths.append(pathlib.Path(folder) / name)
            paths[-1].write_bytes(text if isinstance(text, bytes) else text.encode())
        old, new = (verdicts(plumb, paths) for plumb in plumbs)
    return family, changes(old, new)


def main():
    plumbs, seeds = sys.argv[1:3], range(1, 1 + int(sys.argv[3]) if len(sys.argv) > 3 else 11)
    tasks = ((plumbs, family, files) for family, files in scalar_inputs.inputs(seeds))
    changed, count = collections.Counter(), 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for family, what in pool.map(compare, tasks):
            count += 1
            if what:
                changed[(what, family.split(",")[0] if "point" in family else family)] += 1
    print(f"{count} inputs, {sum(changed.values())} with a changed verdict")
    for (what, family), times in sorted(changed.items()):
        print(f"{times:4d}  {family}: {'; '.join(what)}")


if __name__ == "__main__":
    main()
