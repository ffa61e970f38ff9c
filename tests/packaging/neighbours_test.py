"""Runs with other users of protobuf, gRPC, OpenSSL, numpy and PyTorch in one process, loaded before our libraries and
after."""

import pathlib
import shutil
import tempfile
import textwrap

from support import Case, PYTHON, UNPACKED, clean_environment, main, plumbd, run, stated

PACKAGE = next(UNPACKED.iterdir()) / "lib/python3/dist-packages" if UNPACKED.exists() else ""

OURS = """
import plumbline
run = plumbline.init(run="adjacent", record=RECORD, server=SERVER, every=1)
def ours(step):
    with run.step(step):
        run.observe_routing("a", [[0.5, 0.25], [0.1, 0.2]], topk_indices=[[0], [1]], top_k=1)
        run.scalar("loss", 1.0)
"""
PROTOBUF = """
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2
from google.protobuf.internal import api_implementation
def theirs(n):
    file = descriptor_pb2.FileDescriptorProto(name=f"evidence{n}.proto", package=f"trainer{n}")
    file.message_type.add(name="Evidence").field.add(name="value", number=1, type=9, label=1)
    pool = descriptor_pool.Default()
    pool.Add(file)
    Evidence = message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName(f"trainer{n}.Evidence"))
    assert Evidence.FromString(Evidence(value="x" * n).SerializeToString()).value == "x" * n
    tree = struct_pb2.Struct(); tree.update({"a": [1, {"b": None}]})
    assert struct_pb2.Struct.FromString(tree.SerializeToString()) == tree
"""
GRPC = """
import grpc
from concurrent import futures
class Echo(grpc.GenericRpcHandler):
    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda request, context: request[::-1])
server = grpc.server(futures.ThreadPoolExecutor(2))
server.add_generic_rpc_handlers((Echo(),))
port = server.add_insecure_port("127.0.0.1:0")
server.start()
channel = grpc.insecure_channel(f"127.0.0.1:{port}")
def theirs(n):
    assert channel.unary_unary("/echo.Echo/Echo")(b"ab" * (n + 1), timeout=30) == b"ba" * (n + 1)
"""
OPENSSL = """
import hashlib, ssl
context = ssl.create_default_context()
def theirs(n):
    assert hashlib.new("sha3_256", b"x" * n).digest() == hashlib.sha3_256(b"x" * n).digest()
    ends = [ssl.MemoryBIO() for _ in range(2)]
    try:
        context.wrap_bio(*ends, server_hostname="example.org").do_handshake()
    except ssl.SSLWantReadError:
        assert ends[1].pending > 100
"""
NUMPY = """
import numpy
def theirs(n):
    a = numpy.random.default_rng(n).standard_normal((64, 64))
    assert numpy.allclose(numpy.linalg.inv(a) @ a, numpy.eye(64), atol=1e-6)
"""
TORCH = """
import torch
layer = torch.nn.Linear(64, 8); optimizer = torch.optim.AdamW(layer.parameters())
def theirs(n):
    optimizer.zero_grad(); layer(torch.randn(16, 64)).square().mean().backward(); optimizer.step()
"""
USE = """
{first}
{early}
{second}
for n in range(1, 6):
    ours(n)
    theirs(n)
run.flush()
run.finish(30)
theirs(9)
print("done")
"""

# Two copies of Plumbline: a trainer's environment has one, and its extension was linked with another.
COPIES = """
import ctypes, sys
{linked}
def opened(folder, name):
    for module in [m for m in sys.modules if m.startswith("plumbline")]:
        del sys.modules[module]
    sys.path.insert(0, folder)
    import plumbline
    assert plumbline.__file__.startswith(folder), plumbline.__file__
    return plumbline.init(run=name, record=RECORD + name, every=1)
runs = [opened(PACKAGE, "first"), opened(OTHER, "second")]
for step in range(3):
    for run in runs:
        with run.step(step):
            run.scalar("loss", 1.0 / (step + 1) if run is runs[0] else float("nan"))
for run in runs:
    run.finish()
print("done")
"""


class Adjacent(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="plumb-adjacent-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        server = plumbd(PACKAGE.parents[2])
        cls.address, _ = server.__enter__()
        cls.addClassCleanup(server.__exit__, None, None, None)

    def both_orders(self, theirs, name, **environment):
        for order, (first, second) in {"before": (theirs, OURS), "after": (OURS, theirs)}.items():
            with self.subTest(order):
                record = self.folder / f"{name}-{order}"
                head = f"RECORD, SERVER = {str(record)!r}, {self.address!r}\n"
                # Imported after ours: our agent and its closure are already in the process.
                early = "ours(0)" if second is theirs else ""
                code = head + USE.format(
                    first=textwrap.dedent(first), second=textwrap.dedent(second), early=early
                )
                done = self.ok(
                    run(
                        PYTHON,
                        "-c",
                        code,
                        environment=clean_environment(PYTHONPATH=PACKAGE, **environment),
                    )
                )
                self.assertEqual(done.stdout, "done\n", stated(done))
                self.assertTrue(any(record.rglob("*.plog*")) or any(record.iterdir()))

    def test_protobuf_in_python(self):
        self.need_module("google.protobuf")
        self.both_orders(PROTOBUF, "protobuf", PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="python")

    def test_protobuf_in_cpp(self):
        """Debian's extension links libprotobuf.so.32; ours is a copy of it under another name."""
        self.need_module("google.protobuf.pyext._message")
        self.both_orders(
            PROTOBUF + "assert api_implementation.Type() == 'cpp'\n",
            "cpp",
            PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION="cpp",
        )

    def test_grpc(self):
        self.need_module("grpc")
        self.both_orders(GRPC, "grpc")

    def test_openssl(self):
        self.both_orders(OPENSSL, "openssl")

    def test_numpy(self):
        self.need_module("numpy")
        self.both_orders(NUMPY, "numpy")

    def test_torch(self):
        self.need_module("torch")
        self.both_orders(TORCH, "torch")

    def test_another_copy_of_ours(self):
        prefix = PACKAGE.parents[2]
        other = self.folder / "copy" / "prefix"
        shutil.copytree(prefix / "lib", other / "lib", symlinks=True)
        for name, linked in {"python": "", "linked": "ctypes.CDLL(OTHER.split('/lib/')[0] + '/lib/libplumbline.so')"}.items():
            with self.subTest(name):
                record = self.folder / f"copies-{name}-"
                words = {"RECORD": record, "PACKAGE": PACKAGE, "OTHER": other / "lib/python3/dist-packages"}
                head = "".join(f"{word} = {str(value)!r}\n" for word, value in words.items())
                done = self.ok(run(PYTHON, "-c", head + COPIES.format(linked=linked), environment=clean_environment()))
                self.assertEqual(done.stdout, "done\n", stated(done))
                self.assertRegex(done.stderr, r"\A(plumbline: (recorded in|loss is NaN) .*\n)*\Z")
                for which, found in {"first": 0, "second": 1}.items():  # a NaN
                    status = run(prefix / "bin/plumb", "audit", f"{record}{which}", "--quiet").returncode
                    self.assertEqual(status, found)

    def test_all_at_once(self):
        for name in ("google.protobuf", "grpc", "numpy"):
            self.need_module(name)
        parts = []
        for i, part in enumerate((PROTOBUF, GRPC, OPENSSL, NUMPY)):
            parts.append(part.replace("def theirs(", f"def theirs{i}("))
        together = (
            "\n".join(parts)
            + "\ndef theirs(n):\n    theirs0(n); theirs1(n); theirs2(n); theirs3(n)\n"
        )
        self.both_orders(together, "all")


if __name__ == "__main__":
    main()
