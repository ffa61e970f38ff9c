"""The table of docs/frameworks.md is made of what the cases have shown, and differences are found."""

import json
import pathlib
import subprocess
import sys
import tempfile

import table

SHOWN = {"steps": True, "loss": True, "gradient norm": False, "gradients": True, "updates": True, "routers": False, "sums": False, "silent": True, "finds": []}
PAGE = f"before\n\n{table.MARKS[0]}\n{table.MARKS[1]}\n\n{table.COMBINED_MARKS[0]}\n{table.COMBINED_MARKS[1]}\n\nbehind\n"


def leave(folder, case, **shown):
    path = pathlib.Path(folder, case, "watched/shown.json")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({**SHOWN, **shown}))


def run(*arguments):
    return subprocess.run([sys.executable, table.__file__, *map(str, arguments)], capture_output=True, text=True, check=False)


def main():
    with tempfile.TemporaryDirectory() as folder:
        page, cost = pathlib.Path(folder, "page.md"), pathlib.Path(folder, "cost")
        page.write_text(PAGE)
        cases = pathlib.Path(folder, "cases")
        leave(cases, "deepspeed/stage_1")
        leave(cases, "deepspeed/stage_2", loss=False)
        leave(cases, "deepspeed/one_batch", silent=False, finds=["health/same-data"])
        leave(cases, "lightning/by_fabric")
        cost.write_text('text\n{"deepspeed": {"cost": 0.012, "low": 0.004, "high": 0.02, "step_ms": 31.2}}\n')
        assert run(cases, "--check", page).returncode == 1
        assert run(cases, "--write", page, "--cost", cost).returncode == 0
        row = next(line for line in page.read_text().splitlines() if line.startswith("| DeepSpeed"))
        assert table.cells(row)[1:] == ["3", "2", "", "3", "3", "", "", "2", "3", "1", "+1.2 % (+0.4 to +2.0) of 31 ms"], row
        assert page.read_text().startswith("before\n") and page.read_text().endswith("\n\nbehind\n")
        assert "| Fabric |" in page.read_text() and "| Lightning |" not in page.read_text()
        assert run(cases, "--check", page).returncode == 0
        assert run(cases, "--write", page).returncode == 0 and "+1.2 % (+0.4 to +2.0) of 31 ms" in page.read_text()  # the cost stays
        shown = list(table.with_costs(page.read_text(), table.cost_words({"fabric": {"cost": 0.01, "low": -0.001, "high": 0.03, "step_ms": 13}})))
        rows = {table.cells(line)[0]: table.cells(line)[1:] for line in shown[2:]}
        assert rows["Fabric"] == [*table.of_page(page.read_text())["Fabric"][:-1], "+1.0 % (-0.1 to +3.0) of 13 ms"]
        assert {**rows, "Fabric": 0} == {**table.of_page(page.read_text()), "Fabric": 0}
        leave(cases, "deepspeed/stage_3")
        again = run(cases, "--check", page)
        assert again.returncode == 1 and "DeepSpeed: ZeRO 0 to 3, bf16, two ranks, steps: the page has '3', the cases have shown '4'" in again.stdout
        found = table.counts(cases)
        leave(cases, "combinations/plain_00_adamw")
        leave(cases, "combinations/lightning_00_nan_sgd", silent=False, finds=["health/loss-non-finite"])
        assert run(cases, "--write", page).returncode == 0 and "| all | 1 | 1 |" in page.read_text() and "| Lightning | 0 | 1 |" in page.read_text()
        assert len(table.too_few(cases)) == 2
        assert not list(table.differences(table.of_page(page.read_text()), found, ["lightning"]))  # Lightning's row needs the file ranks, too
        before = page.read_text()
        table.write(page, cases, files=["lightning"])  # its row needs the file ranks, too
        assert page.read_text() == before and "| Lightning |" not in page.read_text().partition(table.COMBINED_MARKS[0])[0]
    print("10 checks")


if __name__ == "__main__":
    main()
