"""Compares each adapter with a re-creation of that trainer's router, through record and audit.

The re-creations return the same values as the trainer's code, in its layout. They are written from the trainers' documentation. Needs PyTorch and the
built agent; skipped without.
"""

import json
import math
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
LIBRARY, PLUMB = BUILD / "lib" / "libplumbline.so", BUILD / "bin" / "plumb"
if not (LIBRARY.exists() and PLUMB.exists() and (BUILD / "lib/libplumbline_agent.so").exists()):
    pytest.skip("plumb and the agent are not built", allow_module_level=True)
os.environ["PLUMBLINE_LIBRARY"] = str(LIBRARY)

import plumbline  # noqa: E402
from plumbline import adapters  # noqa: E402

B, S, E = 8, 64, 8
T = B * S
FUTURE, BATCH = "causality/moe-future-leak", "causality/moe-batch-dependence"


def gate(seed, *shape):
    """Logits that favour some experts, so that places run out."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=random) + 0.5 * torch.randn(shape[-1], generator=random)


def audit(tmp_path, calls):
    """Returns {rule: verdict} and {rule: finding} of one or several calls, each a step of one layer."""
    run = plumbline.init(run="adapters", record=tmp_path / "record", every=1, strict=True)
    for step, call in enumerate(calls):
        with run.step(step):
            run.observe_routing("layers.0", **call)
    assert run.flush(60) and run.finish(60)
    done = subprocess.run([PLUMB, "audit", tmp_path / "record", "--format", "json", "--quiet"],
                          stdout=subprocess.PIPE, text=True, timeout=240)  # fmt: skip
    report = json.loads(done.stdout)
    assert [i["problems"] for i in report["inputs"]] == [[]]
    verdicts = {}
    for verdict in report["verdicts"]:
        verdicts.setdefault(verdict["rule"], set()).add(verdict["verdict"])
    return verdicts, {f["rule"]: f for f in report["findings"]}, report


def first_come(mask, capacity):
    """Returns the choices of a mask [T,E] that experts with `capacity` places admit in row order."""
    return mask & (mask.long().cumsum(0) <= capacity)


def best_first(mask, score, capacity):
    order = torch.sort(score.masked_fill(~mask, -1), dim=0, descending=True, stable=True).indices
    keep = torch.zeros_like(mask).scatter(0, order[:capacity], True)
    return keep & mask


# ---- Megatron-LM ---------------------------------------------------------------------------------


def megatron_router(logits, k, capacity, policy, pad):
    """logits [S,B,E] -> probs, routing_map, both [S*B,E]."""
    rows = logits.reshape(-1, E)
    value, index = torch.topk(rows, k, dim=1)
    probs = torch.zeros_like(rows).scatter(1, index, torch.softmax(value, dim=1))
    chosen = torch.zeros_like(rows, dtype=torch.bool).scatter(1, index, True)
    if capacity is None:
        return probs, chosen
    keep = best_first(chosen, probs, capacity) if policy == "probs" else first_come(chosen, capacity)
    if pad:  # free places are filled with other rows, with probability zero
        padded = torch.topk(keep.float() + 1e-3 * torch.rand(rows.shape), capacity, dim=0).indices
        return probs * keep, torch.zeros_like(keep).scatter(0, padded, True)
    return probs * keep, keep


@pytest.mark.parametrize("pad", [False, True])
def test_megatron_drop_by_probability_leaks(tmp_path, pad):
    calls = []
    for seed in range(2):
        logits = gate(seed, S, B, E)
        capacity = adapters.megatron_capacity(T, E, 2, 1.0)
        probs, routing_map = megatron_router(logits, 2, capacity, "probs", pad)
        if pad:
            assert (routing_map.sum(0) == capacity).all()
        calls.append(adapters.megatron(logits, routing_map, probs, top_k=2, capacity=capacity,
                                       drop_policy="probs"))
    verdicts, findings, _ = audit(tmp_path, calls)
    assert verdicts[FUTURE] == {"finding"}
    assert findings[FUTURE]["strength"] == "proved"
    assert findings[FUTURE]["cause"]["id"] == "drop-by-score"


def test_megatron_drop_by_position_depends_on_the_batch_only(tmp_path):
    logits = gate(3, S, B, E)
    capacity = adapters.megatron_capacity(T, E, 2, 1.0)
    probs, routing_map = megatron_router(logits, 2, capacity, "position", False)
    verdicts, findings, report = audit(
        tmp_path, [adapters.megatron(logits, routing_map, probs, top_k=2, capacity=capacity)])
    assert verdicts[FUTURE] == {"pass"}, report["verdicts"]
    assert BATCH in findings and FUTURE not in findings
    (verdict,) = [v for v in report["verdicts"] if v["rule"] == FUTURE]
    assert verdict["details"]["policy"] == "fifo-capacity"
    assert verdict["details"]["flatten_order"] == "seq-major"


def test_megatron_dropless_passes(tmp_path):
    logits = gate(4, S, B, E)
    probs, routing_map = megatron_router(logits, 2, None, None, False)
    verdicts, findings, _ = audit(tmp_path, [adapters.megatron(logits, routing_map, probs, top_k=2)])
    assert verdicts[FUTURE] == {"pass"} and not findings


def test_megatron_rows_and_capacity():
    call = adapters.megatron(torch.zeros(3, 2, E), torch.zeros(6, E, dtype=torch.bool), top_k=2,
                             num_groups=4, group_topk=1)  # fmt: skip
    assert call["sequence_id"].tolist() == [0, 1, 0, 1, 0, 1]
    assert call["position"].tolist() == [0, 0, 1, 1, 2, 2]
    assert (call["groups"], call["top_groups"], call["group_score"]) == (4, 1, "sum2")
    assert call["router_logits"].shape == (6, E)
    assert adapters.megatron_capacity(100, 8, 2, 1.25) == math.ceil(100 * 2 / 8 * 1.25)
    with pytest.raises(ValueError, match="divisor of the 6 rows"):
        adapters.megatron(torch.zeros(6, E), torch.zeros(6, E), top_k=1, sequences=4)


def test_what_the_configuration_holds_is_recorded():
    logits, chosen = torch.zeros(6, E), torch.zeros(6, E, dtype=torch.bool)

    def stated(call):
        return call["capacity"], call.get("capacity_source"), call.get("policy")

    megatron, deepspeed = adapters.megatron, adapters.deepspeed
    assert stated(megatron(logits, chosen, top_k=2)) == ("none", None, "token-choice")
    for drop, policy in (("probs", "score-capacity"), ("position", "fifo-capacity"), (None, None)):
        call = megatron(logits, chosen, top_k=2, capacity=3, drop_policy=drop)
        assert stated(call) == (3, "declared", policy)
    call = megatron(logits, chosen, top_k=1, load_balancing="sinkhorn")
    assert stated(call) == ("none", None, "balanced-assignment")
    places = torch.zeros(6, E, 4)
    for k, settings, expected in (
            (1, {"use_rts": True}, (4, "declared", "random-capacity")),
            (1, {}, (4, "declared", "fifo-capacity")),
            (2, {}, (4, "declared", "rank-major-capacity")),
            (2, {"drop_tokens": False}, ("none", None, "token-choice"))):  # fmt: skip
        assert stated(deepspeed(logits, places, places.bool(), top_k=k, **settings)) == expected
    critical = (E, [torch.zeros(6)], [torch.zeros(6)], [torch.zeros(6)], 5)
    assert stated(adapters.tutel(logits, critical)) == (5, "declared", None)
    call = adapters.tutel(logits, critical, batch_prioritized_routing=True)
    assert stated(call) == (5, "declared", "score-capacity")
    (call,) = adapters.huggingface([logits], top_k=2)
    assert stated(call) == ("none", None, "token-choice")


# ---- DeepSpeed -----------------------------------------------------------------------------------


def dispatch(keep, gates, capacity):
    """Returns combine_weights and dispatch_mask [T,E,C] of the kept choices."""
    place = (keep.long().cumsum(0) - 1).clamp(0, capacity - 1)
    mask = torch.zeros(*keep.shape, capacity, dtype=torch.bool)
    mask.scatter_(2, place.unsqueeze(2), keep.unsqueeze(2))
    return mask * gates.unsqueeze(2), mask


@pytest.mark.parametrize("seq_major", [False, True])
def test_deepspeed_top1_in_order_passes(tmp_path, seq_major):
    logits = gate(5, T, E)
    gates = torch.softmax(logits, dim=1)
    capacity = math.ceil(T / E)
    chosen = torch.nn.functional.one_hot(gates.argmax(1), E).bool()
    combine, mask = dispatch(first_come(chosen, capacity), gates, capacity)
    call = adapters.deepspeed(logits, combine, mask, top_k=1, sequences=B, seq_major=seq_major)
    verdicts, findings, report = audit(tmp_path, [call])
    assert verdicts[FUTURE] == {"pass"}, report["verdicts"]
    assert BATCH in findings


def test_deepspeed_topk_by_probability_leaks(tmp_path):
    calls = []
    for seed in (6, 16):  # for one step alone, a stored bar per expert would give the same choices
        logits = gate(seed, T, E)
        gates = torch.softmax(logits, dim=1)
        capacity = math.ceil(3 * T / E)
        chosen = torch.zeros_like(gates, dtype=torch.bool).scatter(
            1, torch.topk(gates, 3, dim=1).indices, True)
        combine, mask = dispatch(best_first(chosen, gates, capacity), gates, capacity)
        calls.append(adapters.deepspeed(logits, combine, mask, top_k=3, sequences=B,
                                        drop_policy="probs"))
    alone = audit(tmp_path / "alone", calls[:1])[1][FUTURE]
    assert alone["strength"] == "heuristic" and "several pools" in alone["fix"]
    verdicts, findings, report = audit(tmp_path, calls)
    assert findings[FUTURE]["strength"] == "proved", report["verdicts"]
    assert findings[FUTURE]["cause"]["id"] == "drop-by-score"


def test_deepspeed_sampled_second_expert_is_not_accused(tmp_path):
    random = torch.Generator().manual_seed(1)
    logits = gate(7, T, E)
    gates = torch.softmax(logits, dim=1)
    capacity = math.ceil(2 * T / E)
    first = gates.argmax(1)
    noise = -torch.log(-torch.log(torch.rand(T, E, generator=random)))
    second = (logits + noise).scatter(1, first.unsqueeze(1), -math.inf).argmax(1)
    masks = [torch.nn.functional.one_hot(c, E).bool() for c in (first, second)]
    place = torch.cat(masks).long().cumsum(0)  # second choices queue after all first choices
    kept = [m & (p <= capacity) for m, p in zip(masks, place.split(T))]
    combine, mask = dispatch(kept[0] | kept[1], gates, capacity)
    verdicts, findings, _ = audit(
        tmp_path, [adapters.deepspeed(logits, combine, mask, top_k=2, sequences=B)])
    assert FUTURE not in findings and verdicts[FUTURE] == {"inconclusive"}


def test_deepspeed_without_drops_passes(tmp_path):
    logits = gate(8, T, E)
    gates = torch.softmax(logits, dim=1)
    chosen = torch.nn.functional.one_hot(gates.argmax(1), E).bool()
    combine, mask = dispatch(chosen, gates, int(chosen.sum(0).max()))
    call = adapters.deepspeed(logits, combine, mask, top_k=1, sequences=B, drop_tokens=False)
    verdicts, findings, _ = audit(tmp_path, [call])
    assert verdicts[FUTURE] == {"pass"} and not findings


# ---- Tutel ---------------------------------------------------------------------------------------


def tutel_critical(scores, k, capacity, prioritised):
    """(experts, indices, locations, gates, capacity) as extract_critical returns them."""
    gates, chosen = torch.topk(scores, k, dim=1)
    order = torch.arange(len(scores))
    if prioritised:  # tokens queue by their best score
        order = torch.argsort(-scores.max(dim=1).values, stable=True)
    taken = torch.zeros(E, dtype=torch.int64)
    indices, locations = [], []
    for choice in range(k):
        mask = torch.nn.functional.one_hot(chosen[order, choice], E)
        place = ((mask.cumsum(0) - 1 + taken) * mask).sum(1)
        taken = taken + mask.sum(0)
        indices.append(chosen[:, choice].int())
        locations.append(torch.empty_like(place).scatter(0, order, place).int())
    return E, indices, locations, list(gates.unbind(1)), capacity


def test_tutel_in_order_passes(tmp_path):
    scores = torch.softmax(gate(9, T, E), dim=1)
    data = tutel_critical(scores, 1, T // E, False)
    verdicts, findings, report = audit(tmp_path, [adapters.tutel(scores, data, sequences=B)])
    assert verdicts[FUTURE] == {"pass"}, report["verdicts"]
    assert BATCH in findings


def test_tutel_batch_prioritised_leaks(tmp_path):
    calls = []
    for seed in (10, 20):
        scores = torch.softmax(gate(seed, T, E), dim=1)
        data = tutel_critical(scores, 1, T // E, True)
        calls.append(adapters.tutel(scores, data, sequences=B, batch_prioritized_routing=True))
    verdicts, findings, report = audit(tmp_path, calls)
    assert findings[FUTURE]["strength"] == "proved", report["verdicts"]


def test_tutel_keeps_what_has_a_place():
    scores = torch.softmax(gate(11, T, E), dim=1)
    data = tutel_critical(scores, 2, 100, False)
    call = adapters.tutel(scores, data, sequences=B)
    held = torch.zeros(E, dtype=torch.int64).scatter_add(
        0, call["topk_indices"].long().flatten(), call["keep_mask"].long().flatten())
    assert held.max() == 100 and (call["top_k"], call["capacity"]) == (2, 100)
    with pytest.raises(ValueError, match="of 9 experts"):
        adapters.tutel(scores, (9, *data[1:]))


# ---- Hugging Face --------------------------------------------------------------------------------


class Block(torch.nn.Module):
    """A dropless block: softmax, top k, gates renormalised."""

    def __init__(self, dim):
        super().__init__()
        self.gate = torch.nn.Linear(dim, E, bias=False)

    def forward(self, hidden):
        logits = self.gate(hidden.reshape(-1, hidden.shape[-1]))
        weights, selected = torch.topk(torch.softmax(logits.float(), dim=-1), 2, dim=-1)
        return logits, selected, weights / weights.sum(dim=-1, keepdim=True)


def huggingface_calls(with_choices):
    torch.manual_seed(12)
    blocks = [Block(16) for _ in range(2)]
    outputs = [block(torch.randn(B, S, 16)) for block in blocks]
    mask = torch.ones(B, S, dtype=torch.int64)
    mask[0, :10] = 0  # padded on the left
    return adapters.huggingface(
        tuple(logits.detach() for logits, _, _ in outputs), top_k=2, attention_mask=mask,
        selected_experts=[selected for _, selected, _ in outputs] if with_choices else None)


def test_huggingface_passes(tmp_path):
    calls = huggingface_calls(True)
    assert len(calls) == 2 and int(calls[0]["padding_mask"].sum()) == 10
    verdicts, findings, _ = audit(tmp_path, calls)
    assert verdicts[FUTURE] == {"pass"} and not findings


def test_huggingface_logits_alone_prove_nothing(tmp_path):
    verdicts, findings, report = audit(tmp_path, huggingface_calls(False))
    assert verdicts[FUTURE] == {"inconclusive"}
    assert all(v["reason"].startswith("no-choices") for v in report["verdicts"]
               if v["rule"] == FUTURE)  # fmt: skip


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q"]))
