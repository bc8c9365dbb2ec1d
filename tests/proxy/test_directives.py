import math

import pytest

from proxy.call import Directives
from proxy.errors import ClientError
from proxy.request.directives import parse


def headers(**values: str):
    return tuple((name.replace("_", "-").encode(), v.encode()) for name, v in values.items())


def said(cache_control: str) -> Directives:
    return parse(headers(cache_control=cache_control), None)


def refusal(given_headers, cache) -> ClientError:
    with pytest.raises(ClientError) as caught:
        parse(given_headers, cache)
    assert caught.value.status == 400
    return caught.value


def test_request_that_says_nothing_has_the_defaults():
    assert parse(headers(accept="*/*", x_request_id="7"), None) == Directives()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("no-cache", Directives(no_cache=True)),
        ("No-Store", Directives(no_store=True)),
        ("no-cache, no-store", Directives(no_cache=True, no_store=True)),
        ("only-if-cached", Directives(only_if_cached=True)),
        ("max-age=60", Directives(max_age_s=60)),
        ('max-age="60"', Directives(max_age_s=60)),
        ("max-age=60, max-age=5", Directives(max_age_s=5)),
        ("max-age=0", Directives(max_age_s=0)),
        ("max-stale=10", Directives(max_stale_s=10)),
        ("max-stale", Directives(max_stale_s=math.inf)),
        (" max-stale = 5m ,max-age= 1h", Directives(max_stale_s=300, max_age_s=3600)),
        ("private, no-transform, min-fresh=3, ext=1,,", Directives()),
        ("", Directives()),
    ],
)
def test_cache_control_is_read(value, expected):
    assert said(value) == expected


@pytest.mark.parametrize(
    "value", ["max-age", "max-age=", "max-age=soon", "max-age=-1", "max-stale=x"]
)
def test_time_in_cache_control_that_is_none_is_refused(value):
    error = refusal(headers(cache_control=value), None)
    assert error.param == f"Cache-Control: {value.split('=')[0]}"


def test_our_headers_are_read():
    found = parse(
        headers(
            x_cache_tags="kb:prices, doc:42,,doc:42", x_cache_ttl="5m", x_cache_namespace="a b"
        ),
        None,
    )
    assert found == Directives(tags=("doc:42", "kb:prices"), ttl_s=300, namespace="a b")


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        ({}, Directives()),
        ({"ttl": None, "tags": None}, Directives()),
        ({"ttl": 60}, Directives(ttl_s=60)),
        ({"ttl": 0}, Directives(ttl_s=0)),
        ({"ttl": "2d"}, Directives(ttl_s=172800)),
        ({"ttl": 0.5}, Directives(ttl_s=0.5)),
        ({"s-maxage": 600}, Directives(max_age_s=600)),
        ({"no-cache": True, "no-store": False}, Directives(no_cache=True)),
        ({"no-store": True}, Directives(no_store=True)),
        ({"semantic": False}, Directives(semantic=False)),
        ({"semantic": True}, Directives()),
        ({"namespace": "team-a"}, Directives(namespace="team-a")),
        ({"tags": ["b", "a", "b"]}, Directives(tags=("a", "b"))),
        ({"tags": "b, a"}, Directives(tags=("a", "b"))),
        ({"tags": ["größe", "a,b"]}, Directives(tags=("a%2Cb", "gr%C3%B6%C3%9Fe"))),
    ],
)
def test_cache_object_is_read(cache, expected):
    assert parse((), cache) == expected


@pytest.mark.parametrize(
    ("cache", "param"),
    [
        ([], "cache"),
        (True, "cache"),
        ("no-store", "cache"),
        ({"ttl": "soon"}, "cache.ttl"),
        ({"ttl": -1}, "cache.ttl"),
        ({"ttl": True}, "cache.ttl"),
        ({"ttl": [1]}, "cache.ttl"),
        ({"ttl": 10**400}, "cache.ttl"),
        ({"s-maxage": {}}, "cache.s-maxage"),
        ({"no-cache": "yes"}, "cache.no-cache"),
        ({"no-store": 1}, "cache.no-store"),
        ({"semantic": "off"}, "cache.semantic"),
        ({"namespace": 5}, "cache.namespace"),
        ({"namespace": "n" * 257}, "cache.namespace"),
        ({"tags": 5}, "cache.tags"),
        ({"tags": ["a", 5]}, "cache.tags"),
        ({"tags": ["a", ""]}, "cache.tags"),
        ({"tags": ["x" * 257]}, "cache.tags"),
        ({"tags": ["model:gpt-4o"]}, "cache.tags"),
        ({"tags": ["*"]}, "cache.tags"),
        ({"tags": [f"t{n}" for n in range(129)]}, "cache.tags"),
        ({"no_store": True}, "cache.no_store"),
    ],
)
def test_member_of_the_cache_object_that_is_wrong_is_named(cache, param):
    error = refusal((), cache)
    assert error.param == param
    assert param in error.message


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"x_cache_ttl": "soon"}, "X-Cache-TTL"),
        ({"x_cache_tags": "tenant:acme"}, "X-Cache-Tags"),
        ({"x_cache_tags": "x" * 257}, "X-Cache-Tags"),
        ({"x_cache_namespace": "n" * 257}, "X-Cache-Namespace"),
    ],
)
def test_header_of_ours_that_is_wrong_is_named(given, param):
    assert refusal(headers(**given), None).param == param


def test_header_and_body_together_take_the_more_careful_of_both():
    found = parse(
        headers(cache_control="max-age=60, no-cache", x_cache_ttl="10", x_cache_tags="a"),
        {"ttl": 5, "s-maxage": 600, "no-store": True, "tags": ["b"], "no-cache": False},
    )
    assert found == Directives(no_cache=True, no_store=True, max_age_s=60, ttl_s=5, tags=("a", "b"))


def test_more_tags_in_header_and_body_together_than_allowed_are_refused():
    listed = ",".join(f"h{n}" for n in range(100))
    assert refusal(headers(x_cache_tags=listed), {"tags": [f"b{n}" for n in range(29)]})


def test_header_and_body_spell_tags_and_namespaces_alike():
    named = {"x_cache_tags": "größe", "x_cache_namespace": "größe"}
    found = parse(headers(**named), {"tags": ["größe"], "namespace": "größe"})
    assert found == Directives(tags=("gr%C3%B6%C3%9Fe",), namespace="größe")


def test_header_that_is_no_utf8_is_read_all_the_same():
    assert parse(((b"x-cache-namespace", b"gr\xf6"),), None).namespace == "grö"


def test_two_different_namespaces_are_refused():
    assert refusal(headers(x_cache_namespace="a"), {"namespace": "b"}).param == "cache.namespace"
