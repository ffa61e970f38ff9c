"""Faults that only a series of checkpoints shows, planted with trainers in torch; and their near-misses."""

import os
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
try:
    import torch
except ImportError:
    print("skipped: torch is not there")
    sys.exit(77)

from files import audit, problems, serious, train

LONG = bool(os.environ.get("PLUMB_LONG"))
SEEDS = range(5 if LONG else 2)


def adam(folder, seed, dtype=torch.float32, betas=(0.9, 0.999), steps=(4200, 4300, 4400, 4500), scale=1.0, shape=(48, 48), eps=1e-8, tensors=1, change=None):
    """One or more matrices under Adam with normal gradients: only the effect of the optimizer on its moments."""
    torch.manual_seed(seed)
    weights = [torch.nn.Parameter((torch.randn(shape) * 0.02).to(dtype)) for _ in range(tensors)]
    optimizer = torch.optim.AdamW(weights, lr=1e-5, betas=betas, eps=eps)
    for step in range(1, steps[-1] + 1):
        for weight in weights:
            weight.grad = (torch.randn(shape) * scale).to(dtype)
        optimizer.step()
        if step not in steps:
            continue
        checkpoint = {"model": {f"layers.{i}.weight": w.detach() for i, w in enumerate(weights)}, "optimizer": optimizer.state_dict(), "iteration": step}
        if change:
            change(step, checkpoint)
        save(folder, step, checkpoint)


def save(folder, step, checkpoint, name="step-{}/model.pt"):
    path = pathlib.Path(folder) / name.format(step)
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(checkpoint, path)


class Case(unittest.TestCase):
    def judged(self, rule, make, flags=()):
        """(findings of the rule as (layer, level, first step, last step), other serious ones, reasons for inconclusive
        verdicts)"""
        with tempfile.TemporaryDirectory() as folder:
            folder = os.path.join(folder, "exp")
            make(folder)
            status, report = audit(folder, flags=flags)
        self.assertEqual(problems(report), "")
        mine = [(f["site"]["layer"], f["level"], f["site"]["step_first"], f["site"]["step_last"]) for f in report["findings"] if f["rule"] == rule]
        others = [f for f in serious(report) if f[0] != rule]
        reasons = {v["reason"].split(":")[0] for v in report["verdicts"] if v["rule"] == rule and v["verdict"] == "inconclusive"}
        self.passes = {v["site"]["layer"] for v in report["verdicts"] if v["rule"] == rule and v["verdict"] == "pass"}
        self.report = report
        return mine, others, reasons


class Moments(Case):
    rule = "precision/moment-ratchet"

    def test_it_never_falls(self):
        for seed in SEEDS:
            with self.subTest(seed):
                found, others, _ = self.judged(self.rule, lambda f: adam(f, seed, torch.bfloat16))
                self.assertEqual((found, others), ([("layers.0.weight", "warning", 4200, 4400)], []))

    def test_small_tensors_together(self):
        found, others, _ = self.judged(self.rule, lambda f: adam(f, 1, torch.bfloat16, shape=(20, 20), tensors=4))
        self.assertEqual((found, others), ([("small tensors", "warning", 4200, 4500)], []))

    def test_it_falls(self):
        for what in [{}, {"dtype": torch.bfloat16, "betas": (0.9, 0.95)}]:
            with self.subTest(**what):
                self.assertEqual(self.judged(self.rule, lambda f: adam(f, 0, **what))[:2], ([], []))
                self.assertEqual(self.passes, {"layers.0.weight"})

    def test_while_it_fills_up(self):
        """A moment that began at 0 rises everywhere, in fp32 and in bf16 with stochastic rounding."""
        for dtype in (torch.float32, torch.bfloat16):
            with self.subTest(dtype):
                self.assertEqual(self.judged(self.rule, lambda f: adam(f, 0, dtype, steps=(100, 200, 300, 400))), ([], [], {"early"}))

    def test_gradients_that_grow(self):
        def grow(step, checkpoint):
            moments = checkpoint["optimizer"]["state"][0]
            checkpoint["optimizer"]["state"] = {0: {**moments, "exp_avg_sq": moments["exp_avg_sq"] * (step / 4000) ** 8}}

        self.assertEqual(self.judged(self.rule, lambda f: adam(f, 0, change=grow)), ([], [], {"rising"}))

    def test_frozen(self):
        def make(folder):
            kept = {}
            adam(folder, 0, torch.bfloat16, change=lambda s, c: c["optimizer"].update(state={0: kept.setdefault("s", {k: v.clone() for k, v in c["optimizer"]["state"][0].items()})}))

        found, _, reasons = self.judged(self.rule, make)
        self.assertEqual((found, reasons), ([], {"still"}))
        self.assertIn("stuck", [v["reason"] for v in self.report["verdicts"] if v["rule"] == self.rule][0])


class Epsilon(Case):
    rule = "precision/epsilon-underflow"

    def cast(self, folder, seed, scale, **options):
        """The checkpoint of an optimizer with fp16 state."""
        def change(step, checkpoint):
            state = checkpoint["optimizer"]["state"]
            checkpoint["optimizer"]["state"] = {k: {n: v.half() if n != "step" else v for n, v in s.items()} for k, s in state.items()}

        adam(folder, seed, steps=(40, 80), scale=scale, change=change, **options)

    def test_eps_is_zero(self):
        for seed in SEEDS:
            found, others, _ = self.judged(self.rule, lambda f: self.cast(f, seed, 1.0))
            self.assertEqual((found, others), ([("layers.0.weight", "error", 40, 80)], []))

    def test_the_moment_underflows(self):
        for seed in SEEDS:
            found, others, _ = self.judged(self.rule, lambda f: self.cast(f, seed, 5e-4, eps=1e-6))
            self.assertEqual((found, others), ([("layers.0.weight", "error", 40, 80)], []))

    def test_nothing_is_lost(self):
        self.assertEqual(self.judged(self.rule, lambda f: self.cast(f, 0, 1.0, eps=1e-4))[:2], ([], []))
        self.assertEqual(self.passes, {"layers.0.weight"})
        # eps is larger than the moment would have been, and bounds the step by design.
        self.assertEqual(self.judged(self.rule, lambda f: self.cast(f, 0, 1e-3, eps=1e-2))[:2], ([], []))
        for options in [{}, {"dtype": torch.bfloat16}, {"scale": 1e-25}]:
            self.assertEqual(self.judged(self.rule, lambda f: adam(f, 0, steps=(40, 80), **options))[:2], ([], []))

    def test_eps_is_added_in_another_dtype(self):
        """Moments are 0, eps is in their dtype, and weights are finite: eps is not added in this dtype."""
        rows = torch.ones(48, 48)
        rows[7] = 0  # a word that occurs in no batch
        self.assertEqual(self.judged(self.rule, lambda f: self.cast(f, 0, rows)), ([], [], {"eps-elsewhere"}))


class Averages(Case):
    rule = "precision/ema-stall"

    def average(self, folder, seed, dtype, decay=0.999, kept=None, steps=(500, 1000, 1500, 2000), updated=lambda step: True, prefix=""):
        torch.manual_seed(seed)
        weight = torch.randn(64, 40) * 0.02
        direction = torch.randn(64, 40).sign()
        average = weight.to(dtype).clone()
        for step in range(1, steps[-1] + 1):
            weight += direction * 2e-6 + torch.randn(64, 40) * 1e-6
            if updated(step):
                average.mul_(1).add_((weight.to(dtype) - average) * (1 - decay))
            if step in steps:
                save(folder, step, {"model": {"a.weight": weight.clone()}, "ema": {prefix + "a.weight": average.to(kept or dtype).clone()}, "iteration": step})

    def test_it_stands_still(self):
        for seed in SEEDS:
            for prefix in ("", "module."):
                found, others, _ = self.judged(self.rule, lambda f: self.average(f, seed, torch.bfloat16, prefix=prefix))
                self.assertEqual((found, others), ([("a.weight", "warning", 500, 1500)], []))

    def test_it_follows(self):
        for what in [{}, {"kept": torch.bfloat16}, {"kept": torch.bfloat16, "decay": 0.9999}, {"decay": 0.9}]:
            with self.subTest(**what):
                self.assertEqual(self.judged(self.rule, lambda f: self.average(f, 0, torch.float32, **what))[:2], ([], []))

    def test_it_is_not_updated(self):
        found, others, _ = self.judged(self.rule, lambda f: self.average(f, 0, torch.float32, updated=lambda s: False))
        self.assertEqual((found, others), ([("a.weight", "warning", 500, 2000)], []))


class States(Case):
    """An optimizer or a schedule that was not loaded, saved by torch."""

    rule = "health/optimizer-state"

    def train(self, folder, seed, make, plant=lambda step, kept: None):
        torch.manual_seed(seed)
        model = torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 3))
        optimizer = make(model.parameters())
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: 1.0)
        for step in range(1, 13):
            optimizer.zero_grad()
            model(torch.randn(16, 8)).square().mean().backward()
            optimizer.step()
            schedule.step()
            if step % 3 == 0:
                kept = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "lr_scheduler": schedule.state_dict(), "step": step}
                plant(step, kept)
                save(folder, step, kept)

    MAKES = {"adamw": lambda p: torch.optim.AdamW(p, lr=1e-3), "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9), "plain": lambda p: torch.optim.SGD(p, lr=0.01)}

    def test_lost(self):
        def emptied(step, kept):
            if step == 9:
                kept["optimizer"] = {"state": {}, "param_groups": kept["optimizer"]["param_groups"]}

        def steps_alone(step, kept):
            if step == 9:
                kept["optimizer"]["state"] = {k: {"step": v["step"]} for k, v in kept["optimizer"]["state"].items()}

        def of_none(step, kept):
            if step == 9:
                kept["optimizer"]["state"] = {k: {"momentum_buffer": None} for k in kept["optimizer"]["state"]}

        def schedule(step, kept):
            if step >= 9:
                kept["lr_scheduler"]["last_epoch"] -= 6

        for plant, makes, level in ((emptied, ("adamw", "momentum"), "warning"), (steps_alone, ("adamw",), "error"), (of_none, ("momentum",), "warning"), (schedule, ("adamw", "momentum", "plain"), "warning")):
            for make in makes:
                for seed in SEEDS:
                    with self.subTest(plant.__name__, make=make, seed=seed):
                        found, others, _ = self.judged(self.rule, lambda f: self.train(f, seed, self.MAKES[make], plant))
                        self.assertEqual((found, others), ([("", level, 6, 9)], []))

    def test_kept(self):
        def left_out(step, kept):
            if step == 12:  # the published checkpoint
                del kept["optimizer"]

        def never(step, kept):
            """Not saved."""
            del kept["lr_scheduler"]

        for make in self.MAKES.values():
            for plant in (lambda step, kept: None, left_out):
                self.assertEqual(self.judged(self.rule, lambda f: self.train(f, 0, make, plant)), ([], [], set()))
        self.assertEqual(self.judged(self.rule, lambda f: self.train(f, 0, self.MAKES["plain"], never)), ([], [], {"nothing-in-common"}))


class Weights(Case):
    def many(self, folder, seed, change=lambda step, i, weight: None, saves=5, tensors=10):
        """Weights that change by 1 % between checkpoints."""
        torch.manual_seed(seed)
        weights = [torch.randn(24, 16) * 0.02 for _ in range(tensors)]
        for step in range(saves):
            for i, weight in enumerate(weights):
                self.moved = torch.randn(24, 16) * 2e-4
                weight += self.moved
                change(step, i, weight)
            model = {f"layers.{i}.weight": w.clone() for i, w in enumerate(weights)}
            save(folder, step, {"model": model, "iteration": step})

    def test_one_moves_unlike_the_others(self):
        for factor in (1e-4, 1e4):
            for seed in SEEDS:
                def change(step, i, weight):
                    # A tensor with large changes is drawn again each time: it does not diverge.
                    if i == 3 and factor > 1:
                        weight.copy_(torch.randn(24, 16) * 0.02)
                    elif i == 3 or factor > 1:
                        weight -= self.moved
                        weight += self.moved * min(factor, 1 / factor)

                found, others, _ = self.judged("health/update-ratio", lambda f: self.many(f, seed, change))
                self.assertEqual((found, others), ([("layers.3.weight", "note", 0, 3)], []))

    def test_all_move_alike(self):
        self.assertEqual(self.judged("health/update-ratio", lambda f: self.many(f, 0))[:2], ([], []))
        shown = [v["details"] for v in self.report["verdicts"] if v["rule"] == "health/update-ratio" and v["site"]["op"] == "weights"]
        self.assertEqual(len(shown), 1)
        self.assertAlmostEqual(shown[0]["median_log10"], -2, delta=0.1)

    def test_one_becomes_zero(self):
        def change(step, i, weight):
            if i == 2 and step >= 2:
                weight.zero_()

        found, others, _ = self.judged("health/all-zero", lambda f: self.many(f, 0, change, saves=13))
        self.assertEqual(found, [("layers.2.weight", "warning", 2, 11)])
        self.assertEqual([(rule, site["layer"], site["step_first"], site["step_last"]) for rule, _, site in others], [("health/unchanged-tensor", "layers.2.weight", 1, 2)])

        def zero_from_the_start(step, i, weight):
            if i == 2:
                weight.zero_()

        self.assertEqual(self.judged("health/all-zero", lambda f: self.many(f, 0, zero_from_the_start, saves=13))[:2], ([], []))

    def test_formats_that_are_requested(self):
        rule = "precision/format-fit"
        self.assertEqual(self.judged(rule, lambda f: self.many(f, 0, saves=1))[0], [])
        found = self.judged(rule, lambda f: self.many(f, 0, saves=1), ["--set", "precision/format-fit.format=e4m3"])[0]
        self.assertEqual([f[:2] for f in found], [(f"layers.{i}.weight", "warning") for i in range(10)])
        self.assertEqual(self.judged(rule, lambda f: self.many(f, 0, saves=1), ["--set", "precision/format-fit.format=bf16"])[0], [])

        def outlier(step, i, weight):
            if i == 4:
                weight[:, ::8] = 300.0

        flags = ["--set", "precision/format-fit.blocks=nvfp4"]
        self.assertEqual(self.judged(rule, lambda f: self.many(f, 0, saves=1), flags)[0], [])

        def make(folder):
            torch.manual_seed(0)
            good, bad = torch.randn(300, 256) * 0.02, torch.randn(300, 256) * 0.02
            bad[:, ::16] = 30.0
            save(folder, 1, {"model": {"good.weight": good, "bad.weight": bad, "turned.weight": bad.t().contiguous().t()}})

        self.assertEqual({f[0] for f in self.judged(rule, make, flags)[0]}, {"bad.weight", "turned.weight"})

    def test_tied_by_storage(self):
        for planted in (False, True):
            def make(folder):
                torch.manual_seed(0)
                one = torch.randn(8, 6)
                for step in range(1, 5):
                    one = one + 0.01 * torch.randn(8, 6)
                    other = one.clone() if planted and step == 4 else one
                    if planted and step == 4:
                        other[0, 0] += 1
                    save(folder, step, {"model": {"encoder.table": one, "decoder.table": other, "else.table": torch.randn(8, 6)}, "iteration": step})

            found, others, _ = self.judged("health/tied-weights", make)
            self.assertEqual((found, others), ([("encoder.table", "warning", 3, 4)] if planted else [], []))


class Masters(Case):
    def megatron(self, folder, plant):
        """Megatron's storage of bf16 weights: lists of fp32 ones next to an optimizer's state."""
        torch.manual_seed(0)
        weights = [torch.nn.Parameter(torch.randn(6, 5)), torch.nn.Parameter(torch.randn(6))]
        optimizer = torch.optim.AdamW([{"params": weights[:1]}, {"params": weights[1:], "weight_decay": 0.0}], lr=1e-2)
        for step in range(1, 5):
            for weight in weights:
                weight.grad = torch.randn(weight.shape)
            optimizer.step()
            model = {"language_model": {"encoder": {"dense.weight": weights[0].detach().bfloat16(), "dense.bias": weights[1].detach().bfloat16()}}}
            plant(step, model["language_model"]["encoder"])
            kept = {"optimizer": optimizer.state_dict(), "fp32_from_fp16_params": [[weights[0].detach().clone()], [weights[1].detach().clone()]], "grad_scaler": {}}
            save(folder, step, {"model": model, "optimizer": kept, "iteration": step}, "iter_000000{}/mp_rank_00/model_optim_rng.pt")

    def test_a_master_that_was_not_copied(self):
        self.assertEqual(self.judged("health/optimizer-state", lambda f: self.megatron(f, lambda s, m: None))[:2], ([], []))

        def plant(step, encoder):
            if step == 3:
                encoder["dense.weight"][2, 2] += 1

        found, others, _ = self.judged("health/optimizer-state", lambda f: self.megatron(f, plant))
        self.assertEqual([f[:3] for f in found], [("language_model.encoder.dense.weight", "error", 3)])
        self.assertEqual(others, [])

    def test_flat_masters_of_ranks(self):
        """DeepSpeed's partitions: read, named, and judged as one tensor each."""
        def make(folder):
            torch.manual_seed(0)
            for step in (1, 2):
                for rank in range(2):
                    flat = torch.randn(40)
                    if (step, rank) == (2, 1):
                        flat[7] = float("inf")
                    state = {"optimizer_state_dict": {"optimizer_state_dict": {"state": {0: {"step": step, "exp_avg": torch.randn(40), "exp_avg_sq": torch.rand(40)}}, "param_groups": [{"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "params": [0]}]},
                                                      "single_partition_of_fp32_groups": [flat], "zero_stage": 1, "partition_count": [2]}, "ds_version": "0.9"}
                    save(folder, step, state, f"global_step{{}}/zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")
                save(folder, step, {"module": {"a.weight": torch.randn(8, 10).bfloat16()}, "global_steps": step}, "global_step{}/mp_rank_00_model_states.pt")

        found, others, _ = self.judged("precision/non-finite", make)
        self.assertEqual([f[2:] for f in found], [(2, 2)])
        self.assertIn("single_partition_of_fp32_groups", found[0][0])
        self.assertEqual(others, [])


class Schedules(Case):
    def rates(self, folder, planted, saves=24):
        """A cosine that has decayed far, and a resume that starts it again."""
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(6, 5))
        optimizer = torch.optim.AdamW([weight], lr=1e-2)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30 * saves)
        for step in range(1, saves * 30 + 1):
            weight.grad = torch.randn(6, 5)
            optimizer.step()
            schedule.step()
            if planted and step == 20 * 30:
                for group in optimizer.param_groups:
                    group["lr"] = group["initial_lr"] = 1e-2
                schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=30 * saves)
            if step % 30 == 0:
                save(folder, step, {"model": {"w.weight": weight.detach().clone()}, "optimizer": optimizer.state_dict(), "lr_scheduler": schedule.state_dict(), "iteration": step})

    def test_restarted_by_a_resume(self):
        found, others, _ = self.judged("health/learning-rate", lambda f: self.rates(f, True))
        self.assertEqual([f[1:] for f in found], [("warning", 600, 600)])
        self.assertEqual({o[0] for o in others}, {"health/optimizer-state"})
        self.assertEqual(self.judged("health/learning-rate", lambda f: self.rates(f, False))[:2], ([], []))


class Replicas(Case):
    def ranks(self, folder, seed, name, plant=lambda step, rank, model: None, ranks=3):
        torch.manual_seed(seed)
        shared = {"layers.0.input_norm.weight": torch.rand(64), "layers.0.mlp.router.weight": torch.randn(4, 64), "layers.0.attn.linear_proj.bias": torch.randn(64)}
        shards = [{"layers.0.attn.linear_qkv.weight": torch.randn(32, 64), "layers.0.attn.linear_qkv.bias": torch.randn(32)} for _ in range(ranks)]
        for step in (1, 2, 3):
            shared = {k: v + 0.01 * torch.randn(v.shape) for k, v in shared.items()}
            for rank in range(ranks):
                shards[rank] = {k: v + 0.01 * torch.randn(v.shape) for k, v in shards[rank].items()}
                model = {k: v.clone() for k, v in {**shared, **shards[rank]}.items()}
                plant(step, rank, model)
                save(folder, step, {"model": model, "iteration": step}, name.replace("RANK", f"{rank:02d}"))

    def test_tensor_parallel(self):
        rule = "precision/replica-divergence"
        for name in ("iter_000000{}/mp_rank_RANK/model_optim_rng.pt", "global_step{}/mp_rank_RANK_model_states.pt"):
            self.assertEqual(self.judged(rule, lambda f: self.ranks(f, 0, name))[:2], ([], []))
            for layer in ("layers.0.input_norm.weight", "layers.0.mlp.router.weight", "layers.0.attn.linear_proj.bias"):
                def plant(step, rank, model):
                    if rank == 1 and step >= 2:
                        model[layer].view(-1)[5] += 0.125

                found, others, _ = self.judged(rule, lambda f: self.ranks(f, 1, name, plant))
                self.assertEqual([f[:3] for f in found], [(layer, "error", 2)])
                self.assertEqual(others, [])
                ranks = [f["site"]["ranks"] for f in self.report["findings"] if f["rule"] == rule]
                self.assertEqual(ranks, [[1]])

    def test_data_parallel(self):
        """Plain ranks: only their equal values over steps show that they hold copies."""
        rule = "precision/replica-divergence"

        def copies(folder, plant):
            torch.manual_seed(0)
            model = {"layers.0.fc.weight": torch.randn(64, 64), "layers.0.fc.bias": torch.randn(64)}
            for step in (1, 2, 3, 4):
                model = {k: v + 0.01 * torch.randn(v.shape) for k, v in model.items()}
                for rank in range(3):
                    own = {k: v.clone() for k, v in model.items()}
                    plant(step, rank, own)
                    save(folder, step, {"model": own, "iteration": step}, f"step-{{}}/rank_{rank}.pt")

        def flip(step, rank, model):
            if (step, rank) == (3, 2):
                model["layers.0.fc.weight"][7, 9] *= 2

        def shards(step, rank, model):
            for value in model.values():
                value += torch.randn(value.shape) * rank

        self.assertEqual(self.judged(rule, lambda f: copies(f, lambda *a: None))[:2], ([], []))
        found, others, _ = self.judged(rule, lambda f: copies(f, flip))
        self.assertEqual((found, others), ([("layers.0.fc.weight", "error", 3, 3)], []))
        self.assertEqual(self.judged(rule, lambda f: copies(f, shards)), ([], [], {"not-declared"}))


if __name__ == "__main__":
    unittest.main()
