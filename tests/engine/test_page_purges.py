import pytest

from engine.kv.purges import EVERYTHING, MAX_TAGS, PurgeLog, Scope, merged
from engine.process.protocol import Moment


def at(sequence: int, generation: str = "g") -> Moment:
    return Moment(generation=generation, sequence=sequence)


def of(*tags: str) -> Scope:
    return Scope(tags=frozenset(tags))


def test_a_purge_that_nobody_told_of_is_noticed_by_the_next_request() -> None:
    log = PurgeLog(at(4))
    assert log.hear(at(4))
    assert not log.hear(at(5)), "made by somebody else"
    assert log.hear(at(5))
    assert log.hear(at(3)), "a request that was under way for long"


def test_a_purge_after_one_that_was_missed_says_so() -> None:
    log = PurgeLog(at(4))
    assert log.note(of("a"), at(5))
    assert not log.note(of("a"), at(7))


def test_counters_that_began_anew_invalidate_everything() -> None:
    log = PurgeLog(at(4))
    assert not log.hear(at(0, "other"))
    assert log.hear(at(0, "other"))


@pytest.mark.parametrize(
    ("tags", "as_of", "allowed"),
    [("a", 5, True), ("a", 4, False), ("b", 4, True), ("b", 1, True), ("", 1, True)],
)
def test_pages_of_a_request_from_before_the_purge_of_its_tag_are_not_kept(
    tags: str, as_of: int, allowed: bool
) -> None:
    log = PurgeLog(at(1))
    for sequence, tag in ((2, "z"), (3, "z"), (4, "z"), (5, "a")):
        assert log.note(of(tag), at(sequence))
    assert log.allows(frozenset(tags), at(as_of)) is allowed


def test_what_depends_on_what_is_not_known_is_kept_only_if_it_saw_the_last_purge() -> None:
    log = PurgeLog(at(1))
    log.note(of("a"), at(2))
    assert not log.allows(None, at(1))
    assert log.allows(None, at(2))
    assert log.allows(None, None), "who cannot tell is not told apart"


def test_a_purge_of_everything_covers_all_that_is_under_way() -> None:
    log = PurgeLog(at(1))
    log.note(EVERYTHING, at(2))
    assert not log.allows(frozenset(), at(1))
    assert log.allows(frozenset(), at(2))


def test_after_missed_purges_nothing_older_is_kept() -> None:
    log = PurgeLog(at(1))
    log.hear(at(9))
    assert not log.allows(frozenset("b"), at(8))
    assert log.allows(frozenset("b"), at(9))


def test_tags_without_end_become_any() -> None:
    few = frozenset("ab")
    assert merged(few, frozenset("c")) == frozenset("abc")
    assert merged(few, None) is None
    assert merged(few, frozenset(map(str, range(MAX_TAGS)))) is None
    assert Scope(tags=frozenset("x")).covers(None)
    assert not Scope().covers(None)
