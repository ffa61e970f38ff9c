"""PyTorch's own products, observed live: the arithmetic of each is identified from its results.

PyTorch 1.13's own kernels on a CPU add a linear layer's bf16 products in f32, and those of torch.mm in bf16
(docs/fingerprints.md): the first passes, the second is proved to keep 7 fraction bits. If a processor has AVX-512,
PyTorch uses oneDNN for both, which adds in f32, so the test disables oneDNN.
"""

import unittest

import torch

import plumbline
import support

RULE = "precision/gemm-accumulator"
torch.backends.mkldnn.set_flags(False)


def watched(folder, server=None):
    random = torch.Generator().manual_seed(5)
    x = torch.randn(4, 24, 512, generator=random).bfloat16()
    w = torch.randn(80, 512, generator=random).bfloat16()
    columns = w.t().contiguous()
    run = plumbline.init(run="products", server=server, record=str(folder / "record"), rank=0,
                         world_size=1, strict=True)
    for step in range(3):
        with run.step(step):
            run.observe_matmul("linear", x, w.t(), torch.nn.functional.linear(x, w),
                               library="PyTorch " + torch.__version__)
            run.observe_matmul("mm", x[0], columns, torch.mm(x[0], columns), accumulator="f32")
            x = (x * 1.25).roll(1, 2)
    run.finish(60)


def check(case, findings):
    found = {f["site"]["layer"]: f for f in findings if f["rule"] == RULE}
    case.assertEqual(set(found), {"mm"}, found)
    finding = found["mm"]
    case.assertEqual((finding["level"], finding["strength"]), ("error", "proved"))
    case.assertEqual(finding["measured"]["value"], 7)
    return finding


class Products(unittest.TestCase):
    def test_ones_show_what_is_planted(self):
        a, w = torch.ones(24, 512).bfloat16(), torch.ones(80, 512).bfloat16()
        self.assertEqual(torch.mm(a, w.t().contiguous())[0, 0], 256)  # 256 + 1 is 256 in bf16
        self.assertEqual(torch.nn.functional.linear(a, w)[0, 0], 512)

    def test_offline_and_live(self):
        with support.scratch() as folder, support.Server(folder) as server:
            watched(folder, server.address)
            _, report = support.audit(folder / "record")
            live = support.watched(server, "products")
        offline = check(self, report["findings"])
        self.assertEqual(check(self, live)["fingerprint"], offline["fingerprint"])
        linear = support.verdicts_of(report, RULE, "linear")
        self.assertEqual({v["verdict"] for v in linear}, {"pass"}, linear)
        self.assertEqual(report["coverage"]["dropped"], 0)


if __name__ == "__main__":
    support.main()
