"""Small trainers without a line of Plumbline, for the attach_*_test.py. Each is a script that prints its losses and weights to the last bit."""

HEAD = """\
import os, sys
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def net(*widths):
    layers = [layer for a, b in zip(widths, widths[1:]) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def show(*models):
    print(sum(float(p.double().abs().sum()) for m in models for p in m.parameters()).hex(), flush=True)


def batch(rows=16, columns=8):
    x = torch.randn(rows, columns)
    return x, x.sin().sum(1, keepdim=True)


def step(model, optimizer, loss=None):
    x, y = batch()
    value = (model(x) - y).pow(2).mean() if loss is None else loss(model, x, y)
    value.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(float(value).hex())
    return value


"""

# name -> (code, the models that the hook names: the part of its line after "first step: ")
HEALTHY = {
    "plain": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(40): step(m, o)
show(m)
""", "Sequential with AdamW"),
    "momentum": ("""
m = net(8, 16, 1); o = torch.optim.SGD(m.parameters(), lr=1e-2, momentum=0.9)
s = torch.optim.lr_scheduler.CosineAnnealingLR(o, 60)
for i in range(40): step(m, o); s.step()
show(m)
""", "Sequential with SGD"),
    "two_optimizers": ("""
m = net(8, 16, 1); a = torch.optim.SGD(m[0].parameters(), lr=1e-2); b = torch.optim.AdamW(m[2].parameters(), lr=1e-2)
for i in range(40):
    x, y = batch(); l = (m(x) - y).pow(2).mean(); l.backward()
    for o in (a, b): o.step()
    for o in (a, b): o.zero_grad()
    print(float(l).hex())
show(m)
""", "Sequential with SGD, AdamW"),
    "gan": ("""
d, g = net(8, 16, 1), net(4, 16, 8)
a, b = torch.optim.Adam(d.parameters(), lr=1e-3), torch.optim.Adam(g.parameters(), lr=1e-3)
bce = nn.BCEWithLogitsLoss()
for i in range(40):
    x, z = torch.randn(16, 8), torch.randn(16, 4)
    a.zero_grad(); l = bce(d(x), torch.ones(16, 1)) + bce(d(g(z).detach()), torch.zeros(16, 1)); l.backward(); a.step()
    b.zero_grad(); k = bce(d(g(z)), torch.ones(16, 1)); k.backward(); b.step()
    print(float(l).hex(), float(k).hex())
show(d, g)
""", "Sequential with Adam, Sequential with Adam"),
    "critic_steps_more_often": ("""
d, g = net(8, 16, 1), net(4, 16, 8)
a, b = torch.optim.Adam(d.parameters(), lr=1e-3), torch.optim.Adam(g.parameters(), lr=1e-3)
for i in range(60):
    x, z = torch.randn(16, 8), torch.randn(16, 4)
    a.zero_grad(); l = d(g(z).detach()).mean() - d(x).mean() + d(x).pow(2).mean(); l.backward(); a.step()
    if i % 3 == 2:
        b.zero_grad(); k = -d(g(z)).mean(); k.backward(); b.step()
    print(float(l).hex())
show(d, g)
""", "Sequential with Adam, Sequential with Adam"),
    "accumulation": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(80):
    x, y = batch(); l = (m(x) - y).pow(2).mean() / 2; l.backward(); print(float(l).hex())
    if i % 2: o.step(); o.zero_grad()
show(m)
""", "Sequential with AdamW"),
    "clip": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(40):
    x, y = batch(); l = (m(x) - y).pow(2).mean(); l.backward()
    print(float(nn.utils.clip_grad_norm_(m.parameters(), 1.0)).hex()); o.step(); o.zero_grad()
show(m)
""", "Sequential with AdamW"),
    "closure": ("""
m = net(8, 16, 1); o = torch.optim.LBFGS(m.parameters(), lr=0.1, max_iter=3); x, y = batch(64)
def closure():
    o.zero_grad(); l = (m(x) - y).pow(2).mean(); l.backward(); return l
for i in range(20): print(float(o.step(closure)).hex())
show(m)
""", "Sequential with LBFGS"),
    "two_modules_one_optimizer": ("""
e, d = net(8, 16, 3), net(3, 16, 8); o = torch.optim.AdamW([*e.parameters(), *d.parameters()], lr=1e-2)
for i in range(40):
    x, _ = batch(); l = (d(e(x)) - x).pow(2).mean(); l.backward(); o.step(); o.zero_grad(); print(float(l).hex())
show(e, d)
""", "Sequential and Sequential with AdamW"),
    "frozen_reference": ("""
import copy
class Policy(nn.Module):
    def __init__(self): super().__init__(); self.body = net(8, 16, 4)
    def forward(self, x): return self.body(x).log_softmax(-1)
class Value(nn.Module):
    def __init__(self): super().__init__(); self.body = net(8, 16, 1)
    def forward(self, x): return self.body(x)
p, v = Policy(), Value(); r = copy.deepcopy(p).requires_grad_(False)
a, b = torch.optim.AdamW(p.parameters(), lr=1e-3), torch.optim.AdamW(v.parameters(), lr=1e-3)
for i in range(40):
    x, y = batch(); l = -(p(x)[:, 0] * (y[:, 0] - v(x).detach()[:, 0])).mean() + 0.1 * (p(x) - r(x)).pow(2).mean(); l.backward(); a.step(); a.zero_grad()
    k = (v(x) - y).pow(2).mean(); k.backward(); b.step(); b.zero_grad(); print(float(l).hex(), float(k).hex())
show(p, v)
""", "Policy with AdamW, Value with AdamW; not watched, because no optimizer holds it: Policy"),
    "average": ("""
from torch.optim.swa_utils import AveragedModel
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2); e = AveragedModel(m)
for i in range(40): step(m, o); e.update_parameters(m)
show(m, e)
""", "Sequential with AdamW; not watched, because no optimizer holds it: AveragedModel"),
    "workers": ("""
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 160
    def __getitem__(self, k): return torch.full((8,), k / 160.0).sin() * torch.arange(1.0, 9)
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for epoch in range(2):
    for x in torch.utils.data.DataLoader(Rows(), batch_size=8, shuffle=True, num_workers=2):
        l = (m(x) - x.sum(1, keepdim=True)).pow(2).mean(); l.backward(); o.step(); o.zero_grad(); print(float(l).hex())
show(m)
""", "Sequential with AdamW"),
    "resumed": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(10):
    x, y = batch(); l = (m(x) - y).pow(2).mean(); grads = torch.autograd.grad(l, list(m.parameters()))
state = o.state_dict(); n = len(list(m.parameters()))
o.load_state_dict({"state": {k: {"step": torch.tensor(500.0), "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.full_like(p, 1e-4)}
                             for k, p in enumerate(m.parameters())}, "param_groups": state["param_groups"]})
for i in range(40): step(m, o)
show(m)
""", "Sequential with AdamW"),
    "own_optimizer": ("""
class Sign(torch.optim.Optimizer):
    def __init__(self, parameters, lr): super().__init__(parameters, {"lr": lr})
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]: p.sub_(group["lr"] * p.grad.sign())
m = net(8, 16, 1); o = Sign(m.parameters(), 1e-3)
for i in range(40): step(m, o)
show(m)
""", "Sequential with Sign"),
    "thread": ("""
import threading
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
def work():
    for i in range(40): step(m, o)
t = threading.Thread(target=work); t.start(); t.join()
show(m)
""", "Sequential with AdamW"),
    "made_again": ("""
for k in range(4):
    m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
    for i in range(12): step(m, o)
show(m)
""", "Sequential with AdamW"),
    "evaluated": ("""
m = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.1), nn.Tanh(), nn.Linear(16, 1)); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(40):
    step(m, o)
    if i % 10 == 9:
        m.eval()
        with torch.no_grad(): print(float(m(batch()[0]).mean()).hex())
        m.train()
show(m)
""", "Sequential with AdamW"),
    "wrapped_twice": ("""
class Net(nn.Module):
    def __init__(self): super().__init__(); self.body = net(8, 16, 1)
    def forward(self, x): return self.body(x)
class Meter(nn.Module):
    def __init__(self, model): super().__init__(); self.model, self.seen = model, 0
    def forward(self, x): return self.model(x).mean()
m = Net(); meter = Meter(m); ddp = nn.DataParallel(m); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(40): step(m, o)
show(m)
""", ""),
    "no_module": ("""
w = torch.zeros(8, 1, requires_grad=True); o = torch.optim.SGD([w], lr=1e-2)
for i in range(20):
    x, y = batch(); l = (x @ w - y).pow(2).mean(); l.backward(); o.step(); o.zero_grad(); print(float(l).hex())
""", None),
    "asks_for_torch": ("""
""", None),  # replaced below
    "fork": ("""
import multiprocessing
def work():
    m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
    for i in range(20): step(m, o)
    show(m)
c = multiprocessing.get_context("fork").Process(target=work); c.start(); c.join(); print(c.exitcode)
""", "Sequential with AdamW"),
    "spawn": ("""
import multiprocessing
def work():
    m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
    for i in range(20): step(m, o)
    show(m)
if __name__ == "__main__":
    c = multiprocessing.get_context("spawn").Process(target=work); c.start(); c.join(); print(c.exitcode)
""", "Sequential with AdamW"),
    "two_ranks": ("""
import torch.distributed as dist, torch.multiprocessing as mp
def work(rank, port):
    dist.init_process_group("gloo", init_method="tcp://127.0.0.1:" + port, rank=rank, world_size=2)
    torch.manual_seed(0); m = nn.parallel.DistributedDataParallel(net(8, 16, 1)); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
    torch.manual_seed(rank); lines = []
    for i in range(20):
        x, y = batch(); l = (m(x) - y).pow(2).mean(); l.backward(); o.step(); o.zero_grad(); lines.append(float(l).hex())
    if rank == 0: print(" ".join(lines)); show(m)
    dist.destroy_process_group()
if __name__ == "__main__":
    import socket
    with socket.socket() as s: s.bind(("127.0.0.1", 0)); port = str(s.getsockname()[1])
    mp.spawn(work, (port,), 2)
""", "DistributedDataParallel(Sequential) with AdamW"),
    "exits_with_3": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(20): step(m, o)
sys.exit(3)
""", "Sequential with AdamW"),
    "raises": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(20): step(m, o)
raise ValueError("the trainer's own error")
""", "Sequential with AdamW"),
    "two_lines": ("""
import plumbline
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
run = plumbline.init(run="mine"); run.watch(m, o)
for i in range(20): step(m, o)
run.finish(); show(m)
""", None),
}
HEALTHY["asks_for_torch"] = ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(20): step(m, o)
print(torch.__spec__.loader is torch.__loader__, type(torch.__loader__).__name__, [type(f).__name__ for f in sys.meta_path if "lumb" in repr(f)])
show(m)
""", "Sequential with AdamW")
BEFORE = {"asks_for_torch": "import importlib.util\nassert importlib.util.find_spec('torch').loader.get_code\n"}  # before HEAD
SHORT = ("gan", "two_modules_one_optimizer", "frozen_reference", "spawn", "two_ranks", "raises", "asks_for_torch", "two_lines")

# name -> (code, {rule: the first step in which it is found})
FAULTS = {
    "nan": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(40): step(m, o, lambda m, x, y: (m(x) - y).pow(2).mean() * (float("nan") if i == 25 else 1))
""", {"health/loss-non-finite": 25}),
    "rate_zero": ("""
m = net(8, 16, 1); o = torch.optim.SGD(m.parameters(), lr=0.0)
for i in range(150): step(m, o)
""", {"health/learning-rate": 1}),
    "frozen_parameter": ("""
m = net(8, 16, 1); o = torch.optim.AdamW([m[2].weight, m[2].bias], lr=1e-2)
for i in range(80): step(m, o)
""", {"health/unchanged-tensor": 1}),
    "detached": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(80): step(m, o, lambda m, x, y: (m[2](m[1](m[0](x)).detach()) - y).pow(2).mean())
""", {"health/no-gradient": 1}),
    "left_in_eval": ("""
m = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.2), nn.Tanh(), nn.Linear(16, 1)); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(80):
    if i == 30:
        m.eval()
        with torch.no_grad(): m(batch()[0])
    step(m, o)
""", {"health/eval-mode": 30}),
    "never_cleared": ("""
m = net(8, 16, 1); o = torch.optim.SGD(m.parameters(), lr=1e-3)
for i in range(60):
    x, y = batch(); l = (m(x) - y).pow(2).mean(); l.backward(); o.step()
""", {"precision/stale-gradient": (1, 8)}),
    "swallowed_updates": ("""
m = net(8, 64, 1).bfloat16(); o = torch.optim.SGD(m.parameters(), lr=1e-4)
for i in range(150): step(m, o, lambda m, x, y: (m(x.bfloat16()).float() - y).pow(2).mean())
""", {"precision/lost-update": None}),
    "rate_too_low": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-9)
for i in range(250): step(m, o)
""", {"health/update-ratio": (10, 12)}),
    "forgotten_optimizer": ("""
m = net(8, 16, 1); a = torch.optim.AdamW(m[0].parameters(), lr=1e-2); b = torch.optim.AdamW(m[2].parameters(), lr=1e-2)
for i in range(120):
    x, y = batch(); l = (m(x) - y).pow(2).mean(); l.backward(); a.step(); a.zero_grad(); b.zero_grad()
""", {"health/no-gradient": None}),
    "infinite_gradient": ("""
m = net(8, 16, 1); o = torch.optim.AdamW(m.parameters(), lr=1e-2)
for i in range(60):
    x, y = batch(); l = (m(x) - y).pow(2).mean(); l.backward()
    if i == 30: m[0].weight.grad[0, 0] = float("inf")
    o.step(); o.zero_grad()
""", {"precision/non-finite": 30}),
}
SHORT_FAULTS = ("nan", "rate_zero", "frozen_parameter", "left_in_eval", "swallowed_updates")
