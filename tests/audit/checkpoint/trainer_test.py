"""Checkpoints of Hugging Face's Trainer: safetensors sorts names, the optimizer has two groups in the model's order."""

import unittest

try:
    import torch
    from files import InAFolder, audit, notes, safetensors, serious
except ImportError:
    raise SystemExit(77) from None

LAYER = ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj",
         "input_layernorm", "post_attention_layernorm"]  # fmt: skip
LLAMA = ["model.embed_tokens", *(f"model.layers.{k}.{name}" for k in range(2) for name in LAYER), "model.norm", "lm_head"]
TEN = ["model.embed_tokens", *(f"model.layers.{k}.self_attn.q_proj" for k in (2, 10)), "lm_head"]


def llama(names):
    """{name: parameter} in the order in which the model creates them."""
    return {f"{name}.weight": torch.nn.Parameter(torch.randn(8) if "norm" in name else torch.randn(8, 8)) for name in names}


def adapters():
    names = [f"base_model.model.model.layers.{k}.self_attn.{name}.lora_{side}.weight" for k in range(2) for name in ("q_proj", "v_proj") for side in "AB"]
    return {name: torch.nn.Parameter(torch.randn(4, 8) if "lora_A" in name else torch.randn(8, 4)) for name in names}


class Trainer(InAFolder):
    def train(self, named, saves=2, file="model.safetensors", frozen=(), one_group=False):
        """Saves with the state of each; `frozen` parameters get gradients, and the files hold their initial values."""
        matrices, rest = ([p for p in named.values() if (p.dim() > 1) == wide] for wide in (True, False))
        groups = [{"params": list(named.values())}] if one_group else [{"params": matrices, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}]
        optimizer = torch.optim.AdamW(groups, lr=1e-3)
        kept = {name: named[name].detach().clone() for name in frozen}
        for save in range(1, saves + 1):
            for _ in range(10):
                for p in named.values():
                    p.grad = torch.randn_like(p)
                optimizer.step()
            held = {name: kept.get(name, p.detach()) for name, p in sorted(named.items())}
            self.write(f"checkpoint-{10 * save}/{file}", safetensors(held, {"format": "pt"}))
            self.save(optimizer.state_dict(), f"checkpoint-{10 * save}/optimizer.pt")
        return audit(self.folder)[1]

    def named(self, report):
        return {v["site"]["layer"] for v in report["verdicts"] if v["rule"] == "precision/non-finite" and v["site"].get("op") == "exp_avg"}

    def test_all_are_named(self):
        torch.manual_seed(1)
        for names in (LLAMA, TEN):
            with self.subTest(len(names)):
                report = self.train(llama(names))
                self.assertIn(f"{len(names)} of {len(names)} parameters named by the module order of transformers", notes(report))
                self.assertEqual(serious(report), [])

    def test_one_group(self):
        torch.manual_seed(2)
        self.assertIn("21 of 21 parameters named by the module order of transformers", notes(self.train(llama(LLAMA), one_group=True)))

    def test_an_unknown_module_is_not_guessed(self):
        torch.manual_seed(3)
        report = self.train(llama([*LLAMA, "model.layers.0.own_thing"]))
        self.assertIn("optimizer state: 0 of 22 parameters named", notes(report))

    def test_another_number_of_parameters_is_not_guessed(self):
        torch.manual_seed(4)
        named = llama(LLAMA)
        optimizer = torch.optim.AdamW([p for name, p in named.items() if "embed" not in name])
        for p in named.values():
            p.grad = torch.randn_like(p)
        optimizer.step()
        self.write("checkpoint-1/model.safetensors", safetensors({n: p.detach() for n, p in sorted(named.items())}, {"format": "pt"}))
        self.save(optimizer.state_dict(), "checkpoint-1/optimizer.pt")
        self.assertIn("optimizer state: 0 of 20 parameters named", notes(audit(self.folder)[1]))

    def test_an_adapter_that_never_changes(self):
        torch.manual_seed(5)
        still = "base_model.model.model.layers.1.self_attn.v_proj.lora_A.weight"
        report = self.train(adapters(), saves=6, file="adapter_model.safetensors", frozen=[still])
        self.assertIn("8 of 8 parameters named by the module order of transformers", notes(report))
        found = [(f["rule"], f["site"]["layer"]) for f in report["findings"] if f["level"] != "note"]
        self.assertEqual(found, [("health/unchanged-tensor", still)])

    def test_adapters_that_change(self):
        torch.manual_seed(6)
        self.assertEqual(serious(self.train(adapters(), saves=6, file="adapter_model.safetensors")), [])


if __name__ == "__main__":
    unittest.main()
