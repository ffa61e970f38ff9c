"""A mistake in a call is reported once, at the line of the trainer, and never ends its step."""

import trainer
from trainer import OPEN


def test_mistakes_point_at_the_caller(tmp_path):
    code = """
    import plumbline
    run = plumbline.init({})
    """
    for arguments, stated in [
        ("record='r', evry=2", "no keyword 'evry'; is 'every' meant?"),
        ("record='r', every=0", "every is 0; expected an integer of at least 1"),
        ("record='r', every=2.5", "every is 2.5"),
        ("server='http://127.0.0.1:7433'", "nothing before the host"),
        ("server='127.0.0.1'", "host:port"),
    ]:
        outcome = trainer.run(code.format(arguments), tmp_path).ok()
        assert stated in outcome.err and "<string>:3: RuntimeWarning" in outcome.err, outcome.err
        strict = trainer.run(code.format(f"strict=True, {arguments}"), tmp_path)
        assert strict.code == 1 and stated in strict.err


def test_a_typing_error_in_a_call(tmp_path):
    outcome = trainer.run(
        OPEN
        + """
    for i in range(2):
        with run.step(i):
            run.observe_routing("a", [[1.0, 2.0]], top_k=1, keep_masc=[[True]])
            run.observe_tensor("w", tensr=[1.0])
            run.observe_update("w", befor=[1.0])
            run.observe_tensor("v", [1.0])
    run.finish()
    """,
        tmp_path,
    ).ok()
    assert outcome.err.count("no argument 'keep_masc'; is 'keep_mask' meant?") == 1
    assert outcome.err.count("no argument 'tensr'") == 1
    assert outcome.err.count("no argument 'befor'; is 'before' meant?") == 1
    assert "<string>:9: RuntimeWarning" in outcome.err
    assert not outcome.only("routing") and outcome.only("tensor v")
