"""Opening a run: refused, disabled, without its library or its agent. Also the library that the package finds, and the structs that both share."""

import ctypes
import subprocess

import trainer
from trainer import OPEN


def test_refused_open(tmp_path):
    code = """
    import plumbline
    run = plumbline.init({})
    with run.step(0):
        run.observe_routing("a", [[1.0]], top_k=1)
        run.scalar("loss", 1)
        with run.span("data"): pass
    assert not run.flush() and not run.finish()
    assert isinstance(run, plumbline.NoRun)
    """
    for arguments, stated in [
        ("", "neither server nor record"),
        ("record='r', rank=3, world_size=2", "rank 3 of world size 2"),
        # ctypes would cut these to 32 bits: ranks 0 and 1.
        ("record='r', rank=2**32, world_size=2", "rank is 4294967296; expected an integer from 0 to 2147483647"),
        ("record='r', rank=-3", "rank is -3; expected an integer from 0"),
        ("record='r', rank=1.0", "rank is 1.0; expected an integer from 0"),
        ("record='r', world_size=2**32 + 1", "world_size is 4294967297; expected an integer from 1"),
        ("record='r', attempt=2**40", "attempt is 1099511627776; expected an integer from 0"),
        ("record='r', spool_bytes=-5", "spool_bytes is -5; expected an integer from 1"),
        ("record='r', role='cook'", "role is 'cook'"),
        ("record='r', redact='no'", "redact is 'no'; expected True, False or None"),
        ("record='r', redact='ids'", "redact is 'ids'; expected True, False or None"),
        ("record='r', budget=7", "budget"),
        (r"run='exp\0one', record='r'", r"'exp\x00one' holds a NUL character"),
    ]:
        outcome = trainer.run(code.format(arguments), tmp_path).ok()
        assert stated in outcome.err and not outcome.calls
        strict = trainer.run(code.format(f"strict=True, {arguments}"), tmp_path)
        assert strict.code == 1 and stated in strict.err


def test_the_spool_is_an_option(tmp_path):
    code = """
    import plumbline
    run = plumbline.init("exp1", server="127.0.0.1:1", spool="kept", spool_bytes=1 << 20)
    with run.step(0):
        run.observe_routing("a", [[1.0]], top_k=1)
    """
    outcome = trainer.run(code, tmp_path)
    assert outcome.calls[0].endswith("budget=0.000000 spool=kept spool_bytes=1048576")


def test_redaction_is_an_option_and_a_variable(tmp_path):
    code = """
    import plumbline
    run = plumbline.init("exp1", record="r"{})
    with run.step(0):
        run.observe_routing("a", [[1.0]], top_k=1)
    """

    def opened(arguments="", **environment):
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return trainer.run(code.format(arguments), folder, **environment).ok()

    assert opened(", redact=True").calls[0].endswith(" redact=1")
    assert opened(PLUMBLINE_REDACT="1").calls[0].endswith(" redact=1")
    assert "redact" not in opened().calls[0]
    # If a key can be guessed, nothing is opened, so no data can leave.
    short = opened(", redact=True", PLUMBLINE_REDACT_KEY="hunter2")
    assert "PLUMBLINE_REDACT_KEY has 7 bytes; expected at least 16" in short.err and not short.calls
    assert "hunter2" not in short.err
    maybe = opened(PLUMBLINE_REDACT="yes")
    assert 'PLUMBLINE_REDACT is "yes"; expected an integer from 0 to 1' in maybe.err and not maybe.calls


def test_missing_library_is_one_warning(tmp_path):
    code = """
    import plumbline
    for _ in range(2):
        run = plumbline.init(run="exp1", record="r")
    with run.step(0):
        run.observe_routing("a", [[1.0]], top_k=1)
    run.finish()
    """
    outcome = trainer.run(code, tmp_path, PLUMBLINE_LIBRARY="/nonexistent/lib.so").ok()
    assert "libplumbline.so cannot be loaded" in outcome.err
    assert outcome.err.count("RuntimeWarning") == 1


def test_missing_agent_is_one_warning(tmp_path):
    code = OPEN + """
    for i in range(3):
        with run.step(i):
            run.observe_routing("a", [[1.0]], top_k=1)
            run.scalar("loss", 1)
    run.finish()
    """
    outcome = trainer.run(code, tmp_path, agent="/nonexistent/agent.so").ok()
    assert outcome.err.count("\n") == 1 and "/nonexistent/agent.so" in outcome.err


def test_disabled_loads_nothing(tmp_path):
    code = """
    import plumbline
    run = plumbline.init()
    with run.step(0):
        run.observe_routing("a", "anything", top_k=-1)
        run.scalar("loss", 1)
    assert isinstance(run, plumbline.NoRun)
    assert "agent" not in open("/proc/self/maps").read()
    """
    outcome = trainer.run(code, tmp_path, PLUMBLINE_DISABLE="1").ok()
    assert outcome.err == "" and not outcome.calls


def test_package_finds_the_library_without_help(tmp_path):
    code = """
    import os, plumbline
    from plumbline import _library
    assert plumbline.version().startswith("0.") and "~" in plumbline.version()
    assert os.path.samefile(_library.load().path, os.environ["PLUMBLINE_BUILD_DIR"] + "/lib/libplumbline.so")
    """
    trainer.run(code, tmp_path).ok()


def test_struct_layouts_match_the_header(tmp_path):
    from plumbline import _library, _routing

    source = tmp_path / "sizes.c"
    source.write_text(
        '#include <stdio.h>\n#include "plumbline/plumbline.h"\n'
        'int main(void) { printf("%zu %zu %zu", sizeof(plumbline_routing_t), '
        "sizeof(plumbline_open_options_t), sizeof(DLTensor)); return 0; }\n"
    )
    root = __file__.rsplit("/tests/", 1)[0]
    subprocess.run(
        ["cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"-I{root}/agent/include",
         str(source), "-o", str(tmp_path / "sizes")], check=True)  # fmt: skip
    printed = subprocess.run([str(tmp_path / "sizes")], capture_output=True, text=True, check=True)
    routing_bytes, options_bytes, tensor_bytes = map(int, printed.stdout.split())
    assert _routing.STRUCT.size == routing_bytes
    assert ctypes.sizeof(_library.OpenOptions) == options_bytes
    assert tensor_bytes == 48
