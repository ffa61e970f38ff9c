"""plumb diff of two checkpoints: compared with torch's results; equality over layouts and names."""

import copy
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import InAFolder, PLUMB, audit, notes, problems, safetensors, serious, train


def diff(*arguments):
    done = subprocess.run([PLUMB, "diff", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


class Case(InAFolder):
    def save(self, name, value):
        return super().save(value, name)

    def compared(self, *arguments):
        status, out, err = diff(*arguments, "--format", "json")
        self.assertEqual((status, err), (0, ""))
        report = json.loads(out)
        return report, {t["name"]: t for t in report["tensors"]}


class Changes(Case):
    def test_against_torch(self):
        for dtype in (torch.float32, torch.bfloat16):
            train(self.folder / "exp", ema=True, dtype=dtype)
            was, a, b = (torch.load(self.folder / f"exp/step-{s}/model.pt") for s in (4, 8, 12))
            report, tensors = self.compared(self.folder / "exp/step-8", self.folder / "exp/step-12/model.pt", "--before", self.folder / "exp/step-4")
            self.assertEqual((report["a"]["step"], report["b"]["step"]), (8, 12))
            for name in a["model"]:
                x, y, z = (c["model"][name].double() for c in (a, b, was))
                reported, change = tensors[name], y - x
                self.assertAlmostEqual(reported["norm_a"], x.norm().item(), delta=1e-6 * x.norm().item())
                self.assertAlmostEqual(reported["norm_change"], change.norm().item(), delta=1e-6 * change.norm().item())
                self.assertEqual(reported["differ"], int((x != y).sum()))
                cosine = torch.nn.functional.cosine_similarity((x - z).flatten(), change.flatten(), dim=0).item()
                self.assertAlmostEqual(reported["cosine"], cosine, delta=1e-6)
                at = tuple(reported["largest"]["at"])
                self.assertEqual(abs(change[at]), abs(change).max())
                if x.dim() == 2:
                    moved = change.norm(dim=1) / x.norm(dim=1)
                    self.assertEqual([r["row"] for r in reported["rows_most"]], moved.topk(3).indices.tolist())
                    self.assertEqual(reported["rows_unmoved"], int((change.norm(dim=1) == 0).sum()))
                    exact = torch.linalg.svdvals(change)
                    for i, one in enumerate(reported["singular_values_of_change"]):
                        nearest = (exact - one["value"]).abs().min().item()
                        self.assertLessEqual(nearest, one["error"] + 1e-9)
                        self.assertAlmostEqual(one["value"], exact[i].item(), delta=max(one["error"], 0.03 * exact[i].item()))
            self.assertEqual(tensors["layers.0.weight/exp_avg"]["kind"], "optimizer")
            self.assertEqual(tensors["layers.0.weight/average"]["kind"], "average")
            layers = {g["name"]: g for g in report["layers"]}
            self.assertEqual(set(layers), {"embed", "layers.0", "layers.1", "norm", "head"})
            squares = sum((b["model"][n].double() - a["model"][n].double()).square().sum().item() for n in ("layers.1.weight", "layers.1.bias"))
            self.assertAlmostEqual(layers["layers.1"]["norm_change"], squares**0.5, delta=1e-6)
            self.assertEqual({g["name"] for g in report["roles"]}, {"embedding", "other", "bias", "norm", "head"})

    def test_text(self):
        torch.manual_seed(1)
        one = {"layers.0.attn.q_proj.weight": torch.randn(8, 6), "old.weight": torch.randn(5, 5), "gone.bias": torch.randn(3), "still.weight": torch.ones(4, 4)}
        two = {"layers.0.attn.q_proj.weight": one["layers.0.attn.q_proj.weight"].clone(), "new.weight": one["old.weight"], "still.weight": torch.ones(4, 4)}
        two["layers.0.attn.q_proj.weight"][3] *= 2
        status, out, _ = diff(self.save("x/step-1/m.pt", one), self.save("x/step-2/m.pt", two))
        self.assertEqual(status, 0)
        self.assertIn("1 tensor changed, 1 identical in every bit: still.weight", out)
        self.assertIn("Only in A: old.weight, gone.bias", out)
        self.assertIn("The same bits under a different name: old.weight is B's new.weight", out)
        self.assertIn("rows that changed most: 3 (1); unchanged 7 of 8", out)
        self.assertIn("singular values of the change", out)
        self.assertRegex(out, r"attention +1 of 1 ")

    def test_the_newest_of_a_run(self):
        train(self.folder / "a", saves=2)
        train(self.folder / "b", saves=3)
        status, out, _ = diff(self.folder / "a", self.folder / "b")
        self.assertEqual(status, 0)
        self.assertIn("step 8 of a", out)
        self.assertIn("step 12 of b, 24 tensors (the newest of 3 steps)", out)

    def test_poison_types_and_shapes(self):
        bad = torch.randn(4, 4)
        bad[1, 2] = float("nan")
        a = self.save("a.pt", {"w.a": torch.ones(4, 4), "w.b": torch.ones(3), "w.c": torch.ones(2, dtype=torch.complex64), "w.d": torch.zeros(2, 2), "w.e": torch.arange(6)})
        b = self.save("b.pt", {"w.a": bad, "w.b": torch.ones(5), "w.c": torch.ones(2, dtype=torch.complex64), "w.d": torch.ones(2, 2), "w.e": torch.arange(6) * 2})
        _, tensors = self.compared(a, b)
        self.assertEqual((tensors["w.a"]["non_finite"], tensors["w.a"]["differ"]), (1, 16))
        self.assertIn("shape [3] in A, [5] in B", tensors["w.b"]["wrong"])
        self.assertIn("type that this version cannot read", tensors["w.c"]["wrong"])
        self.assertEqual(tensors["w.d"]["relative_change"], "inf")
        self.assertEqual(tensors["w.e"]["differ"], 5)

    def test_usage(self):
        a = self.save("a.pt", {"w.a": torch.ones(2, 2)})
        other = self.save("b.pt", {"v.a": torch.zeros(2, 3)})
        log = self.write("x.csv", b"step,loss\n1,2\n2,1\n")
        self.assertEqual(diff(a, other)[0], 2)
        self.assertEqual(diff(a, log)[0], 2)
        self.assertEqual(diff(log, log, "--expect-equal")[0], 2)
        self.assertEqual(diff(a, a, "--before", self.folder / "none.pt")[0], 2)
        self.assertEqual(diff(a, self.folder / "none.pt", "--expect-equal")[0], 2)
        cut = self.write("cut.pt", a.read_bytes()[:-30])
        self.assertEqual(diff(a, cut, "--expect-equal")[0], 2)
        train(self.folder / "runs/a", saves=1)
        train(self.folder / "runs/b", saves=1)
        self.assertIn("2 runs", diff(self.folder / "runs", a)[2])


class Equal(Case):
    def equal(self, a, b, *flags):
        status, out, err = diff(a, b, "--expect-equal", *flags)
        self.assertEqual(err, "")
        self.assertEqual(status, 0 if "\nequal: " in "\n" + out else 1)
        return out

    def model(self):
        torch.manual_seed(2)
        return {"embed.weight": torch.randn(12, 8), "layers.0.qkv.weight": torch.randn(24, 8), "layers.0.proj.weight": torch.randn(8, 16), "layers.0.proj.bias": torch.randn(8), "step": torch.tensor(3)}

    def test_a_resume(self):
        train(self.folder / "a", saves=3)
        train(self.folder / "b", saves=3)
        self.assertIn("equal: 24 tensors", self.equal(self.folder / "a", self.folder / "b"))
        train(self.folder / "c", saves=3, seed=1)
        self.assertIn("first difference: embed.weight: element [0, 0] is", self.equal(self.folder / "a", self.folder / "c"))

    def test_counters(self):
        x = torch.ones(2)
        state = lambda step, lr: {"model": {"w": x}, "optimizer": {"state": {0: {"exp_avg": x, "step": step}}, "param_groups": [{"lr": lr, "params": [0]}]}}
        a = self.save("a.pt", state(5, 0.1))
        self.assertIn("optimizer.step: 5 in A, 6 in B", self.equal(a, self.save("b.pt", state(6, 0.1))))
        self.assertIn("lr of group 0: 0.1 in A, 0.2 in B", self.equal(a, self.save("c.pt", state(5, 0.2))))

    def test_one_element(self):
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool):
            x = (torch.randn(7, 5) > 0).to(dtype)
            y = x.clone()
            y[6, 4] = 1 - y[6, 4].int()
            a, b = self.save("a.pt", {"w": x, "v": x}), self.save("b.pt", {"w": y, "v": x})
            self.assertIn(f"w: element [6, 4] is {int(x[6, 4])} in A, {int(y[6, 4])} in B (1 of 35 differ)", self.equal(a, b))
        zero = self.save("a.pt", {"w": torch.zeros(2)})
        self.assertIn("first difference", self.equal(zero, self.save("b.pt", {"w": -torch.zeros(2)})))
        self.assertIn("f32 in A, bf16 in B", self.equal(zero, self.save("c.pt", {"w": torch.zeros(2).bfloat16()})))

    def test_merged_and_sharded(self):
        model = self.model()
        names = list(model)
        merged = self.save("a/step-7/model.pt", model)
        first, second = {n: model[n] for n in names[:2]}, {n: model[n] for n in names[2:]}
        self.write("b/checkpoint-7/m-1.safetensors", safetensors(first, {"format": "pt"}))
        self.write("b/checkpoint-7/m-2.safetensors", safetensors(second, {"format": "pt"}))
        index = self.write("b/checkpoint-7/m.safetensors.index.json", json.dumps({"weight_map": {n: "m-1.safetensors" if n in first else "m-2.safetensors" for n in names}}).encode())
        for other in (index, self.folder / "b"):
            self.assertIn("equal: 5 tensors", self.equal(merged, other))
        second["layers.0.proj.bias"] = second["layers.0.proj.bias"] + 1
        self.write("b/checkpoint-7/m-2.safetensors", safetensors(second, {"format": "pt"}))
        self.assertIn("first difference: layers.0.proj.bias: element [0]", self.equal(merged, index))

    def parallel(self, model, ranks=2, change=lambda rank, shard: None):
        """Column-parallel tensors split by rows, row-parallel ones by columns, the rest copied."""
        for rank in range(ranks):
            shard = dict(model)
            shard["embed.weight"] = model["embed.weight"].chunk(ranks)[rank].clone()
            shard["layers.0.qkv.weight"] = model["layers.0.qkv.weight"].chunk(ranks)[rank].clone()
            shard["layers.0.proj.weight"] = model["layers.0.proj.weight"].chunk(ranks, 1)[rank].clone()
            shard["layers.0.proj.bias"] = model["layers.0.proj.bias"].clone()
            change(rank, shard)
            self.save(f"tp{ranks}/iter_0000007/mp_rank_{rank:02d}/model_optim_rng.pt", {"model": shard, "iteration": 7})
        return self.folder / f"tp{ranks}"

    def test_tensor_parallel(self):
        model = self.model()
        merged = self.save("a/step-7/model.pt", {"model": model})
        for ranks in (2, 4):
            self.assertIn("equal: 5 tensors", self.equal(merged, self.parallel(model, ranks)))
            self.assertIn("equal: 5 tensors", self.equal(self.folder / f"tp{ranks}", merged))

        def one(rank, shard):
            if rank == 1:
                shard["layers.0.proj.weight"][2, 3] = 9

        sharded = self.parallel(model, change=one)
        self.assertIn("layers.0.proj.weight: element [2, 11] is", self.equal(merged, sharded))
        _, tensors = self.compared(merged, sharded)
        self.assertEqual(tensors["layers.0.proj.weight"]["largest"]["at"], [2, 11])
        self.assertEqual([r["row"] for r in tensors["layers.0.proj.weight"]["rows_most"]], [2])
        self.assertEqual(tensors["layers.0.qkv.weight"]["differ"], 0)

        def copy(rank, shard):
            if rank == 1:
                shard["layers.0.proj.bias"][5] = 9

        self.assertIn("layers.0.proj.bias: element [5] is", self.equal(merged, self.parallel(model, change=copy)))
        self.assertIn("do not add up", self.equal(merged, self.parallel(model, change=lambda r, s: s.update({"embed.weight": torch.ones(5, 8)}))))

    def test_names(self):
        model = self.model()
        a = self.save("a.pt", {"model": model, "optimizer": {"state": {}, "param_groups": []}})
        other = {"model.embed_tokens.weight": model["embed.weight"], "model.layers.0.self_attn.qkv.weight": model["layers.0.qkv.weight"],
                 "model.layers.0.self_attn.out.weight": model["layers.0.proj.weight"], "model.layers.0.self_attn.out.bias": model["layers.0.proj.bias"], "step": model["step"]}
        b = self.write("b.safetensors", safetensors(other, {"format": "pt"}))
        out = self.equal(a, b)
        self.assertIn("embed.weight: only in A; B has its bits as model.embed_tokens.weight (declare it with --map)", out)
        names = self.write("names.toml", b'[names]\n"embed.*" = "model.embed_tokens.*"\n"layers.*.qkv.weight" = "model.layers.*.self_attn.qkv.weight"\n"layers.*.proj.*" = "model.layers.*.self_attn.out.*"\n')
        self.assertIn("equal: 5 tensors", self.equal(a, b, "--map", names))
        _, tensors = self.compared(a, b, "--map", names)
        self.assertEqual(tensors["layers.0.qkv.weight"]["name_b"], "model.layers.0.self_attn.qkv.weight")
        for text, expected in ((b"names = 3", "table [names]"), (b'[names]\n"a" = "b*"', "as many *"), (b"[names]\na = 3", "as text"), (b"[names", "TOML")):
            status, _, err = diff(a, b, "--expect-equal", "--map", self.write("bad.toml", text))
            self.assertEqual(status, 2)
            self.assertIn(expected, err)

    def test_an_export_has_no_optimizer(self):
        train(self.folder / "a", saves=1)
        checkpoint = torch.load(self.folder / "a/step-4/model.pt")
        out = self.equal(self.folder / "a", self.save("export/step-4/m.pt", checkpoint["model"]))
        self.assertIn("not compared: only A contains an optimizer's state", out)
        self.assertIn("equal: 8 tensors", out)

    def test_turned_and_large(self):
        torch.manual_seed(0)
        x = torch.randn(1500, 1100)
        y = x.clone()
        y[1499, 1098] += 1
        a = self.save("a.pt", {"w.a": x, "w.b": x.t()})
        self.assertIn("equal: 2 tensors", self.equal(a, self.save("b.pt", {"w.a": x.t().contiguous().t(), "w.b": x.t().contiguous()})))
        self.assertIn("w.a: element [1499, 1098] is", self.equal(a, self.save("c.pt", {"w.a": y.t().contiguous().t(), "w.b": x.t()})))

    def test_types_that_are_not_read(self):
        """A tensor that was not compared is not reported as equal."""
        x, z = torch.ones(3), torch.ones(2, dtype=torch.complex64)
        a = self.save("a.pt", {"w": x, "z": z})
        status, out, _ = diff(a, self.save("b.pt", {"w": x, "z": 2 * z}), "--expect-equal")
        self.assertEqual(status, 2)
        self.assertIn("not compared: z has a type that this version cannot read (torch.ComplexFloatStorage)", out)
        self.assertIn("not decided: 1 not compared; equal are 1 tensor", out)
        self.assertNotIn("\nequal: ", "\n" + out)
        # Facts that do not need the elements are reported; a difference elsewhere remains a difference.
        self.assertIn("z: shape [2] in A, [3] in B", self.equal(a, self.save("c.pt", {"w": x, "z": torch.ones(3, dtype=torch.complex64)})))
        self.assertIn("z: torch.ComplexFloatStorage in A, f32 in B", self.equal(a, self.save("d.pt", {"w": x, "z": torch.ones(2)})))
        self.assertIn("first difference: w", self.equal(a, self.save("e.pt", {"w": x + 1, "z": z})))
        status, out, _ = diff(a, a, "--expect-equal", "--format", "json")
        report = json.loads(out)
        self.assertEqual((status, report["equal"], len(report["not_compared"]), report["unequal"]), (2, False, 1, []))

    def test_steps_and_numbers(self):
        """A checkpoint contains more than its tensors."""
        x = {"w": torch.ones(2)}
        base = {"model": x, "optimizer": {"state": {0: {"exp_avg": torch.ones(2), "step": 5}}, "param_groups": [{"lr": 0.1, "weight_decay": 0.1, "amsgrad": False, "params": [0]}]},
                "scaler": {"scale": 65536.0}, "epoch": 3, "best": float("nan")}
        a = self.save("a.pt", base)
        self.assertIn("equal: 2 tensors", self.equal(a, self.save("b.pt", base)))

        def changed(*path_and_value):
            value = copy.deepcopy(base)
            at = value
            for key in path_and_value[:-2]:
                at = at[key]
            at[path_and_value[-2]] = path_and_value[-1]
            return self.save("c.pt", value)

        for change, stated in (
            (("epoch", 4), "epoch: 3 in A, 4 in B"),
            (("best", 0.5), "best: nan in A, 0.5 in B"),
            (("scaler", "scale", 32768.0), "scaler.scale: 65536.0 in A, 32768.0 in B"),
            (("optimizer", "param_groups", 0, "weight_decay", 0.0), "optimizer.param_groups.0.weight_decay: 0.1 in A, 0.0 in B"),
            (("optimizer", "param_groups", 0, "amsgrad", True), "optimizer.param_groups.0.amsgrad: False in A, True in B"),
        ):
            with self.subTest(stated):
                out = self.equal(a, changed(*change))
                self.assertIn("first difference: " + stated, out)
                self.assertIn("1 differ, 2 equal", out)
        out = self.equal(a, changed("optimizer", "state", 0, "step", 6))  # reported once
        self.assertIn("1 differ, 2 equal", out)
        del base["epoch"]
        self.assertIn("not compared: only A contains 1 value (epoch)", self.equal(a, self.save("c.pt", base)))

    def test_names_of_files_describe_no_step(self):
        """The step comes from the content; for two copies it is the same."""
        x = {"w": torch.ones(2)}
        one, two = self.save("x/step-4/m.pt", x), self.save("y/step-8/m.pt", x)
        self.assertIn("equal: 1 tensor", self.equal(one, two))
        self.assertIn("equal: 1 tensor", self.equal(one, self.save("last.pt", x)))
        a, b = (self.save(name, {"model": x, "step": 3}) for name in ("step-9.pt", "best.pt"))
        out = self.equal(a, b)
        self.assertIn("equal: 1 tensor", out)
        self.assertIn("(step 3 of ", out)
        for key in ("step", "global_step"):
            out = self.equal(self.save("c/step-9.pt", {"model": x, key: 3}), self.save("d/step-9.pt", {"model": x, key: 4}))
            self.assertIn(f"first difference: {key}: 3 in A, 4 in B", out)
            self.assertIn("1 differ, 1 equal", out)
        # For a file that another library wrote, from its metadata.
        exported = [self.write(f"{step}/e.safetensors", safetensors({"layer.w": torch.ones(2)}, {"format": "pt", "step": str(step)})) for step in (3, 4)]
        self.assertIn("first difference: step: 3 in A, 4 in B", self.equal(*exported))

    def test_the_witness_is_exact(self):
        """The printed values of both sides are never the same text."""
        def stated(x, y):
            return self.equal(self.save("a.pt", {"w": x}), self.save("b.pt", {"w": y}))

        big = 2**53
        self.assertIn(f"is {big} in A, {big + 1} in B", stated(torch.tensor([big]), torch.tensor([big + 1])))
        self.assertIn(f"is {-2**63} in A, {2**63 - 1} in B", stated(torch.tensor([-(2**63)]), torch.tensor([2**63 - 1])))
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16):
            self.assertIn("is 0 in A, -0 in B", stated(torch.zeros(1, dtype=dtype), -torch.zeros(1, dtype=dtype)))
        nan = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
        self.assertIn("is nan (bits 0x7fc00000) in A, nan (bits 0x7fc00001) in B", stated(nan[:1].clone(), nan[1:].clone()))

    def test_a_line_of_the_map_that_fits_nothing(self):
        a, b = self.save("a.pt", {"old.w": torch.ones(2)}), self.save("b.pt", {"new.w": torch.ones(2)})
        names = self.write("names.toml", b'[names]\n"old.*" = "new.*"\n"odl.*" = "x.*"\n"old.w" = "y"\n')
        out = self.equal(a, b, "--map", names)
        for pattern in ("odl.*", "old.w"):  # the second one comes after a pattern that matches first
            self.assertIn(f'note: of the map, "{pattern}" fits no name of A', out)
        self.assertNotIn('"old.*"', out)
        self.assertIn("Names in the map that match no name of A: odl.*, old.w", diff(a, b, "--map", names)[1])
        report, _ = self.compared(a, b, "--map", names)
        self.assertEqual(report["map_unfitted"], ["odl.*", "old.w"])
        lost = self.write("lost.toml", b'[names]\n"old.*" = "other.*"\n')
        self.assertIn("old.w: only in A (other.w by the map)", self.equal(a, b, "--map", lost))

    def test_interleaved_shards(self):
        """A rank holds its share of each fused part; the merged tensor holds the parts one after another."""
        torch.manual_seed(4)
        gate, up = torch.randn(16, 6), torch.randn(16, 6)
        query, key, value = torch.randn(32, 6), torch.randn(8, 6), torch.randn(8, 6)  # 4 queries per key
        same = [torch.randn(8, 6) for _ in range(3)]
        merged = {"layers.0.mlp.gate_up.weight": torch.cat([gate, up]), "layers.0.attn.qkv.weight": torch.cat([query, key, value]),
                  "layers.1.attn.qkv.weight": torch.cat(same), "layers.1.attn.qkv.bias": torch.cat(same)[:, 0].clone(), "layers.0.norm.weight": torch.randn(6)}
        for ranks in (2, 4):
            def shard(parts, rank):
                return torch.cat([p.chunk(ranks)[rank] for p in parts])

            def save(change=lambda rank, model: None):
                for rank in range(ranks):
                    model = {"layers.0.mlp.gate_up.weight": shard([gate, up], rank), "layers.0.attn.qkv.weight": shard([query, key, value], rank),
                             "layers.1.attn.qkv.weight": shard(same, rank), "layers.1.attn.qkv.bias": shard(same, rank)[:, 0].clone(),
                             "layers.0.norm.weight": merged["layers.0.norm.weight"]}
                    change(rank, model)
                    self.save(f"tp{ranks}/iter_0000007/mp_rank_{rank:02d}/model_optim_rng.pt", {"model": model})
                return self.folder / f"tp{ranks}"

            whole, parts = self.save("m/step-7/model.pt", {"model": merged}), save()
            for a, b in ((whole, parts), (parts, whole)):
                out = self.equal(a, b)
                self.assertIn("equal: 5 tensors", out)
                self.assertIn(f"note: layers.0.mlp.gate_up.weight: each rank's rows are 2 blocks (of {16 // ranks}, {16 // ranks})", out)
                self.assertIn(f"note: layers.0.attn.qkv.weight: each rank's rows are 3 blocks (of {32 // ranks}, {8 // ranks}, {8 // ranks})", out)
                self.assertIn(f"note: layers.1.attn.qkv.weight: each rank's rows are 3 blocks (of {8 // ranks}, {8 // ranks}, {8 // ranks})", out)
                self.assertEqual(out.count("note: "), 4)

            def one(rank, model):
                if rank == ranks - 1:
                    model["layers.0.mlp.gate_up.weight"][1, 2] = 9

            self.assertIn("first difference: layers.0.mlp.gate_up.weight: element", self.equal(whole, save(one)))

    def test_averages_in_a_list(self):
        """diffusers' EMAModel and torch_ema store averages as shadow_params, without names."""
        train(self.folder / "exp", saves=3, ema=True)
        for step in (4, 8, 12):
            path = self.folder / f"exp/step-{step}/model.pt"
            checkpoint = torch.load(path)
            average = checkpoint.pop("ema")
            checkpoint["ema"] = {"decay": 0.9, "optimization_step": step, "shadow_params": list(average.values())}
            torch.save(checkpoint, path)
            by_name = self.save(f"named/step-{step}/model.pt", {**checkpoint, "ema": average})
            listed = self.save(f"listed/step-{step}/model.pt", {**checkpoint, "ema": {"shadow_params": list(average.values())}})
            self.assertIn("equal: 32 tensors", self.equal(listed, by_name))
            self.assertIn("first difference: ema.decay: only in A", self.equal(path, by_name))
        _, report = audit(self.folder / "exp")
        self.assertIn("averages: 8 of 8 parameters named by order and shape", notes(report))
        self.assertEqual((problems(report), serious(report)), ("", []))
        # As a separate file, next to the model.
        torch.save({"decay": 0.9, "shadow_params": list(average.values())}, self.folder / "exp/step-12/ema.pt")
        self.assertIn("averages: 8 of 8 parameters named by order and shape", notes(audit(self.folder / "exp/step-12/ema.pt", self.folder / "exp/step-12/model.pt")[1]))

    def test_json(self):
        a = self.save("a.pt", {"w": torch.ones(2)})
        status, out, _ = diff(a, self.save("b.pt", {"w": torch.zeros(2)}), "--expect-equal", "--format", "json")
        report = json.loads(out)
        self.assertEqual((status, report["equal"], report["unequal"][0]["name"]), (1, False, "w"))


if __name__ == "__main__":
    unittest.main()
