"""Bounds on the share of served hits that are wrong, which hold at every moment at once.

Each audited hit compares three answers: the stored one S, and two of the upstream's own, A and B.

    S only    S differs from A and from B, which agree        odd one out: a wrong hit, or noise
    A or B    one of them differs from the two others         odd one out: noise in any case
    all       each differs from each                          who knows
    unjudged  nobody can say                                  who knows
    rest      S agrees with A or with B                       a right hit, as far as one can see

Of a right hit S is one more answer of the same upstream to the same question, so that each of the
three is the odd one equally often, whatever the judge's and the upstream's noise are. So with
`p` = P(hit is wrong) and `a` = P(A is the odd one) = P(B is the odd one):

    P(S only) <= p + a                      gives the lower bound on p
    p (1 - misses) <= P(S only) + P(all) + P(unjudged)
                                            gives the upper bound, which noise only raises

`misses` bounds how often the judge takes a wrong answer for one that agrees with A or with B.

Both are confidence sequences by the method of mixtures (Robbins 1970; Howard, Ramdas, McAuliffe and
Sekhon 2021, "Time-uniform, nonparametric, nonasymptotic confidence sequences", section 3.2): the
likelihood of the counts averaged over a prior, divided by their likelihood under one parameter, is
a martingale of mean 1 under that parameter, so by Ville's inequality it ever exceeds 1/alpha with
probability alpha at most. A parameter is out once it does. With conjugate priors (beta, Dirichlet)
only totals count: labels may come in any order, from any number of processes. Where a parameter is
unknown besides (`a` here), the greatest likelihood over it is divided by, which only widens the
bound (Wasserman, Ramdas and Balakrishnan 2020, "Universal inference").
"""

import math
from collections.abc import Callable

from index.audit.label import Counts

_HALVINGS = 32
"""Of [0, 1], to find a border: more digits than anybody reads."""
_SMALLEST = 1e-12
_WEIGHT, _NOISE_WEIGHT = 15.0, 0.5
"""Of the prior for the lower bound: how sure it is of `expected`, and of there being no noise. Of
those tried these close soonest where a judge errs now and then; one who knew the truth beforehand
would hardly be sooner (`tests/benchmark/audit.py`)."""
_ANYTHING = (0.5, 0.1, 0.5)
_SHARE_OF_ANYTHING = 0.05
"""A share of that prior is sure of nothing, for tiers that go wrong altogether."""


def upper(counts: Counts, *, alpha: float, misses: float, expected: float) -> float:
    """No more hits than this share are wrong; exceeded at some moment with probability `alpha`.
    `misses` and `expected` as for `evidence_below`."""
    limit = math.log(1 / alpha)

    def is_out(share: float) -> bool:
        return evidence_below(counts, share, misses=misses, expected=expected) >= limit

    return _border(is_out, inside=0.0, outside=1.0)


def lower(counts: Counts, *, alpha: float, expected: float) -> float:
    """More hits than this share are wrong; not so at some moment with probability `alpha`.
    `expected` as for `evidence_above`."""
    limit = math.log(1 / alpha)

    def is_out(share: float) -> bool:
        return evidence_above(counts, share, expected=expected) >= limit

    return _border(is_out, inside=1.0, outside=0.0)


def evidence_below(counts: Counts, share: float, *, misses: float, expected: float) -> float:
    """Logarithm of the evidence that fewer hits than `share` are wrong: past log(1/alpha) with
    probability `alpha` at most where they are not. 0 where nothing speaks for it.

    `misses`: greatest share of wrong hits that look like right ones. `expected`: where the prior
    looks for the true share; a wrong guess only costs some labels.
    """
    suspect, rest = counts.suspect, counts.total - counts.suspect
    seen = share * (1 - misses)
    if suspect >= seen * counts.total:
        return 0.0
    mixture = _log_mixture((suspect, rest), (0.5, 0.5 / expected))
    return mixture - _log_likelihood((suspect, seen), (rest, 1 - seen))


def evidence_above(counts: Counts, share: float, *, expected: float) -> float:
    """Logarithm of the evidence that more hits than `share` are wrong: past log(1/alpha) with
    probability `alpha` at most where they are not. `expected` as for `evidence_below`."""
    odd, noise = counts.stored_only, counts.fresh_only
    rest = counts.total - odd - noise
    seen = (odd, noise, rest)
    focused = _log_mixture(seen, (_WEIGHT, _NOISE_WEIGHT, _WEIGHT / expected))
    mixture = _log_sum(
        math.log(1 - _SHARE_OF_ANYTHING) + focused,
        math.log(_SHARE_OF_ANYTHING) + _log_mixture(seen, _ANYTHING),
    )
    return mixture - _best_below(odd, noise, rest, share)


def _best_below(odd: int, noise: int, rest: int, share: float) -> float:
    """Greatest likelihood of the counts where P(S only) <= share + a, P(A or B) = 2 a."""
    total = odd + noise + rest
    if total == 0:
        return 0.0
    if odd / total <= share + noise / (2 * total):
        return _log_likelihood((odd, odd / total), (noise, noise / total), (rest, rest / total))
    a = _likeliest_noise(odd, noise, rest, share)
    return _log_likelihood((odd, share + a), (noise, 2 * a), (rest, 1 - share - 3 * a))


def _likeliest_noise(odd: int, noise: int, rest: int, share: float) -> float:
    """Where odd log(share + a) + noise log(2a) + rest log(1 - share - 3a) is greatest: its
    derivative times the denominators is a quadratic in `a`."""
    square = 3.0 * (odd + noise + rest)
    linear = 3 * share * (noise + rest) - (odd + noise) * (1 - share)
    constant = -noise * share * (1 - share)
    root = (-linear + math.sqrt(linear * linear - 4 * square * constant)) / (2 * square)
    return min(max(root, 0.0), (1 - share) / 3)


def _log_likelihood(*parts: tuple[int, float]) -> float:
    """Of counts under their probabilities."""
    return sum(count * math.log(max(chance, _SMALLEST)) for count, chance in parts if count)


def _log_mixture(counts: tuple[int, ...], prior: tuple[float, ...]) -> float:
    """Likelihood of the counts, averaged over a Dirichlet prior."""
    gamma = math.lgamma
    weight, total = sum(prior), sum(counts)
    return (
        gamma(weight)
        - gamma(weight + total)
        + sum(gamma(w + count) - gamma(w) for w, count in zip(prior, counts, strict=True))
    )


def _log_sum(one: float, other: float) -> float:
    """Logarithm of the sum of two whose logarithms these are."""
    greater = max(one, other)
    return greater + math.log(math.exp(one - greater) + math.exp(other - greater))


def _border(is_out: Callable[[float], bool], *, inside: float, outside: float) -> float:
    """Where a condition turns true on the way from `inside` to `outside`; `outside` where it does
    not."""
    if not is_out(outside):
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        if is_out(middle):
            outside = middle
        else:
            inside = middle
    return outside
