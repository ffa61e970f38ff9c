"""fingerprint of Python callables, torch operations, and an all-reduce over gloo."""

import threading

import pytest

torch = pytest.importorskip("torch")

import plumbline  # noqa: E402

torch.set_num_threads(1)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["torch.sum", "torch.matmul", "torch.index_add",
                                  "torch.nn.functional.embedding.backward"])  # fmt: skip
def test_torch_operations(name, dtype):
    found = plumbline.fingerprint(name, n=200, dtype=dtype, samples=60)
    assert found.verdict in ("verified", "order-only"), found
    assert found.order and found.tree_calls > 0
    if found.verdict == "verified":
        assert found.matches == found.samples == 60
        assert found.arithmetic and f'name = \'{name}\'' in found.contract
    else:  # an order without arithmetic is marked as such
        assert not found.arithmetic and "no arithmetic" in found.evidence


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_sums_and_products_are_explained(dtype):
    for name in ("torch.sum", "torch.matmul", "torch.dot"):
        found = plumbline.fingerprint(name, n=200, dtype=dtype, samples=60)
        assert found.verdict == "verified", found


def test_a_loop_is_a_left_fold():
    def loop(a):
        total = torch.zeros((), dtype=a.dtype)
        for x in a:
            total = total + x
        return total

    found = plumbline.fingerprint(loop, n=24, dtype="bf16", samples=60)
    assert found.verdict == "verified", found
    assert found.order == "left fold of 24 terms"
    assert found.arithmetic.startswith("bf16 adds, nearest-even")


def all_reduce(ranks):
    """Runs one process with one thread per rank, which ProcessGroupGloo allows."""
    store = torch.distributed.HashStore()
    groups = [None] * ranks

    def join(rank):
        groups[rank] = torch.distributed.ProcessGroupGloo(store, rank, ranks)

    def everywhere(work):
        threads = [threading.Thread(target=work, args=(rank,)) for rank in range(ranks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    everywhere(join)

    def reduce(a):
        buffers = [torch.full((8,), float(x), dtype=a.dtype) for x in a]
        works = [groups[rank].allreduce([buffers[rank]]) for rank in range(ranks)]
        for work in works:
            work.wait()
        return buffers[0][0]

    return reduce


def test_all_reduce_over_gloo():
    found = plumbline.fingerprint(all_reduce(4), n=4, dtype="f32", kind="all-reduce", samples=30)
    assert found.verdict == "verified", found
    assert found.arithmetic.startswith("f32 adds, nearest-even")


def test_random_functions_are_refused():
    found = plumbline.fingerprint(lambda a: a.sum() + torch.rand(()), n=16, samples=30)
    assert found.verdict == "nondeterministic" and "the same addends gave" in found.evidence


def test_batches():
    def summed(a, batch=1):
        return a.sum() if batch < 8 else a.flip(0).cumsum(0)[-1]

    found = plumbline.fingerprint(summed, n=64, samples=30)
    assert "in a batch of 8" in repr(found)


def test_refusals():
    with pytest.raises(ValueError, match="torch.sum"):
        plumbline.fingerprint("torch.nothing", n=8)
    with pytest.raises(ValueError, match="n: expected"):
        plumbline.fingerprint(sum, n=1)
    with pytest.raises(ValueError, match="dtype"):
        plumbline.fingerprint(sum, n=8, dtype="i32")
    with pytest.raises(ValueError, match="kind"):
        plumbline.fingerprint(sum, n=8, kind="product")
    with pytest.raises(plumbline.FingerprintError, match="broken"):

        def broken(a):
            raise RuntimeError("broken")

        plumbline.fingerprint(broken, n=8)


def test_contract_is_the_same_each_time(tmp_path):
    first = plumbline.fingerprint("torch.sum", n=100, samples=30)
    second = plumbline.fingerprint("torch.sum", n=100, samples=30, seed=5)
    assert first.contract == second.contract and first.contract
    first.save(tmp_path / "contract.toml")
    assert (tmp_path / "contract.toml").read_text() == first.contract
