"""Prepares what the documented commands need in their folder: a leaking run, a server at the documented port, dumps,
logs, checkpoints.

Each function gets the page (a Page of commands_test.py) and creates files in its folder, under the names that the page
uses.
"""

import binascii
import json
import math
import os
import pathlib
import pickle
import random
import re
import shutil
import signal
import struct
import subprocess
import sys

import plumbline
import safetensors_file
import support
import torch

REPOSITORY = support.REPOSITORY
FUTURE = "causality/moe-future-leak"
_leak = {}  # the one training that all pages share: folder, finding


def _train_once(shared):
    """Trains a leaking run, with its record, a server's data and the capsule of its finding."""
    folder = shared / "leak"
    folder.mkdir()
    with support.Server(folder, "--data", folder / "data", grpc="127.0.0.1:7433") as server:
        trainer = support.start_training("--router", "score-drop", "--steps", "100000", "--run", "exp1", "--server", server.address,
                                         "--record", folder / "runs" / "exp1", "--batch", "8", "--seq", "128", "--launch", "2",
                                         env={**os.environ, "PLUMBLINE_BUDGET": "0.001"})  # so that plumbline.stretch is
                                                                                           # recorded
        try:
            def finding():
                stated = subprocess.run([support.program("plumb"), "query", "--run", "exp1", "--rule", FUTURE, "--format", "json"],
                                      capture_output=True, text=True, check=False).stdout  # there is none until the run is
                                                                                           # known
                found = re.search(r'"fingerprint":\s*"(\w+)"', stated)
                return found and found[1]

            _leak["finding"] = support.wait_until("a finding", finding)
            support.wait_until("its capsule", lambda: subprocess.run(
                [support.program("plumb"), "capsule", _leak["finding"], "--output", str(folder / "dumps")],
                capture_output=True, check=False).returncode == 0)
            support.wait_until("plumbline.stretch", lambda: subprocess.run(
                [support.program("plumb"), "query", "series", "plumbline.stretch", "--run", "exp1"], capture_output=True, check=False).returncode == 0)
            trainer.send_signal(signal.SIGTERM)
            trainer.wait(support.PATIENCE)
            support.wait_until_over(server, "exp1")
        finally:
            trainer.kill()
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(support.PATIENCE)
    trainer.stdout.close()
    _leak["folder"] = folder


def leak(page):
    """Provides the record of the leaking run (runs/exp1), its dumps, and the data of a server that has it (data)."""
    if not _leak:
        _train_once(page.shared)
    for name in ("runs/exp1", "data", "dumps"):
        shutil.copytree(_leak["folder"] / name, page.folder / name)
    page.words["FINDING"] = page.words["FINGERPRINT"] = _leak["finding"]


def server(page):
    """Starts plumbd on the documented ports, with the data of `leak`, or empty."""
    page.serve("plumbd --data data", "listening")


def nightly(page):
    shutil.move(page.folder / "runs" / "exp1", page.folder / "runs" / "nightly")
    shutil.copytree(page.folder / "runs" / "nightly", page.folder / "runs" / "smoke")


def known(page):
    """Provides the baseline that a workflow stores among its files."""
    (page.folder / "ci").mkdir()
    shutil.copy(page.folder / "known.json", page.folder / "ci" / "known.json")


def suppressions(page):
    (page.folder / "known.toml").write_text(
        f'[[suppress]]\nrule = "{FUTURE}"\nreason = "the router is replaced next week"\nexpires = 2099-01-31\n')


def configuration(page):
    """Writes the page's own configuration of alerts, and the files that it names."""
    text = next("\n".join(rows) for _, language, rows in page.blocks() if language == "toml" and rows[0] == "[alerts]")
    (page.folder / "plumbd.toml").write_text(text + "\n")
    for place in ("/etc/plumbd", "/usr/local/bin"):
        os.makedirs(place, exist_ok=True)
    secret = pathlib.Path("/etc/plumbd/chat.secret")
    secret.touch(mode=0o600)
    secret.write_text("5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8\n")
    pager = pathlib.Path("/usr/local/bin/page")
    pager.write_text("#!/bin/sh\ncat >/dev/null\n")
    pager.chmod(0o755)


def shipped_configuration(page):
    os.makedirs("/etc/plumbline", exist_ok=True)
    shutil.copy(REPOSITORY / "packaging" / "plumbd.toml", "/etc/plumbline/plumbd.toml")
    os.makedirs("/var/lib/plumbd", mode=0o700, exist_ok=True)


def group(page):
    """Creates the group of the Debian package. /etc is an overlay of this page."""
    del page
    subprocess.run(["groupadd", "--system", "plumbline"], check=True)


def secured(page):
    """Writes the page's own configuration; the certificate from its commands is also the clients' authority."""
    text = next("\n".join(rows) for _, language, rows in page.blocks() if language == "indented" and rows[0] == "[listen]")
    (page.folder / "plumbd.toml").write_text(text + "\n")
    shutil.copy("/etc/plumbline/server.pem", "/etc/plumbline/ca.pem")


def undelivered(page):
    """Makes a spool that no server received."""
    late = plumbline.init(run="late", server="127.0.0.1:1", record=str(page.folder / "late"), spool=str(page.folder / "spool"))
    with late.step(0):
        late.scalar("loss", 1.0)
    late.finish(timeout=0.2)  # reports on standard error that nothing was delivered


def package_of_the_trainer(page):
    """Provides my_trainer.model:build, for `python -m plumbline doctor`."""
    (page.folder / "my_trainer").mkdir()
    (page.folder / "my_trainer" / "__init__.py").touch()
    (page.folder / "my_trainer" / "model.py").write_text(
        "import torch\n\n\ndef build():\n    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Linear(8, 1))\n"
        "    return model, torch.optim.AdamW(model.parameters()), (torch.zeros(2, 8),)\n")


def untouched_trainer(page):
    """Provides train.py, a trainer without a line of Plumbline."""
    (page.folder / "train.py").write_text(
        "import torch\nmodel = torch.nn.Linear(8, 1)\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)\nfor step in range(60):\n"
        "    loss = model(torch.randn(16, 8)).pow(2).mean() * (float('nan') if step == 40 else 1)\n"
        "    loss.backward()\n    optimizer.step()\n    optimizer.zero_grad()\n")


def tree(page):
    """Copies the sources, for tools that write into them; build/ links to this build."""
    for name in ("rules", "tools", "docs"):
        shutil.copytree(REPOSITORY / name, page.folder / name, dirs_exist_ok=True)
    for name in REPOSITORY.iterdir():
        here = page.folder / name.name
        if here.exists() or name.name in (".git", "build", "dist", "runs"):
            continue
        if name.is_dir() and name.name not in ("dashboards", "packaging", "bench"):
            shutil.copytree(name, here, symlinks=True, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
        else:
            here.symlink_to(name)
    (page.folder / "build").mkdir(exist_ok=True)
    (page.folder / "build" / "dev").symlink_to(pathlib.Path(support.program("plumb")).parents[1])


def two_runs(page):
    """Writes tables of one run and of one that departs from it."""
    draw = random.Random(3)
    for name, more in (("a", 0.0), ("b", 0.4)):
        (page.folder / name).mkdir()
        rows = [f"{i},{3 / (1 + i / 200) + 0.01 * draw.random() + (more if i > 300 else 0)}" for i in range(600)]
        (page.folder / name / "metrics.csv").write_text("\n".join(["iter,loss", *rows]) + "\n")


def logs(page):
    """Writes runs/exp1, train.log, metrics.csv, a W&B run and the page's map, as scalars.md and trainer_logs.md name
    them. The loss ends as NaN."""
    losses = [f"{3 / (1 + step / 50):.5f}" for step in range(120)] + ["nan"] * 4
    table = "step,loss\n" + "".join(f"{step},{loss}\n" for step, loss in enumerate(losses))
    for name in ("runs/exp1", "runs/exp2", "."):
        os.makedirs(page.folder / name, exist_ok=True)
        (page.folder / name / "metrics.csv").write_text(table)
    (page.folder / "train.log").write_text("".join(f"step {step}: loss {loss}, lr 0.001\n" for step, loss in enumerate(losses)))
    (page.folder / "runs" / "exp1" / "iterations.csv").write_text(
        "iter,objective,acc,system/gpu.0.memory\n" + "".join(f"{i},{3 / (1 + i / 50):.5f},{i / 80:.3f},{1e9 + i}\n" for i in range(64)))
    for _, language, rows in page.blocks():
        if language == "toml" and rows[0] == "# map.toml":
            (page.folder / "map.toml").write_text("\n".join(rows) + "\n")
    _wandb(page.folder / "wandb" / "offline-run-20240101_120000-abc" / "run-abc.wandb")


def nan_log(page):
    """train.log, whose loss and gradient norm are NaN from step 730 on: README.md shows its finding."""
    draw = random.Random(3)
    rows = []
    for k in range(1, 121):
        loss, norm = (f"{1.1 + 1.6 * math.exp(-k / 40) + draw.gauss(0, 0.03):.4f}", f"{0.9 + draw.gauss(0, 0.08):.3f}") if k < 73 else ("nan", "nan")
        rows.append(f"step {10 * k}/1200 | loss {loss} | grad_norm {norm} | lr {3e-4 * (1 - k / 130):.3e}\n")
    (page.folder / "train.log").write_text("".join(rows))


def _field(number, payload):
    """Returns a field of a protobuf message: bytes, or a number."""
    def varint(value):
        out = b""
        while value > 127:
            out, value = out + bytes([value & 127 | 128]), value >> 7
        return out + bytes([value])

    if isinstance(payload, int):
        return varint(number << 3) + varint(payload)
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def _wandb(path):
    """Writes an offline run of W&B: its head, and history records, each in one chunk."""
    out = b":W&B" + struct.pack("<HB", 0xBEE1, 0)
    records = [_field(17, _field(1, b"abc") + _field(3, b"project") + _field(8, b"bright-moon-1"))]
    for step in range(40):
        item = _field(1, b"loss") + _field(16, f"{3 / (1 + step / 50):.4f}".encode())
        records.append(_field(1, step + 1) + _field(2, _field(1, item) + _field(2, _field(1, step))))
    for record in records:
        typed = b"\x01" + record
        out += struct.pack("<IH", binascii.crc32(typed), len(record)) + typed
    path.parent.mkdir(parents=True)
    path.write_bytes(out)


def traces(page):
    """Writes two ranks' traces in the form of PyTorch's profiler."""
    (page.folder / "traces").mkdir()
    for rank in (0, 1):
        path = page.folder / "traces" / f"rank{rank}.json"
        subprocess.run([sys.executable, str(REPOSITORY / "bench" / "audit" / "trace.py"), "3e5", str(path)], check=True)
        path.write_text(path.read_text().replace('"rank": 3, "world_size": 8', f'"rank": {rank}, "world_size": 2'))


def flight_dumps(page):
    """Writes dumps of NCCL's flight recorder in which rank 1 has not launched the third all-reduce."""
    os.makedirs(page.folder / "shared" / "dumps")
    for rank in (0, 1):
        entries = [{"frames": [], "record_id": n, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": n, "p2p_seq_id": n,
                    "op_id": n, "profiling_name": "nccl:all_reduce", "time_created_ns": 1712345678000000000 + n, "input_sizes": [[8]],
                    "input_dtypes": ["Float"], "output_sizes": [[8]], "output_dtypes": ["Float"], "is_p2p": False, "timeout_ms": 600000,
                    "state": "completed" if n < 3 else "started", "retired": n < 3} for n in (range(1, 4) if rank == 0 else range(1, 3))]
        status = {"0": {"last_enqueued_collective": len(entries), "last_started_collective": len(entries), "last_completed_collective": 2}}
        groups = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
        (page.folder / "shared" / "dumps" / f"nccl_trace_rank_{rank}").write_bytes(
            pickle.dumps({"version": "2.5", "pg_config": groups, "pg_status": status, "entries": entries}, protocol=2))


def checkpoints(page):
    """Provides checkpoints under each name that checkpoints.md uses."""
    subprocess.run([sys.executable, "-W", "ignore", str(REPOSITORY / "examples" / "checkpoints" / "train.py"), str(page.folder / "runs" / "exp1"),
                    "--steps", "80", "--every", "20", "--quiet"], check=True)
    steps = sorted((page.folder / "runs" / "exp1").iterdir(), key=lambda p: int(p.name.rpartition("-")[2]))
    for ours, theirs in zip(steps, ("step-500", "step-1000", "step-2000")):
        (page.folder / theirs).mkdir()
        state = torch.load(ours / "model.pt")
        torch.save({"model": state["model"]}, page.folder / theirs / "model.pt")
    shutil.copy(steps[-1] / "model.pt", page.folder / "last.pt")
    weights = {"layers.0.attention.wq.weight": torch.randn(8, 8), "tok_embeddings.weight": torch.randn(16, 8)}
    torch.save({"model": weights}, page.folder / "merged.pt")
    torch.save({"model": weights}, page.folder / "model.pt")
    (page.folder / "iter_0007000").mkdir()
    halves = [{name: w.chunk(2, 0)[rank].clone() for name, w in weights.items()} for rank in (0, 1)]
    for rank, half in enumerate(halves):
        (page.folder / "iter_0007000" / f"mp_rank_{rank:02}").mkdir()
        torch.save({"model": half}, page.folder / "iter_0007000" / f"mp_rank_{rank:02}" / "model.pt")
    theirs = {"model.layers.0.self_attn.q_proj.weight": weights["layers.0.attention.wq.weight"],
              "model.embed_tokens.weight": weights["tok_embeddings.weight"]}
    (page.folder / "export").mkdir()
    safetensors_file.write(page.folder / "export" / "model.safetensors", theirs, {"format": "pt"})
    _shards(page.folder / "checkpoint-1500", theirs)
    table = next(rows for _, language, rows in page.blocks() if language == "toml" and rows[0] == "[names]")
    (page.folder / "names.toml").write_text("\n".join(table) + "\n")


def _shards(folder, tensors):
    """Writes a model as one safetensors file per tensor, with their index."""
    folder.mkdir()
    files = {name: f"model-{i:05}-of-{len(tensors):05}.safetensors" for i, name in enumerate(tensors, 1)}
    for name, file in files.items():
        safetensors_file.write(folder / file, {name: tensors[name]}, {"format": "pt"})
    total = sum(t.numel() * t.element_size() for t in tensors.values())
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": files}))


def model_of_a_hub(page):
    (page.folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64,
        "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 8192, "torch_dtype": "bfloat16"}))


def rollouts(page):
    """Writes what the page's own loop writes: the records of a batch, rank by rank."""
    os.makedirs(page.folder / "runs" / "exp1")
    draw = random.Random(5)
    for rank in (0, 1):
        rows = []
        for number in range(32):
            logprobs = [-draw.expovariate(1) for _ in range(24)]
            rows.append(json.dumps({
                "step": number // 8, "sequence_id": f"{rank}-{number}", "tokens": [draw.randrange(1000) for _ in range(24)],
                "loss_mask": [0] * 4 + [1] * 20, "rollout_logprobs": logprobs,
                "train_logprobs": [min(0.0, x + draw.gauss(0, 0.01)) for x in logprobs], "weight_versions": [number // 8] * 24,
                "train_version": number // 8, "temperature": 1.0, "logprob_mode": "raw_logprobs", "worker": "engine-0"}))
        (page.folder / "runs" / "exp1" / f"rollouts-{rank}.jsonl").write_text("\n".join(rows) + "\n")


def ledger(page):
    shutil.copy(REPOSITORY / "examples" / "ledger" / "ledger.toml", page.folder / "ledger.toml")


def downloaded_capsule(page):
    """Provides the tar that plumbd's page offers for download."""
    name = f"capsule-{page.words['FINDING']}"
    done, stated = page.run(f"plumb capsule {page.words['FINDING']} --output {name} && tar -cf {name}.tar {name} && rm -r {name}", {})
    if done != 0:
        raise AssertionError(stated)


def own_rule(page):
    """Writes the page's rule, and a table in which the gradient norm is above 1 from step 30 on."""
    text = next("\n".join(rows) for _, language, rows in page.blocks() if language == "python")
    (page.folder / "my_rules.py").write_text(text + "\n")
    rows = [f"{i},{2 - i / 100},{0.5 if i < 30 else 40.0}" for i in range(60)]
    (page.folder / "train.csv").write_text("\n".join(["step,loss,grad_norm", *rows]) + "\n")


def healthy_runs(page):
    """Writes five healthy runs, and one whose gradient norm is too large from step 40 on."""
    draw = random.Random(7)
    for name in ("a", "b", "c", "d", "e", "new"):
        os.makedirs(page.folder / "runs" / name)
        norms = [0.5 + 0.1 * draw.random() + (20 if name == "new" and i >= 40 else 0) for i in range(80)]
        rows = [f"{i},{2 - i / 100 + 0.01 * draw.random()},{norm}" for i, norm in enumerate(norms)]
        (page.folder / "runs" / name / "train.csv").write_text("\n".join(["step,loss,grad_norm", *rows]) + "\n")


def recorded_twice(page):
    """Writes both halves of four sequences, two tables of one run, and two checkpoints of one tensor, all with the same bits."""
    draw = random.Random(3)
    halves = {"engine": [], "trainer": []}
    for sequence in range(4):
        values = [struct.unpack("<f", struct.pack("<f", -draw.expovariate(1)))[0] for _ in range(6)]
        tokens = [draw.randrange(1000) for _ in values]
        for name, column in (("engine", "rollout_logprobs"), ("trainer", "train_logprobs")):
            halves[name].append(json.dumps({"step": 0, "sequence_id": f"s{sequence}", "tokens": tokens, "loss_mask": 1, column: values}))
    for name, rows in halves.items():
        (page.folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n")
    header = json.dumps({"model.layers.0.weight": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    for run, checkpoint in (("old", "ckpt"), ("new", "ckpt-new")):
        os.makedirs(page.folder / "runs" / run)
        rows = [f"{i},{2 - i / 100}" for i in range(40)]
        (page.folder / "runs" / run / "train.csv").write_text("\n".join(["step,loss", *rows]) + "\n")
        os.makedirs(page.folder / checkpoint / "step-100")
        data = struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.5, -2.25)
        (page.folder / checkpoint / "step-100" / "model.safetensors").write_bytes(data)


def sources(page):
    """Makes the folder look like a source tree, so that paths of the tree in the page's commands exist."""
    for name in ("examples", "tools", "tests", "bench"):
        (page.folder / name).symlink_to(REPOSITORY / name)
