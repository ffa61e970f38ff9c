"""plumb audit on checkpoints written by torch: healthy series, planted faults, malformed files."""

import io
import json
import os
import random
import subprocess
import sys
import tempfile
import unittest
import zipfile

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import InAFolder, PLUMB, Tiny, audit, notes, problems, safetensors, serious, train


class Healthy(InAFolder):
    def test_series_are_silent(self):
        for seed in range(3):
            for options in [{}, {"dtype": torch.bfloat16}, {"ema": True}, {"name": "ckpt_{}.pt"}, {"name": "global_step{}/mp_rank_00_model_states.pt"}]:
                with self.subTest(seed=seed, **options), tempfile.TemporaryDirectory() as folder:
                    train(folder, seed=seed, **options)
                    status, report = audit(folder)
                    self.assertEqual((status, problems(report), serious(report)), (0, "", []))
                    self.assertTrue(all(i["format"] == "checkpoint" and i["records"] > 20 for i in report["inputs"]))
                    self.assertGreater(report["coverage"]["judged"], 0)
                    self.assertIn("optimizer state: 8 of 8 parameters named by order and shape", notes(report))
                    steps = {v["site"]["step_last"] for v in report["verdicts"] if v["rule"] == "precision/non-finite"}
                    self.assertEqual(steps, {20})

    def test_run_and_step(self):
        train(self.folder, saves=2)
        report = audit(self.folder)[1]
        self.assertEqual({v["site"]["run"] for v in report["verdicts"]}, {"exp"})

    def test_the_name_wins(self):
        self.save({"model": Tiny().state_dict(), "step": 7}, "step-9/model.pt")
        report = audit(self.folder)[1]
        self.assertIn("step 9 according to its name, which is used; its content states 7", notes(report))
        self.assertEqual({v["site"]["step_last"] for v in report["verdicts"] if v["rule"] == "precision/non-finite"}, {9})

    def test_a_step_of_the_content(self):
        self.save({"model": Tiny().state_dict(), "global_step": torch.tensor(31)}, "last.pt")
        report = audit(self.folder)[1]
        self.assertEqual({v["site"]["step_last"] for v in report["verdicts"] if v["rule"] == "precision/non-finite"}, {31})


class Faults(InAFolder):
    def test_nan_in_a_weight(self):
        def plant(step, model, optimizer, checkpoint):
            if step == 12:
                checkpoint["model"] = {k: v.clone() for k, v in checkpoint["model"].items()}
                checkpoint["model"]["layers.1.weight"][3, 4] = float("nan")

        train(self.folder, plant=plant)
        status, report = audit(self.folder)
        self.assertEqual(status, 1)
        found = [f for f in report["findings"] if f["rule"] == "precision/non-finite"]
        self.assertEqual([(f["site"]["layer"], f["site"]["step_first"]) for f in found], [("layers.1.weight", 12)])

    def test_infinite_moment(self):
        def plant(step, model, optimizer, checkpoint):
            if step == 8:
                optimizer.state_dict()["state"][2]["exp_avg_sq"][0, 0] = float("inf")

        train(self.folder, saves=2, plant=plant)
        found = [f["site"] for f in audit(self.folder)[1]["findings"] if f["rule"] == "precision/non-finite"]
        self.assertEqual([(s["layer"], s["op"], s["step_first"]) for s in found], [("layers.1.weight", "exp_avg_sq", 8)])

    def test_resumed_without_the_optimizer(self):
        for planted in (False, True):
            with self.subTest(planted=planted), tempfile.TemporaryDirectory() as folder:
                def plant(step, model, optimizer, checkpoint):
                    if planted and step >= 12:
                        kept = checkpoint["optimizer"]["state"]
                        checkpoint["optimizer"]["state"] = {k: {**v, "step": v["step"] - 8} for k, v in kept.items()}

                train(folder, plant=plant)
                status, report = audit(folder)
                found = [(f["rule"], f["site"]["step_first"], f["site"]["step_last"]) for f in report["findings"]]
                # Every later checkpoint is at a later step than the one before it.
                self.assertEqual((status, found), (1, [("health/optimizer-state", 8, 12)]) if planted else (0, []))

    def test_a_step_of_the_group(self):
        for step, taken in ((10, 10), (20, 3)):
            groups = [{"lr": 0.1, "step": taken, "params": [0]}]
            self.save({"model": {"w.a": torch.ones(2) * step}, "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": groups}}, f"step-{step}/m.pt")
        self.assertEqual([f["rule"] for f in audit(self.folder)[1]["findings"]], ["health/optimizer-state"])

    def test_a_folder_of_transformers(self):
        for step in (500, 1000):
            folder = self.folder / f"checkpoint-{step}"
            folder.mkdir()
            torch.manual_seed(step)
            model = Tiny()
            optimizer = torch.optim.AdamW(model.parameters())
            model(torch.zeros(1, 2, dtype=torch.int64)).sum().backward()
            optimizer.step()
            torch.save(model.state_dict(), folder / "pytorch_model.bin")
            torch.save({**optimizer.state_dict(), "state": {k: {**v, "step": torch.tensor(float(step))} for k, v in optimizer.state_dict()["state"].items()}}, folder / "optimizer.pt")
            torch.save({"last_epoch": step, "_step_count": step + 1, "base_lrs": [0.1]}, folder / "scheduler.pt")
            torch.save({"python": random.getstate(), "cpu": torch.get_rng_state()}, folder / "rng_state.pth")
            (folder / "trainer_state.json").write_text("{}")
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report), serious(report)), (0, "", []))
        self.assertIn("optimizer state: 8 of 8 parameters named by order and shape", notes(report))
        passed = {v["rule"] for v in report["verdicts"] if v["verdict"] == "pass"}
        self.assertLessEqual({"health/optimizer-state", "precision/non-finite"}, passed)

    def test_resumed_without_the_schedule(self):
        def plant(step, model, optimizer, checkpoint):
            if step >= 12:
                checkpoint["lr_scheduler"]["last_epoch"] -= 8

        train(self.folder, plant=plant)
        self.assertEqual([(f["title"], f["level"]) for f in audit(self.folder)[1]["findings"]],
                         [("the learning-rate schedule was reset within a run", "warning")])

    def test_tied_weights(self):
        for planted in (False, True):
            with self.subTest(planted=planted), tempfile.TemporaryDirectory() as folder:
                def plant(step, model, optimizer, checkpoint):
                    tied = checkpoint["model"]
                    tied["head.weight"] = tied["embed.weight"].clone() if planted else tied["embed.weight"]
                    if planted and step >= 16:
                        tied["head.weight"][0, 0] += 1

                train(folder, plant=plant)
                status, report = audit(folder)
                found = [(f["rule"], f["site"]["layer"], f["site"]["step_first"], f["site"]["step_last"]) for f in report["findings"]]
                self.assertEqual(found, [("health/tied-weights", "head.weight", 12, 16)] if planted else [])
                self.assertEqual(status, 0)

    def unchanged(self, plant, seed=0, **options):
        """The findings of health/unchanged-tensor, and what it cannot decide."""
        with tempfile.TemporaryDirectory() as folder:
            train(folder, seed=seed, plant=plant, **options)
            report = audit(folder)[1]
        mine = [v for v in report["verdicts"] if v["rule"] == "health/unchanged-tensor" and v["verdict"] == "inconclusive"]
        found = [(f["rule"], f["site"]["layer"], f["site"]["step_first"], f["site"]["step_last"]) for f in report["findings"]]
        return found, {(v["site"]["layer"], v["reason"].split(":")[0]) for v in mine}

    def test_another_copy_is_saved(self):
        for seed in range(3):
            for dtype in (torch.float32, torch.bfloat16):
                kept = {}

                def plant(step, model, optimizer, checkpoint):
                    name = "layers.1.weight"
                    kept.setdefault(name, checkpoint["model"][name].clone())
                    checkpoint["model"][name] = kept[name]

                with self.subTest(seed=seed, dtype=dtype):
                    self.assertEqual(self.unchanged(plant, seed, dtype=dtype)[0], [("health/unchanged-tensor", "layers.1.weight", 4, 12)])

    def test_unchanged_for_a_reason(self):
        def still(checkpoint, kept):
            name = "layers.1.weight"
            kept.setdefault(name, checkpoint["model"][name].clone())
            checkpoint["model"][name] = kept[name]

        def frozen_on_the_way(step, model, optimizer, checkpoint, kept={}):
            still(checkpoint, kept)
            state = checkpoint["optimizer"]["state"][2]
            checkpoint["optimizer"]["state"][2] = kept.setdefault("state", {k: v.clone() for k, v in state.items()})

        def no_gradient(step, model, optimizer, checkpoint, kept={}):
            still(checkpoint, kept)
            state = checkpoint["optimizer"]["state"][2]
            checkpoint["optimizer"]["state"][2] = {k: v if k == "step" else torch.zeros_like(v) for k, v in state.items()}

        def a_base(step, model, optimizer, checkpoint, kept={}):
            checkpoint["model"]["base.weight"] = torch.ones(7, 5)
            checkpoint["model"]["bn.running_mean"] = torch.ones(7)
            checkpoint["model"]["bn.num_batches_tracked"] = torch.tensor(3)

        def rate_zero(step, model, optimizer, checkpoint, kept={}):
            still(checkpoint, kept)
            checkpoint["optimizer"]["param_groups"][0]["lr"] = 0.0

        def weights_alone(step, model, optimizer, checkpoint, kept={}):
            still(checkpoint, kept)
            del checkpoint["optimizer"]

        cases = [(frozen_on_the_way, set()), (no_gradient, set()), (a_base, set()), (weights_alone, {("layers.1.weight", "no-optimizer-state")})]
        for plant, unknown in cases:
            with self.subTest(plant.__name__):
                self.assertEqual(self.unchanged(plant), ([], unknown))
        found, unknown = self.unchanged(rate_zero)
        self.assertEqual(found, [])
        self.assertIn(("layers.1.weight", "rate-zero"), unknown)

    def test_neurons_of_one_initialisation(self):
        for seed in range(3):
            for planted in (False, True):
                with self.subTest(seed=seed, planted=planted), tempfile.TemporaryDirectory() as folder:
                    self.train_pair(folder, seed, planted)
                    found = [(f["rule"], f["site"]["layer"], f["witness"]["first_row"], f["witness"]["second_row"]) for f in audit(folder)[1]["findings"]]
                    self.assertEqual(found, [("health/duplicate-rows", "0.weight", 17, 40)] if planted else [])

    def train_pair(self, folder, seed, planted):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.Tanh(), torch.nn.Linear(96, 5))
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        for step in range(1, 10):
            if planted:  # the same in and out: one neuron, for any order of sums
                with torch.no_grad():
                    model[0].weight[40], model[0].bias[40] = model[0].weight[17], model[0].bias[17]
                    model[2].weight[:, 40] = model[2].weight[:, 17]
            x = torch.randn(32, 64)
            model.zero_grad()
            (model(x) - x[:, :5]).square().mean().backward()
            if planted:
                model[0].weight.grad[40], model[0].bias.grad[40] = model[0].weight.grad[17], model[0].bias.grad[17]
            optimizer.step()
            if step % 3 == 0:
                os.makedirs(f"{folder}/step-{step}", exist_ok=True)
                torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/step-{step}/m.pt")

    def copies(self, make, steps=3):
        for step in range(1, steps + 1):
            torch.manual_seed(step)
            self.save({"model": make(step)}, f"step-{step}/m.pt")
        report = audit(self.folder)[1]
        unknown = {v["reason"].split(":")[0] for v in report["verdicts"] if v["rule"] == "health/duplicate-rows" and v["verdict"] == "inconclusive"}
        return [(f["rule"], f["site"]["layer"], f["site"]["step_first"], f["site"]["step_last"]) for f in report["findings"]], unknown

    def test_copies_of_all_layouts(self):
        def rows(name, shape, first, second, dtype=torch.float32, turned=False):
            def make(step):
                weight = torch.randn(shape).to(dtype)
                weight[second] = weight[first]
                return {name: weight.transpose(0, 1).contiguous().transpose(0, 1) if turned else weight}
            return make

        bad = [rows("a.up.weight", (128, 64), 17, 40), rows("a.up.weight", (128, 65), 0, 127, torch.bfloat16), rows("a.experts", (8, 30, 70), 2, 7),
               rows("a.up.weight", (300, 67), 5, 299, torch.float16, turned=True), rows("a.up.weight", (70000, 64), 4, 60000)]
        for make in bad:
            name = next(iter(make(1)))
            self.assertEqual(self.copies(make)[0], [("health/duplicate-rows", name, 1, 2)])
        for make in [rows("a.up.weight", (128, 63), 17, 40), rows("a.up.bias", (128,), 17, 40)]:
            self.assertEqual(self.copies(make), ([], set()))
        self.assertEqual(self.copies(rows("lm_head.weight", (128, 64), 17, 40)), ([], {"unused-words"}))
        self.assertEqual(self.copies(rows("a.k_proj.weight", (128, 64), 17, 40)), ([], {"key-value-heads"}))
        self.assertEqual(self.copies(lambda step: {"a.up.weight": torch.ones(128, 64), "a.zero.weight": torch.zeros(128, 64)}), ([], set()))

    def test_experts_that_are_copies(self):
        def make(step, equal):
            experts = [torch.randn(16, 70) for _ in range(4)]
            if equal(step):
                experts[3] = experts[1].clone()
            return {f"layers.0.experts.{i}.w1": e for i, e in enumerate(experts)}

        name = "layers.0.experts.1.w1"
        self.assertEqual(self.copies(lambda s: make(s, lambda step: True))[0], [("health/duplicate-rows", name, 1, 2)])
        self.assertEqual(self.copies(lambda s: make(s, lambda step: step == 3))[0], [("health/duplicate-rows", name, 2, 3)])
        self.assertEqual(self.copies(lambda s: make(s, lambda step: step == 1)), ([], set()))  # upcycled

    def test_moments_are_gone(self):
        for how in ("gone", "zero", "frozen with its group", ""):
            def plant(step, model, optimizer, checkpoint):
                if step < 12 or not how:
                    return
                kept = dict(checkpoint["optimizer"]["state"])
                kept[2] = {"step": kept[2]["step"]} if how != "zero" else {k: v if k == "step" else torch.zeros_like(v) for k, v in kept[2].items()}
                groups = checkpoint["optimizer"]["param_groups"]
                if how.startswith("frozen"):
                    del kept[2]
                    groups = [{**groups[0], "params": [p for p in groups[0]["params"] if p != 2]}, *groups[1:]]
                checkpoint["optimizer"] = {"state": kept, "param_groups": groups}

            with self.subTest(how), tempfile.TemporaryDirectory() as folder:
                train(folder, plant=plant)
                status, report = audit(folder)
                found = [(f["rule"], f["witness"]["first_parameter"], f["site"]["step_first"], f["site"]["step_last"]) for f in report["findings"]]
                self.assertEqual(found, [("health/optimizer-state", "layers.1.weight", 8, 12)] if how in ("gone", "zero") else [])

    def test_masters(self):
        def save(change, dtype, seed):
            torch.manual_seed(seed)
            for step in (1, 2):
                names = ["a.weight", "b.weight"]
                masters = [torch.randn(300, 70), torch.randn(64, 5)]
                masters[0][0, 0] = -0.0
                weights = [m.to(dtype) for m in masters]
                if step == 2:
                    change(weights, masters)
                state = {i: {"step": step, "exp_avg": torch.randn_like(m), "master_param": m} for i, m in enumerate(masters)}
                groups = [{"lr": 0.1, "params": [0, 1]}]
                self.save({"model": dict(zip(names, weights)), "optimizer": {"state": state, "param_groups": groups}}, f"step-{step}/m.pt")

        def nothing(weights, masters):
            weights[0][0, 0] = 0.0

        def one(weights, masters):
            weights[0][250, 3] += weights[0][250, 3].abs() * 0.25 + 1

        def late(weights, masters):
            weights[0].copy_(masters[0] * 0.999)

        for seed in range(3):
            for dtype in (torch.bfloat16, torch.float16):
                for change, element in ((nothing, None), (one, 250 * 70 + 3), (late, -1)):
                    with self.subTest(seed=seed, dtype=dtype, change=change.__name__):
                        save(change, dtype, seed)
                        found = [(f["rule"], f["site"]["layer"], f["site"]["step_first"]) for f in audit(self.folder)[1]["findings"]]
                        self.assertEqual(found, [] if element is None else [("health/optimizer-state", "a.weight", 2)])
                        if element and element > 0:
                            f = audit(self.folder)[1]["findings"][0]
                            self.assertEqual((f["witness"]["element"], f["measured"]["value"] * 300 * 70), (element, 1))

        def stochastic(weights, masters):  # the other adjacent value
            ulp = torch.exp2(torch.floor(torch.log2(masters[0].abs())) - 7)
            nearest = weights[0].float()
            weights[0].copy_(torch.where(masters[0] == nearest, nearest, nearest + torch.sign(masters[0] - nearest) * ulp))

        save(stochastic, torch.bfloat16, 0)
        self.assertTrue(audit(self.folder)[1]["findings"])
        flags = ["--set", "health/optimizer-state.rounding=stochastic"]
        self.assertEqual(audit(self.folder, flags=flags)[1]["findings"], [])
        save(late, torch.float16, 0)
        self.assertTrue(audit(self.folder, flags=flags)[1]["findings"])

    def test_ranks(self):
        for planted in (False, True):
            with self.subTest(planted=planted):
                for step in (100, 200):
                    for rank in range(3):
                        torch.manual_seed(step)
                        norm = torch.randn(64)
                        torch.manual_seed(step + rank)
                        shard = torch.randn(64, 8)
                        if planted and rank == 2 and step == 200:
                            norm[5] += 1
                        model = {"language_model": {"encoder": {"layers.0.input_layernorm.weight": norm, "layers.0.mlp.dense_h_to_4h.weight": shard,
                                                                "layers.0.mlp.dense_h_to_4h.bias": shard[:, 0].clone()}}}
                        self.save({"model": model, "iteration": step}, f"iter_{step:07}/mp_rank_{rank:02}/model_optim_rng.pt")
                status, report = audit(self.folder)
                found = [f for f in report["findings"] if f["rule"] == "precision/replica-divergence"]
                if not planted:
                    self.assertEqual((status, serious(report)), (0, []))
                    continue
                self.assertEqual(status, 1)
                self.assertEqual([(f["site"]["layer"], f["site"]["ranks"]) for f in found],
                                 [("language_model.encoder.layers.0.input_layernorm.weight", [2])])
                unknown = [v for v in report["verdicts"] if v["rule"] == "precision/replica-divergence" and v["verdict"] == "inconclusive"]
                self.assertTrue(unknown and all(v["site"]["layer"].endswith("dense_h_to_4h.weight") for v in unknown))


class Infinities(InAFolder):
    """Intended infinities cause no finding; one among a weight's values does."""

    def test_a_mask_is_none_and_a_weight_is(self):
        mask = torch.full((8, 8), float("-inf")).triu(1)
        meant = {"mask": mask, "attn_bias": torch.randn(8, 8) + mask, "min_val": torch.tensor(float("inf")), "max_val": torch.tensor([float("-inf")])}
        weight = torch.randn(8, 8)
        self.save({"model": {**meant, "w": weight}, "val_loss": torch.tensor(float("nan"))})
        self.assertEqual(serious(audit(self.folder)[1]), [])
        for value in ("inf", "-inf", "nan"):
            with self.subTest(value):
                wrong = weight.clone()
                wrong[3, 4] = float(value)
                self.save({"model": {**meant, "w": wrong}})
                self.assertEqual([f["site"]["layer"] for f in audit(self.folder)[1]["findings"] if f["level"] == "error"], ["w"])


class Layouts(InAFolder):
    """A NaN next to a tensor's part of its storage is not a value of the tensor; one in it is found."""

    def test_strides_offsets_and_shared_storages(self):
        base = torch.randn(40, 60)
        base[0, 0] = float("nan")
        views = {"a.slice": base[1:, 1:], "a.step": base[1::3, 2::7], "a.turned": base.t()[1:, 1:], "a.row": base[3], "a.one": base[4, 4],
                 "a.wide": base[5:6].expand(30, 60), "a.none": base[40:], "a.cube": base[1:37].reshape(4, 9, 60).permute(2, 0, 1)}
        self.save(views)
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report), serious(report)), (0, "", []))
        values = [v["details"]["values"] for v in report["verdicts"] if v["rule"] == "precision/non-finite"]
        self.assertEqual(values, [sum(v.numel() for v in views.values())])
        for name in views:
            if views[name].numel() == 0:
                continue
            with self.subTest(name):
                view = views[name]
                # For a tensor that repeats a row, the row that it repeats.
                at, target = tuple(n - 1 for n in view.shape), view
                if name == "a.wide":
                    at, target = (5, 59), base
                kept = target[at].clone()
                target[at] = float("nan")
                self.save({name: view})
                target[at] = kept
                found = [f["site"]["layer"] for f in audit(self.folder)[1]["findings"] if f["rule"] == "precision/non-finite"]
                self.assertEqual(found, [name])

    def test_large_turned_tensor(self):
        base = torch.zeros(3000, 3000)
        base[2999, 1] = float("nan")
        self.save({"w.turned": base.t(), "w.part": base.t()[5:]})
        found = [f["site"]["layer"] for f in audit(self.folder)[1]["findings"] if f["rule"] == "precision/non-finite"]
        self.assertEqual(found, ["w.turned"])

    def test_every_dtype(self):
        types = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool]
        self.save({f"w.{i}": torch.ones(33, 3).to(t) for i, t in enumerate(types)} | {"w.complex": torch.ones(2, dtype=torch.complex64)})
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report)), (0, ""))
        self.assertEqual(report["inputs"][0]["records"], 11)
        self.assertIn("ComplexFloatStorage", notes(report))

    def test_parameters_and_numpy(self):
        import numpy

        self.save({"model": {"w": torch.nn.Parameter(torch.ones(3))}, "step": numpy.int64(5), "best": numpy.float32(0.5),
                   "state": numpy.random.get_state(), "device": torch.device("cpu"), "size": torch.Size([1, 2]), "seen": {1, 2}})
        status, report = audit(self.folder / "step-1" / "model.pt")
        self.assertEqual((status, problems(report)), (0, ""))

    def test_memory_does_not_grow(self):
        path = self.save({"w.large": torch.zeros(400 << 18), "w.turned": torch.zeros(8192, 4096).t()})
        # The child process measures its own child: a direct child would start with the memory of this process.
        request = ("import resource, subprocess, sys; done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL);"
               "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = subprocess.run([sys.executable, "-c", request, PLUMB, "audit", str(path), "--format", "json"], capture_output=True, text=True)
        status, kilobytes = map(int, done.stdout.split())
        self.assertEqual(status, 0)
        self.assertGreater(path.stat().st_size, 500 << 20)
        self.assertLess(kilobytes, 256 << 10)


class Sharded(InAFolder):
    def shards(self, index=None, total=None):
        torch.manual_seed(1)
        a, b = {"m.a.weight": torch.randn(8, 8)}, {"m.b.weight": torch.randn(4, 8), "m.b.bias": torch.randn(4)}
        self.write("checkpoint-5/model-00001-of-00002.safetensors", safetensors(a, {"format": "pt"}))
        self.write("checkpoint-5/model-00002-of-00002.safetensors", safetensors(b, {"format": "pt"}))
        names = {"m.a.weight": "model-00001-of-00002.safetensors", "m.b.weight": "model-00002-of-00002.safetensors", "m.b.bias": "model-00002-of-00002.safetensors"}
        names.update(index or {})
        text = json.dumps({"metadata": {"total_size": total or 4 * (64 + 32 + 4)}, "weight_map": names})
        return self.write("checkpoint-5/model.safetensors.index.json", text.encode())

    def test_whole(self):
        index = self.shards()
        for path in (self.folder, index):
            status, report = audit(path)
            self.assertEqual((status, problems(report), serious(report)), (0, "", []))
            self.assertEqual(sum(i["records"] for i in report["inputs"]), 3)
            self.assertEqual({i["format"] for i in report["inputs"]}, {"checkpoint"})

    def test_what_is_wrong_with_a_set(self):
        index = self.shards()
        (index.parent / "model-00002-of-00002.safetensors").unlink()
        status, report = audit(self.folder)
        self.assertEqual(status, 2)
        self.assertIn('expected the shard "model-00002-of-00002.safetensors" in the folder of its index', problems(report))
        # All tensors are present: some writers count tied weights twice, or in another dtype.
        self.shards(total=999)
        status, report = audit(self.folder)
        self.assertEqual((status, problems(report)), (0, ""))
        self.assertIn("the index states 999 bytes of tensors, its shards contain 400", notes(report))
        self.shards(index={"m.c.weight": "model-00001-of-00002.safetensors"})
        self.assertIn('expected tensor "m.c.weight" in "model-00001', problems(audit(self.folder)[1]))
        self.shards(index={"m.b.bias": "model-00001-of-00002.safetensors"})
        self.assertIn('expected tensor "m.b.bias" of "model-00002', problems(audit(self.folder)[1]))
        self.shards()
        self.write("checkpoint-5/model-00001-of-00002.safetensors", safetensors({"m.a.weight": torch.ones(8, 8), "m.b.bias": torch.ones(4)}, {"format": "pt"}))
        self.assertIn('expected tensor "m.b.bias" in one shard', problems(audit(self.folder)[1]))
        self.write("checkpoint-5/model.safetensors.index.json", index.read_bytes().replace(b'"m.a.weight"', b'"m.b.bias"'))
        self.assertIn('"m.b.bias" again', problems(audit(self.folder)[1]))

    def test_shards_of_other_folders_are_not_read(self):
        self.write("secret.safetensors", safetensors({"m.x.weight": torch.ones(1)}, {"format": "pt"}))
        self.shards(index={"m.x.weight": "../secret.safetensors"})
        self.assertIn("expected the name of a file", problems(audit(self.folder / "checkpoint-5")[1]))

    def test_dumps_stay_dumps(self):
        path = self.write("d.safetensors", safetensors({"values": torch.ones(4)}, {"kind": "tensor"}))
        report = audit(path)[1]
        self.assertEqual(report["inputs"][0]["format"], "safetensors")


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.system, (f"touch {self.path}",))


class Refused(InAFolder):
    def test_calls_are_left_closed(self):
        import argparse

        mark = self.folder / "ran"
        path = self.save({"model": {"w.a": torch.tensor([float("nan")])}, "x": Evil(mark), "args": argparse.Namespace(lr=1)})
        status, report = audit(path)
        self.assertEqual(status, 2)
        self.assertFalse(mark.exists())
        self.assertIn("found 1 call of posix.system (not decoded and not executed)", problems(report))
        self.assertNotIn("argparse", problems(report))
        self.assertIn("not decoded: 1 call of argparse.Namespace", notes(report))
        self.assertEqual([f["rule"] for f in report["findings"]], ["precision/non-finite"])

    def test_a_module_saved_whole(self):
        model = Tiny()
        with torch.no_grad():
            model.layers[1].bias[2] = float("nan")
        status, report = audit(self.save(model))
        self.assertEqual((status, problems(report)), (1, ""))
        self.assertEqual([f["site"]["layer"] for f in report["findings"]], ["layers.1.bias"])
        self.assertIn("not decoded: 1 call of files.Tiny", notes(report))

    def test_older_forms(self):
        path = self.save({"w.a": torch.ones(3)}, _use_new_zipfile_serialization=False)
        status, report = audit(path)
        self.assertEqual((status, report["inputs"][0]["format"]), (2, "checkpoint"))
        self.assertIn("found the older form", problems(report))

    def rewritten(self, change, method=zipfile.ZIP_STORED):
        source = io.BytesIO()
        torch.save({"w.a": torch.randn(64), "w.b": torch.randn(9)}, source)
        out = io.BytesIO()
        with zipfile.ZipFile(source) as old, zipfile.ZipFile(out, "w", method) as new:
            for name in old.namelist():
                data = change(name, old.read(name))
                if data is not None:
                    new.writestr(name, data)
        return self.write("step-1/model.pt", out.getvalue())

    def test_lies(self):
        lies = [
            (lambda n, d: d, zipfile.ZIP_DEFLATED, "expected data.pkl stored without compression, found it deflated"),
            (lambda n, d: None if n.endswith("/0") else d, 0, 'data/0", found no such member'),
            (lambda n, d: d[:-4] if n.endswith("/0") else d, 0, "expected 64 elements in the storage"),
            (lambda n, d: d[:50] if n.endswith("pkl") else d, 0, "expected"),
            (lambda n, d: d.replace(b"K@", b"J\xff\xff\xff\x7f") if n.endswith("pkl") else d, 0, "expected"),
            (lambda n, d: d.replace(b"K@\x85", b"J\xff\xff\xff\xff\x85") if n.endswith("pkl") else d, 0, "expected extents and strides of at least 0"),
            (lambda n, d: None if n.endswith("pkl") else d, 0, "expected a member data.pkl"),
        ]
        for change, method, expected in lies:
            path = self.rewritten(change, method)
            status, report = audit(path, flags=["--as", "checkpoint"])
            with self.subTest(expected):
                self.assertEqual(status, 2)
                self.assertIn(expected, problems(report))

    def test_highest_byte_first(self):
        def swap(name, data):
            if name.endswith("data.pkl"):
                return data
            if "/data/" in name:
                return b"".join(data[i : i + 4][::-1] for i in range(0, len(data), 4))
            return data

        path = self.rewritten(swap)
        with zipfile.ZipFile(path, "a") as z:
            z.writestr(z.namelist()[0].split("/")[0] + "/byteorder", b"big")
        status, report = audit(path)
        self.assertEqual((status, serious(report)), (0, []))

    def test_damage(self):
        out = io.BytesIO()
        torch.save({"model": Tiny(4, 5).state_dict(), "step": 3}, out)
        whole, rng = out.getvalue(), random.Random(3)
        for i in range(60):
            data = bytearray(whole)
            for _ in range(rng.randrange(1, 4)):
                data[rng.randrange(len(data))] = rng.choice([0, 255, 0x50, rng.randrange(256)])
            if i % 3 == 0:
                data = data[: rng.randrange(len(data))]
            path = self.write("step-1/model.pt", bytes(data))
            audit(path)


if __name__ == "__main__":
    unittest.main()
