import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.entry import Entry, Snapshot
from proxy.answer.freshness import Fresh, Stale, Unusable, is_due_early, judge, lifetimes
from proxy.call import Directives
from proxy.settings.config import Policy
from proxy.settings.units import Duration

MADE = 1000.0
PLAIN = Policy(ttl=Duration(100), jitter=0)
LENIENT = Policy(
    ttl=Duration(100),
    jitter=0,
    stale_while_revalidate=Duration(10),
    stale_if_error=Duration(50),
)


def entry(policy: Policy = LENIENT) -> Entry:
    life = lifetimes(policy, Directives(), now=MADE, jitter=0)
    return Entry(
        key="k",
        scope="",
        tenant="t",
        policy="p",
        upstream="u",
        model="m",
        surface="/chat/completions",
        prompt="",
        canonical=b"",
        payload=b"",
        tags=(),
        snapshot=Snapshot(generation="g", sequence=0),
        created_at=MADE,
        expires_at=life.expires_at,
        keep_until=life.keep_until,
    )


def at(age_s: float, policy: Policy = LENIENT, *, soft_purged: bool = False, **directives):
    return judge(
        entry(),
        now=MADE + age_s,
        directives=Directives(**directives),
        policy=policy,
        soft_purged=soft_purged,
    )


def test_answer_within_its_ttl_is_fresh():
    assert at(30) == Fresh(age_s=30, ttl_s=70)


def test_answer_from_a_clock_ahead_of_ours_has_age_zero():
    assert at(-5) == Fresh(age_s=0, ttl_s=105)


def test_expired_answer_may_be_served_within_the_windows():
    assert at(105) == Stale(
        age_s=105,
        ttl_s=-5,
        reasons=("expired",),
        may_serve_while_revalidating=True,
        may_serve_if_error=True,
        max_stale_ok=False,
    )


def test_answer_past_the_first_window_helps_only_when_the_upstream_fails():
    found = at(130)
    assert isinstance(found, Stale)
    assert not found.may_serve_while_revalidating
    assert found.may_serve_if_error


def test_answer_past_all_windows_is_unusable():
    assert at(151) == Unusable(reason="expired")


def test_answer_at_the_moment_of_its_expiry_is_unusable_without_windows():
    assert at(100, PLAIN) == Unusable(reason="expired")


def test_answer_older_than_max_age_is_not_served_even_within_the_windows():
    assert at(30, max_age_s=20) == Unusable(reason="max_age")


def test_answer_as_old_as_max_age_is_fresh():
    assert isinstance(at(20, max_age_s=20), Fresh)


def test_max_stale_takes_an_expired_answer():
    found = at(140, PLAIN, max_stale_s=40)
    assert isinstance(found, Stale)
    assert found.max_stale_ok
    assert not found.may_serve_if_error


def test_max_stale_does_not_take_a_staler_answer():
    assert at(140, PLAIN, max_stale_s=39) == Unusable(reason="expired")


def test_max_stale_without_value_takes_any_answer():
    found = at(10_000, PLAIN, max_stale_s=math.inf)
    assert isinstance(found, Stale)
    assert found.max_stale_ok


def test_max_stale_extends_max_age():
    found = at(30, max_age_s=20, max_stale_s=10)
    assert isinstance(found, Stale)
    assert found.max_stale_ok
    assert at(31, max_age_s=20, max_stale_s=10) == Unusable(reason="max_age")


def test_soft_purged_answer_is_never_fresh():
    found = at(30, soft_purged=True)
    assert isinstance(found, Stale)
    assert found.reasons == ("soft_purged",)
    assert found.may_serve_while_revalidating


def test_soft_purged_answer_is_unusable_where_nothing_may_serve_stale():
    assert at(30, PLAIN, soft_purged=True) == Unusable(reason="soft_purged")


def test_soft_purged_answer_is_taken_by_max_stale():
    found = at(30, PLAIN, soft_purged=True, max_stale_s=0)
    assert isinstance(found, Stale)
    assert found.max_stale_ok


def test_cap_that_was_lowered_holds_for_answers_stored_before():
    capped = Policy(ttl=Duration(100), max_ttl=Duration(20), jitter=0)
    assert at(21, capped) == Unusable(reason="expired")
    assert isinstance(at(19, capped), Fresh)


@pytest.mark.parametrize(
    ("asked_s", "expires_at"),
    [(None, 1100), (7, 1007), (10_000, 1500), (0, 1000), (math.inf, 1500)],
)
def test_lifetime_is_the_requests_or_the_policys_and_capped(asked_s, expires_at):
    policy = Policy(ttl=Duration(100), max_ttl=Duration(500), jitter=0)
    life = lifetimes(policy, Directives(ttl_s=asked_s), now=MADE, jitter=0.5)
    assert (life.expires_at, life.keep_until) == (expires_at, expires_at)


def test_answer_is_kept_through_the_longer_window():
    life = lifetimes(LENIENT, Directives(), now=MADE, jitter=0)
    assert (life.expires_at, life.keep_until) == (1100, 1150)


@given(jitter=st.floats(0, 1, exclude_max=True), share=st.floats(0, 1))
def test_jitter_only_shortens_and_by_no_more_than_its_share(jitter, share):
    policy = Policy(ttl=Duration(100), jitter=share)
    life = lifetimes(policy, Directives(), now=0.0, jitter=jitter)
    assert 100 * (1 - share) <= life.expires_at <= 100


@given(age_s=st.floats(0, 400), soft_purged=st.booleans())
def test_what_is_not_fresh_is_served_only_where_the_policy_has_a_window(age_s, soft_purged):
    found = at(age_s, PLAIN, soft_purged=soft_purged)
    assert isinstance(found, Fresh) == (age_s < 100 and not soft_purged)
    assert not isinstance(found, Stale)


@pytest.mark.parametrize(
    ("ttl_s", "latency_s", "chance", "is_due"),
    [
        (3600, 2.0, 0.01, False),  # far from its end
        (1, 2.0, 0.5, True),
        (1, 2.0, 0.7, False),  # another reader may
        (1, 0.01, 0.01, False),  # quickly made again: no hurry
        (0.001, 2.0, 0.99, True),
        (5, 2.0, 1.0, False),
    ],
)
def test_an_answer_is_refreshed_early_the_sooner_the_longer_it_takes(
    ttl_s, latency_s, chance, is_due
):
    hit = Fresh(age_s=1, ttl_s=ttl_s)
    assert is_due_early(hit, latency_s=latency_s, chance=chance) is is_due


def test_what_the_upstream_says_stands_in_for_the_policy_and_bounds_the_request():
    policy = Policy(ttl=Duration(100), max_ttl=Duration(1000), jitter=0)

    def lasts(upstream_s: float | None, asked_s: float | None = None) -> float:
        asked = Directives(ttl_s=asked_s)
        return lifetimes(policy, asked, now=0, jitter=0, upstream_s=upstream_s).expires_at

    assert (lasts(None), lasts(500), lasts(5), lasts(5000)) == (100, 500, 5, 1000)
    assert (lasts(50, 500), lasts(500, 50), lasts(None, 500)) == (50, 50, 500)
