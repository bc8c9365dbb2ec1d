"""Vectors of what was asked last."""

import numpy as np

from index.embedders.memo import Memo


def test_what_was_not_asked_for_the_longest_makes_room() -> None:
    memo = Memo(max_texts=2)
    one, two, three = np.eye(3, dtype=np.float32)
    memo.put("one", one)
    memo.put("two", two)
    assert memo.get("one") is one
    memo.put("three", three)
    assert memo.get("two") is None
    assert memo.get("one") is one
    assert memo.get("three") is three


def test_a_text_that_is_no_unicode_has_a_place_too() -> None:
    memo = Memo()
    memo.put("\ud800", np.ones(2, dtype=np.float32))
    assert memo.get("\ud800") is not None
    assert memo.get("\ud801") is None
