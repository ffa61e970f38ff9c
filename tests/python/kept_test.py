"""run.finish() returns True only if all measurements were kept. A table lists the cases in which none, or only a part, is kept."""

import pytest
import trainer

_OPEN = """
    import os, resource, signal
    import plumbline
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    def limit(name, most):
        resource.setrlimit(getattr(resource, name), (most, most))
    run = plumbline.init(run="exp1", every=1, **{options})
"""
_OBSERVE = """
    for i in range({steps}):
        with run.step(i):
            run.observe_routing("a", [[1.0, 0.5]], top_k=1)
            run.scalar("loss", 1.0)
"""
_FINISH = """
    print("finished", run.finish(), run.finish())
"""


def _outcome(tmp_path, options, between="", steps=3, after="", **environment):
    (tmp_path / "file").write_text("no directory")
    code = _OPEN.format(options=options) + between + _OBSERVE.format(steps=steps) + after + _FINISH
    environment.setdefault("agent", None)
    return trainer.run(code, tmp_path, **environment).ok()


# The obstacle -> (init's options, lines between opening and observing, environment, the reason).
NOTHING_IS_KEPT = {
    "record is a file": ({"record": "file"}, "", {}, "record directory file: Not a directory"),
    "record cannot be made": ({"record": "/proc/none"}, "", {}, "record directory /proc/none"),
    "spool is a file": ({"server": "127.0.0.1:1", "spool": "file"}, "", {}, "spool directory file"),
    "no memory (ulimit -v)": ({"record": "r"}, 'limit("RLIMIT_AS", 60 << 20)', {}, ""),
    "disk full from the start": ({"record": "r"}, 'limit("RLIMIT_FSIZE", 0)', {}, "File too large"),
    "no descriptors left": ({"record": "r"}, 'limit("RLIMIT_NOFILE", 3)', {}, "Too many open files"),
    "no agent library": ({"record": "r"}, "", {"agent": "/nonexistent/a.so"}, "/nonexistent/a.so"),
    "no library": ({"record": "r"}, "", {"PLUMBLINE_LIBRARY": "/nonexistent/l.so"}, "/nonexistent/l.so"),
    "neither server nor record": ({}, "", {}, "neither server nor record"),
    "a mistake in init": ({"record": "r", "rank": 3, "world_size": 2}, "", {}, "rank 3 of world size 2"),
}


@pytest.mark.parametrize("case", NOTHING_IS_KEPT)
def test_nothing_is_kept(case, tmp_path):
    options, between, environment, reason = NOTHING_IS_KEPT[case]
    outcome = _outcome(tmp_path, options, f"\n    {between}\n", **environment)
    assert outcome.out == "finished False False\n", outcome.err
    assert reason in outcome.err and outcome.err.count("plumbline: ") == 1, outcome.err


def test_a_disk_that_fills_loses_something(tmp_path):
    grown = """
    run.flush()
    limit("RLIMIT_FSIZE", sum(os.path.getsize(os.path.join("r", f)) for f in os.listdir("r")))
    with run.step(3):
        run.scalar("loss", 1.0)
    run.flush()
    """
    outcome = _outcome(tmp_path, {"record": "r"}, after=grown)
    assert outcome.out == "finished False False\n", outcome.err
    assert "the record cannot be written" in outcome.err and "File too large" in outcome.err


def test_a_disk_that_has_room_again_has_lost_something_all_the_same(tmp_path):
    grown = """
    run.flush()
    size = sum(os.path.getsize(os.path.join("r", f)) for f in os.listdir("r"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    with run.step(3):
        run.scalar("loss", 1.0)
    run.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    import time; time.sleep(1.2)
    with run.step(4):
        run.scalar("loss", 1.0)
    """
    outcome = _outcome(tmp_path, {"record": "r"}, after=grown)
    assert outcome.out == "finished False False\n", outcome.err
    assert outcome.err.count("close: the record cannot be written") == 1, outcome.err


def test_a_server_that_is_away(tmp_path):
    outcome = _outcome(tmp_path, {"server": "127.0.0.1:1"})
    assert outcome.out == "finished False False\n"
    assert "has not acknowledged" in outcome.err and "kept in" not in outcome.err
    spooled = _outcome(tmp_path, {"server": "127.0.0.1:1", "spool": "s"})
    assert spooled.out == "finished False False\n"
    assert "are kept in s/" in spooled.err


def test_a_forked_child(tmp_path):
    forked = """
    if os.fork() == 0:
        print("child", run.finish(), plumbline.init(run="exp2", record="r2").finish(), flush=True)
        os._exit(0)
    os.wait()
    """
    outcome = _outcome(tmp_path, {"record": "r"}, after=forked)
    assert outcome.out == "child False False\nfinished True True\n"
    assert outcome.err.count("was forked from") == 2, "one line a run"


def test_what_is_kept_is_true(tmp_path):
    assert _outcome(tmp_path, {"record": "r"}).out == "finished True True\n"
    assert _outcome(tmp_path, {"record": "none"}, steps=0).out == "finished True True\n"  # nothing was observed
    disabled = _outcome(tmp_path, {"record": "off"}, PLUMBLINE_DISABLE="1")
    assert disabled.out == "finished True True\n" and not disabled.err
