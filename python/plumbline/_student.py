"""Quantiles of Student's t distribution, from the standard library alone."""

import functools
import math

_TINY = 1e-300  # replaces a zero denominator


def _fraction(a, b, x):
    """Returns 1 + d1/(1 + d2/(1 + ...)) of the incomplete beta function (DLMF 8.17.22), by Lentz's method."""
    value, c, d = 1.0, 1.0, 0.0
    for n in range(1, 100_000):
        m = n // 2
        if n % 2:
            step = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            step = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        d = 1 / (1 + step * d or _TINY)
        c = 1 + step / c or _TINY
        value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _incomplete_beta(a, b, x, rest):
    """Returns I_x(a, b), regularised; `rest` is 1 - x, a separate argument because it may be tiny."""
    if x > (a + 1) / (a + b + 2):  # the fraction converges slowly for these values
        return 1 - _incomplete_beta(b, a, rest, x)
    log_front = (a * math.log(x) + b * math.log(rest) - math.log(a)
                 + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b))  # fmt: skip
    return math.exp(log_front) / _fraction(a, b, x)


def tail(df, t):
    """Returns P(|T| > t) for t > 0."""
    square = t * t
    return _incomplete_beta(df / 2, 0.5, df / (df + square), square / (df + square))


@functools.lru_cache(maxsize=256)
def two_sided(df, level):
    """Returns t with P(|T| <= t) = level, for df >= 1 degrees of freedom, whole or not; 0 < level < 1."""
    low, high = 0.0, 1.0
    while tail(df, high) > 1 - level:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if tail(df, middle) > 1 - level:
            low = middle
        else:
            high = middle
    return high
