"""Products of scaled factors, from Python through record and audit: given scales are replayed, and if a scale is
missing, the rule is inconclusive and names it.

Needs PyTorch and the built agent; skipped without.
"""

import json
import os
import pathlib
import subprocess

import pytest

torch = pytest.importorskip("torch")
BUILD = pathlib.Path(os.environ["PLUMBLINE_BUILD_DIR"])
LIBRARY, PLUMB = BUILD / "lib" / "libplumbline.so", BUILD / "bin" / "plumb"
if not (LIBRARY.exists() and PLUMB.exists() and (BUILD / "lib/libplumbline_agent.so").exists()):
    pytest.skip("plumb and the agent are not built", allow_module_level=True)
os.environ["PLUMBLINE_LIBRARY"] = str(LIBRARY)

import plumbline  # noqa: E402

M, K, N = 48, 96, 40
RULE, FIT = "precision/gemm-accumulator", "precision/format-fit"


def audit(tmp_path, **product):
    """Returns {rule: its verdict} of one observed product."""
    run = plumbline.init(run="scaled", record=tmp_path / "record", every=1, strict=True)
    with run.step(0):
        run.observe_matmul("layers.0.up", **product)
    assert run.flush(60) and run.finish(60)
    done = subprocess.run([PLUMB, "audit", tmp_path / "record", "--format", "json", "--quiet"],
                          stdout=subprocess.PIPE, text=True, timeout=240)  # fmt: skip
    report = json.loads(done.stdout)
    assert [i["problems"] for i in report["inputs"]] == [[]]
    return {v["rule"]: v for v in report["verdicts"]}


def factors(seed=1):
    """Returns a [M,K] and b [K,N] with few bits, as in 8-bit formats."""
    random = torch.Generator().manual_seed(seed)
    return [torch.randint(-15, 16, shape, generator=random) / 8 for shape in ((M, K), (K, N))]


def summed(a, b):
    """Adds one product after the other in f32."""
    acc = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        acc = acc + a[:, k, None] * b[None, k, :]
    return acc


def draws(seed, *shape):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) + 0.5


def test_a_factor_of_the_product(tmp_path):
    a, b = factors()
    d = summed(a, b) * torch.tensor(0.0371)
    stated = audit(tmp_path / "given", a=a, b=b, d=d, scale=float(torch.tensor(0.0371)))[RULE]
    assert stated["verdict"] == "pass", stated
    assert stated["details"]["samples"] == stated["details"]["matches"]
    missing = audit(tmp_path / "missing", a=a, b=b, d=d)[RULE]
    assert missing["verdict"] == "inconclusive" and "scale" in missing["reason"], missing


def test_scales_of_the_two_tensors(tmp_path):
    a, b = factors()
    sa, sb = draws(2, 1), draws(3, 1)
    stated = audit(tmp_path, a=a, b=b, d=summed(a, b) * (sa * sb), a_scale=sa, b_scale=sb)[RULE]
    assert stated["verdict"] == "pass", stated


def test_a_scale_for_each_row_and_column(tmp_path):
    a, b = factors()
    sa, sb = draws(2, M, 1), draws(3, 1, N)
    d = summed(a, b) * (sa * sb)
    stated = audit(tmp_path / "given", a=a, b=b, d=d, a_scale=sa, b_scale=sb)[RULE]
    assert stated["verdict"] == "pass", stated
    wrong = audit(tmp_path / "wrong", a=a, b=b, d=d, a_scale=sa.flip(0), b_scale=sb)[RULE]
    assert wrong["verdict"] == "finding", wrong


def test_a_scale_for_each_block_of_products(tmp_path):
    a, b = factors()
    block, tile = 32, 16
    sa, sb = draws(2, M, K // block), draws(3, K // block, (N + tile - 1) // tile)
    wide = sb.repeat_interleave(tile, 1)[:, :N]
    d = torch.zeros(M, N)
    for j in range(K // block):
        part = slice(j * block, (j + 1) * block)
        d = d + summed(a[:, part], b[part]) * (sa[:, j, None] * wide[None, j])
    verdicts = audit(tmp_path, a=a, b=b, d=d, a_scale=sa, b_scale=sb, block=block, b_tile=tile,
                     input_format="e4m3")  # fmt: skip
    assert verdicts[RULE]["verdict"] == "pass", verdicts[RULE]
    assert verdicts[FIT]["details"]["a"]["blocks"] > 64


def test_scales_that_are_powers_of_two(tmp_path):
    a, b = factors()
    exponents = torch.randint(120, 134, (M, K // 32), generator=torch.Generator().manual_seed(5))
    codes = exponents.to(torch.uint8)
    scaled = (a.view(M, -1, 32) * torch.exp2(exponents[:, :, None] - 127.0)).view(M, K)
    ones = torch.full((K // 32, N), 127, dtype=torch.uint8)
    stated = audit(tmp_path, a=a, b=b, d=summed(scaled, b), a_scale=codes, b_scale=ones, block=32,
                 scale_format="e8m0")[RULE]  # fmt: skip
    assert stated["verdict"] == "pass", stated


def test_a_stochastic_store(tmp_path):
    a, b = factors()
    d = summed(a, b)
    bits = d.view(torch.int32) + torch.randint(0, 1 << 16, d.shape, dtype=torch.int32)
    stored = (bits & ~0xFFFF).view(torch.float32).to(torch.bfloat16)
    stated = audit(tmp_path / "given", a=a, b=b, d=stored, output_rounding="stochastic")[RULE]
    assert stated["verdict"] == "pass", stated
    missing = audit(tmp_path / "missing", a=a, b=b, d=stored)[RULE]
    assert missing["verdict"] == "inconclusive" and "stochastic" in missing["reason"], missing


def test_mistakes_are_named(tmp_path):
    a, b = factors()
    d = summed(a, b)
    run = plumbline.init(run="mistakes", record=tmp_path / "record", every=1, strict=True)
    mistakes = [
        (dict(a_scale=draws(1, M, 2), block=32), f"a_scale: expected [{M},3]"),
        (dict(b_scale=draws(1, N, 3), block=32), f"b_scale: expected [3,{N}]"),
        (dict(block=32), "expected a_scale or b_scale"),
        (dict(a_scale=torch.ones(M, 1, dtype=torch.uint8)), "scale_format: expected e8m0 or e4m3"),
        (dict(scale_format="e9m0"), "scale_format: expected"),
        (dict(output_rounding="up"), "output_rounding: expected nearest, stochastic"),
        (dict(scale=0), "scale is 0"),
        (dict(scale=float("inf")), "scale: expected a finite number"),
    ]
    with run.step(0):
        for stated, words in mistakes:
            with pytest.raises(plumbline.PlumblineError) as caught:
                run.observe_matmul("up", a, b, d, **stated)
            assert words in str(caught.value)
    run.finish(60)
