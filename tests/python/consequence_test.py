"""leak_consequence: hand-computed cases, the interval's coverage by simulation, poison, nonsense."""

import math
import random
import subprocess
import sys

import pytest

import plumbline
from plumbline import _student

NAN, INF = math.nan, math.inf


# ---- by hand --------------------------------------------------------------------------------------


def test_three_sequences_by_hand():
    # Differences -1, -2, -3: mean -2, standard deviation 1, error 1/sqrt(3); t(2; 0.995) = 9.924843.
    # Their skewness is 0, so Hall's transformation changes nothing.
    found = plumbline.leak_consequence([[1, 1], [1, 1], [1, 1]], [[1.5, 2.5], [3, 3], [5, 3]])
    assert found.difference == pytest.approx(-2, abs=1e-15)
    assert found.standard_error == pytest.approx(1 / math.sqrt(3), rel=1e-14)
    half = 9.9248432 / math.sqrt(3)
    assert found.interval == pytest.approx((-2 - half, -2 + half), rel=1e-7)
    assert (found.training_loss, found.causal_loss) == (1.0, 3.0)
    assert (found.tokens, found.sequences, found.units, found.unit) == (6, 3, 3, "sequence")
    assert found.level == 0.99 and found.no_interval is None
    # By column: -0.5, -2, -4 and -1.5, -2, -2; the sum is -12.
    first, second = found.by_position
    assert (first["from"], first["to"], second["from"], second["to"]) == (0, 0, 1, 1)
    assert first["difference"] == pytest.approx(-6.5 / 3) and first["share"] == pytest.approx(6.5 / 12)
    assert second["share"] == pytest.approx(5.5 / 12)
    assert "2.0000 nats per token lower" in found.text and "is within the noise" in found.text


def test_unequal_lengths_weigh_by_their_tokens():
    # Sums -2 over 1 token and -2 over 2: r = -4/3. Without the first r = -1, without the second -2:
    # the jackknife's variance is 1/2 * (1/9 + 4/9) = 5/18. Two units have one degree of freedom.
    found = plumbline.leak_consequence([0, 0, 0], [2, 0.5, 1.5], sequence_id=[4, 9, 9])
    assert found.difference == pytest.approx(-4 / 3)
    assert found.standard_error == pytest.approx(math.sqrt(5 / 18))
    assert found.interval[1] + 4 / 3 == pytest.approx(63.656741 * math.sqrt(5 / 18), rel=1e-6)


def test_skewed_differences_by_hand():
    # Differences 0.5, 0.5, 2 (mean 1, error 0.5, skewness 1/sqrt(2), a = 1/sqrt(6)): the normal pull of
    # Student's is symmetric; Hall's solves t + a t^2/3 + a^2 t^3/27 + a/6 = +-9.924843.
    found = plumbline.leak_consequence([[0.5], [0.5], [2]], [[0], [0], [0]])
    a, t = 1 / math.sqrt(6), 9.9248432
    low, high = found.interval
    assert high - 1 > 0.5 * t and low == pytest.approx(1 - 0.5 * t, rel=1e-6)
    inverse = (1 - high) / 0.5
    assert inverse + a * inverse**2 / 3 + a**2 * inverse**3 / 27 + a / 6 == pytest.approx(-t, rel=1e-6)


@pytest.mark.parametrize(
    "df, level, value",  # tables of Student's t
    [(1, 0.99, 63.65674116), (2, 0.99, 9.92484320), (9, 0.99, 3.24983554), (30, 0.99, 2.74999565),
     (5, 0.9, 2.01504837), (1, 0.95, 12.70620474), (1e9, 0.99, 2.57582931)],
)  # fmt: skip
def test_quantiles(df, level, value):
    assert _student.two_sided(df, level) == pytest.approx(value, rel=1e-7)


# ---- independent units ----------------------------------------------------------------------------


def test_pools_are_the_units_where_sequences_share_them():
    loss, other = [[1.0], [1.0], [1.0], [1.0]], [[2.0], [2.5], [3.0], [3.1]]
    # Sequences 0 and 1 share pool 7; 1 (by its id, 5) and 2 are apart; 3 has its own.
    found = plumbline.leak_consequence(loss, other, sequence_id=[0, 1, 2, 3], pool_id=[7, 7, 8, 9])
    assert (found.unit, found.units, found.sequences) == ("pool", 3, 4)
    # One sequence in both pools joins them.
    found = plumbline.leak_consequence(loss, other, sequence_id=[0, 1, 1, 3], pool_id=[7, 7, 8, 8])
    assert found.units == 1 and found.interval is None
    assert "one pool has no spread" in found.no_interval


def test_batches_are_apart_and_add_up():
    meter = plumbline.LeakMeter()
    for shift in (0.0, 0.5):
        meter.add([[1.0, 1]] * 2, [[2 + shift, 2], [2.25, 2]], pool_id=[0] * 4)
    found = meter.result()
    assert (found.units, found.sequences, found.tokens, found.unit) == (2, 4, 8, "pool")
    assert found.difference == pytest.approx(-9 / 8)
    with pytest.raises(ValueError, match="with every batch, or with none"):
        meter.add([[1.0]], [[1.0]])
    assert meter.result().tokens == 8


# ---- coverage -------------------------------------------------------------------------------------


def normal(rng, length):
    return [-0.1 + rng.gauss(0, 0.3)] * length


def exponential(rng, length):
    return [-rng.expovariate(10)] * length


def rare(rng, length):
    return [-rng.expovariate(1) if rng.random() < 0.1 else 0.0] * length


def tokens(rng, length):
    """Each sequence has a separate level, and noise at every token."""
    level = rng.gauss(-0.1, 0.2)
    return [level + rng.gauss(0, 0.3) for _ in range(length)]


def misses(draw, sequences, lengths, level, trials, seed=1, by_token=False):
    """(intervals that miss the mean difference of -0.1 per token, intervals made)."""
    rng, missed, made = random.Random(seed), 0, 0
    for _ in range(trials):
        difference, ids = [], []
        for sequence in range(sequences):
            found = draw(rng, rng.choice(lengths))
            difference += found
            ids += [sequence] * len(found)
        if by_token:
            ids = range(len(difference))
        found = plumbline.leak_consequence(difference, [0.0] * len(difference), sequence_id=ids, level=level)
        if found.interval is not None:
            made += 1
            missed += not found.interval[0] <= -0.1 <= found.interval[1]
    return missed, made


def most(trials, rate, chance=1e-6):
    """The number of misses that a binomial of this rate exceeds with at most this chance."""
    log = [math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1)
           + k * math.log(rate) + (trials - k) * math.log1p(-rate) for k in range(trials + 1)]  # fmt: skip
    above = 0.0
    for k in range(trials, -1, -1):
        above += math.exp(log[k])
        if above > chance:
            return k
    return 0


@pytest.mark.parametrize("level", [0.9, 0.99])
@pytest.mark.parametrize(
    "draw, sequences, lengths",
    [(normal, 2, [4]), (normal, 8, [4]), (normal, 40, [1]), (tokens, 8, [12]), (tokens, 12, [1, 4, 16]),
     (normal, 6, [1, 4, 16]), (exponential, 40, [1]), (rare, 200, [1])],
)  # fmt: skip
def test_the_interval_covers_as_often_as_it_states(draw, sequences, lengths, level):
    trials = 1000
    missed, made = misses(draw, sequences, lengths, level, trials)
    # Unskewed and equally long units have exactly this rate for Student's t, and the wider of two
    # intervals does not miss more often. For the others, the corrections keep the rate.
    assert made >= 0.99 * trials
    assert missed <= most(made, 1 - level), (missed, made)


@pytest.mark.parametrize("draw, sequences", [(normal, 60), (tokens, 60)])
def test_the_interval_is_not_wider_than_it_must_be(draw, sequences):
    missed, made = misses(draw, sequences, [4], 0.9, 600, seed=2)
    # It is at most 5 % wider here: a rate of at least 0.08, which 600 trials distinguish from 0.03.
    assert missed >= made - most(made, 1 - 0.08), (missed, made)


def test_an_interval_over_tokens_would_be_wrong():
    missed, made = misses(tokens, 12, [12], 0.99, 300, by_token=True)
    assert missed > most(made, 0.05), (missed, made)


# ---- reasons for no interval ----------------------------------------------------------------------


def test_equal_losses():
    found = plumbline.leak_consequence([[2.0, 3.0]] * 200, [[2.0, 3.0]] * 200)
    assert found.difference == 0 and found.moved_tokens == 0 and found.interval is None
    # 1 - 0.01^(1/200) = 2.28 %
    assert "fewer than 2.28 % of all sequences" in found.no_interval
    assert "to the last bit" in found.text
    assert all(part["share"] is None for part in found.by_position)


def test_one_sequence_has_no_interval():
    found = plumbline.leak_consequence([1.0, 2.0], [1.5, 2.0])
    assert found.difference == -0.25 and found.interval is None and found.units == 1
    assert "one sequence has no spread" in found.no_interval and found.no_interval in found.text


def test_few_sequences_that_differ_among_many_that_do_not():
    loss = [[1.0]] * 100
    found = plumbline.leak_consequence(loss, [[1.0 + 0.1 * (i < 9) * (i + 1)] for i in range(100)])
    assert found.interval is None and "only 9 of 100 sequences differ" in found.no_interval
    found = plumbline.leak_consequence(loss, [[1.0 + 0.1 * (i < 10) * (i + 1)] for i in range(100)])
    assert found.interval[1] < 0 and found.moved_units == 10


def test_the_same_difference_everywhere():
    found = plumbline.leak_consequence([[1.0]] * 3, [[2.0]] * 3)
    assert found.difference == -1 and found.interval is None and "same amount" in found.no_interval


# ---- poison ---------------------------------------------------------------------------------------


def test_nonfinite_losses_are_counted_apart_and_poison_nothing():
    training = [[1.0, NAN, 1.0, 1.0, 1e300], [1.0, 1.0, INF, 2.0, 1.0]]
    causal = [[1.5, 2.0, -INF, 1.25, 1.0], [2.0, 1.0, NAN, 2.5, 1.0]]
    found = plumbline.leak_consequence(training, causal)
    assert found.nonfinite == {"training": 2, "causal": 1, "both": 1}
    clean = plumbline.leak_consequence([1, 1, 1, 1, 2, 1], [1.5, 1.25, 2, 1, 2.5, 1],
                                       sequence_id=[0, 0, 1, 1, 1, 1])  # fmt: skip
    assert (found.difference, found.interval) == (clean.difference, clean.interval)
    assert "Excluded as NaN or infinite: 2 tokens under the training routing only" in found.text
    assert any("4 excluded tokens" in text for text in found.assumptions)
    for part in found.by_position:
        assert math.isfinite(part["difference"])


def test_nothing_finite():
    found = plumbline.leak_consequence([[NAN]] * 3, [[1.0]] * 3)
    assert (found.difference, found.interval, found.tokens, found.units) == (None, None, 0, 0)
    assert found.text.startswith("Nothing to compare: no token has a finite loss under both routings.")
    repr(found)


def test_the_smallest_and_largest_differences():
    for scale in (1e-300, 1e99):
        found = plumbline.leak_consequence([[scale], [3 * scale], [4 * scale]], [[0.0]] * 3)
        assert all(map(math.isfinite, (found.difference, *found.interval)))


# ---- inputs ---------------------------------------------------------------------------------------


def test_padding_does_not_count():
    found = plumbline.leak_consequence(
        [[1, 2, 0], [3, 0, 0]], [[2, 4, 0], [3.5, 0, 0]],
        padding_mask=[[False, False, True], [False, True, True]])  # fmt: skip
    assert found.tokens == 3 and found.difference == pytest.approx(-3.5 / 3)
    assert [part["tokens"] for part in found.by_position] == [2, 1]


def test_positions_gather_into_eight_ranges_that_share_the_whole():
    length = 100
    rng = random.Random(3)
    loss = [[rng.random() for _ in range(length)] for _ in range(3)]
    parts = plumbline.leak_consequence(loss, [[0.0] * length] * 3).by_position
    assert len(parts) == 8 and parts[0]["from"] == 0 and parts[-1]["to"] == length - 1
    assert all(a["to"] + 1 == b["from"] for a, b in zip(parts, parts[1:]))
    assert sum(part["tokens"] for part in parts) == 3 * length
    assert max(p["tokens"] for p in parts) - min(p["tokens"] for p in parts) <= 3
    assert math.fsum(part["share"] for part in parts) == pytest.approx(1)
    # Ids are given without positions, so there are no positions to gather.
    assert plumbline.leak_consequence([1.0, 2], [2.0, 4], sequence_id=[0, 1]).by_position == []


@pytest.mark.parametrize(
    "arguments, text",
    [
        (([1.0], [1.0, 2.0]), r"expected one shape, found \[1\] and \[2\]"),
        ((3.5, 3.6), r"expected one loss per token \(reduction='none'\), found a single value"),
        (([[1.0], [1.0, 2.0]], [1.0]), "equally long"),
        (([[[1.0]]], [[[1.0]]]), r"expected shape \[T\] or \[B,S\]"),
    ],
)
def test_losses_that_are_none(arguments, text):
    with pytest.raises(ValueError, match=text):
        plumbline.leak_consequence(*arguments)


def test_columns_that_do_not_fit():
    with pytest.raises(ValueError, match="sequence_id: expected one value per token, 2, found 3"):
        plumbline.leak_consequence([1.0, 2], [1.0, 2], sequence_id=[0, 1, 2])
    with pytest.raises(ValueError, match="position without sequence_id"):
        plumbline.leak_consequence([1.0, 2], [1.0, 2], position=[0, 1])
    for level in (0, 1, 99, NAN):
        with pytest.raises(ValueError, match="expected between 0 and 1"):
            plumbline.leak_consequence([1.0, 2], [1.0, 2], level=level)


def test_tensors_of_any_kind_give_the_same():
    torch, numpy = pytest.importorskip("torch"), pytest.importorskip("numpy")
    a, b = [[1.0, 2.5], [0.25, 4.0], [3.0, 1.0]], [[1.5, 2.5], [0.5, 4.5], [3.0, 1.25]]
    expected = plumbline.leak_consequence(a, b, padding_mask=[[0, 0], [0, 1], [0, 0]])
    mask = torch.tensor([[0, 0], [0, 1], [0, 0]])
    for loss, other in (
        (torch.tensor(a, requires_grad=True), torch.tensor(b, dtype=torch.bfloat16)),
        (torch.tensor(a, dtype=torch.float16), numpy.array(b, dtype="f4")),
        (numpy.array(a).T.copy().T, b),
    ):
        found = plumbline.leak_consequence(loss, other, padding_mask=mask.bool())
        assert (found.difference, found.interval) == (expected.difference, expected.interval)


def test_neither_numpy_nor_torch_nor_the_library_is_needed():
    code = ("import sys; sys.modules['numpy'] = sys.modules['torch'] = None\n"
            "import plumbline\n"
            "print(plumbline.leak_consequence([[1.0], [2.0]], [[2.0], [4.0]]).difference)")  # fmt: skip
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                         timeout=100)  # fmt: skip
    assert out.stdout.strip() == "-1.5"
