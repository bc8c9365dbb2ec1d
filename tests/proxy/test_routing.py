"""Which route a request takes, and what `/v1/models` tells."""

import pytest

from proxy.errors import ClientError
from proxy.request.matching import Facts
from proxy.request.routing import Model, Router, names_of
from proxy.settings.config import CacheUse, Config, Match, ModelRewrite, Policy
from proxy.settings.config import Route as RouteConfig
from proxy.settings.upstreams import Upstream as UpstreamConfig


class Named:
    """An upstream of which only the name and the models matter."""

    def __init__(self, name, models=()):
        self.name = name
        self.models = models


def router_of(*routes, aliases=None, models=()):
    names = {
        to for route in routes for to in ([route.to] if isinstance(route.to, str) else route.to)
    }
    config = Config(
        upstreams={name: UpstreamConfig(base_url="http://h") for name in names},
        routes=routes,
        aliases=aliases or {},
        policies={"standard": Policy(ttl=60)},
    )
    known = dict(models)
    return Router(config, {name: Named(name, known.get(name, ())) for name in names})


def facts(model="m", path="/chat/completions", headers=(), tenant="anonymous"):
    return Facts(model=model, path=path, headers=tuple(headers), tenant=tenant)


def chosen(router, **given):
    return router.route(facts(**given)).name


def test_the_first_route_that_matches_wins():
    router = router_of(
        RouteConfig(match=Match(model="gpt-*"), to="first"),
        RouteConfig(match=Match(model="gpt-4"), to="second"),
        RouteConfig(to="rest"),
    )
    assert router.route(facts("gpt-4")).upstreams[0].name == "first"
    assert router.route(facts("claude")).upstreams[0].name == "rest"
    assert router.route(facts("claude")).name == "routes[2]"


@pytest.mark.parametrize(
    ("glob", "model", "matches"),
    [
        ("gpt-*", "gpt-4o", True),
        ("gpt-*", "gpt-", True),
        ("gpt-*", "xgpt-4o", False),
        ("gpt-?o", "gpt-4o", True),
        ("gpt-?o", "gpt-o", False),
        ("*", "org/name", True),
        ("meta-llama/*", "meta-llama/Llama-3.1-8B", True),
        ("a.c", "abc", False),
        ("a[bc]", "ab", False),
        ("a[bc]", "a[bc]", True),
        ("a|b", "a", False),
        ("GPT-*", "gpt-4o", False),
        (("one", "two"), "two", True),
        (("one", "two"), "onetwo", False),
        ((), "any", False),
    ],
)
def test_globs_know_only_star_and_question_mark(glob, model, matches):
    router = router_of(RouteConfig(match=Match(model=glob), to="a"), RouteConfig(to="rest"))
    assert (chosen(router, model=model) == "routes[0]") is matches


def test_every_part_of_a_match_must_hold():
    match = Match(model="m*", path="/v1/embeddings", header={"X-Team": "search-*"}, tenant="acme")
    router = router_of(RouteConfig(match=match, to="a"), RouteConfig(to="rest"))
    whole = {
        "model": "m1",
        "path": "/embeddings",
        "headers": [(b"x-team", b"other"), (b"x-team", b"search-eu")],
        "tenant": "acme",
    }
    assert chosen(router, **whole) == "routes[0]"
    for part, other in [
        ("model", "x"),
        ("path", "/chat/completions"),
        ("headers", [(b"x-team", b"ads")]),
        ("headers", []),
        ("tenant", "other"),
    ]:
        assert chosen(router, **{**whole, part: other}) == "routes[1]"


def test_an_alias_is_resolved_before_matching_and_sent_resolved():
    router = router_of(
        RouteConfig(match=Match(model="smollm2*"), to="local"),
        aliases={"fast": "small", "small": "smollm2-135m"},
    )
    assert router.route(facts("fast")).model == "smollm2-135m"


def test_a_rewrite_changes_the_model_that_is_sent():
    router = router_of(RouteConfig(to="a", model=ModelRewrite(rewrite="gpt-4o-mini")))
    assert router.route(facts("gpt-4")).model == "gpt-4o-mini"
    assert router.route(facts(None, path="/files")).model == ""


def test_several_upstreams_keep_their_order():
    route = router_of(RouteConfig(to=("b", "a"), retries=4)).route(facts())
    assert [upstream.name for upstream in route.upstreams] == ["b", "a"]
    assert route.retries == 4


def test_the_cache_of_a_route_is_a_policy_a_shadow_or_none():
    router = router_of(
        RouteConfig(match=Match(model="a"), to="u", cache="standard"),
        RouteConfig(
            match=Match(model="b"), to="u", cache=CacheUse(policy="standard", mode="shadow")
        ),
        RouteConfig(match=Match(model="c"), to="u"),
    )
    served, shadowed, uncached = (router.route(facts(model)) for model in "abc")
    assert (served.mode, served.policy_name) == ("serve", "standard")
    assert (shadowed.mode, shadowed.policy_name) == ("shadow", "standard")
    assert served.policy is shadowed.policy
    assert (uncached.mode, uncached.policy_name, uncached.policy) == ("none", None, None)


def test_a_model_without_a_route_is_not_found_in_openais_words():
    router = router_of(RouteConfig(match=Match(model="a"), to="u"))
    with pytest.raises(ClientError) as caught:
        router.route(facts("gpt-9"))
    error = caught.value
    assert (error.status, error.code, error.kind) == (
        404,
        "model_not_found",
        "invalid_request_error",
    )
    assert error.message == ("The model `gpt-9` does not exist or you do not have access to it.")


def test_a_request_without_a_model_is_routed_by_its_path():
    router = router_of(
        RouteConfig(match=Match(model="*"), to="a"),
        RouteConfig(match=Match(path="/v1/files*"), to="b"),
    )
    assert chosen(router, model=None, path="/files/f1/content") == "routes[1]"
    with pytest.raises(ClientError) as caught:
        router.route(facts(None, path="/audio/speech"))
    assert (caught.value.status, caught.value.code) == (404, "unknown_url")


def test_models_lists_aliases_literals_and_what_upstreams_know_once_each():
    router = router_of(
        RouteConfig(match=Match(model=("smollm2*", "tiny")), to="local"),
        RouteConfig(match=Match(model=("gpt-4o", "org/model")), to=("openai", "local")),
        RouteConfig(match=Match(model="gpt-*"), to="openai"),
        aliases={"fast": "smollm2-135m", "lost": "nowhere"},
        models={"local": ("smollm2-135m", "tiny", "unrouted")}.items(),
    )
    assert [(model.id, model.owned_by) for model in router.models(tenant="t")] == [
        ("fast", "local"),
        ("tiny", "local"),
        ("smollm2-135m", "local"),
        ("gpt-4o", "openai"),
        ("org/model", "openai"),
    ]
    assert router.model("org/model", tenant="t") == Model(id="org/model", owned_by="openai")


def test_models_that_a_tenant_has_no_route_to_are_not_told_to_it():
    router = router_of(RouteConfig(match=Match(model="secret-model", tenant="acme"), to="u"))
    assert [model.id for model in router.models(tenant="acme")] == ["secret-model"]
    assert router.models(tenant="other") == ()
    with pytest.raises(ClientError) as caught:
        router.model("secret-model", tenant="other")
    assert (caught.value.status, caught.value.code) == (404, "model_not_found")


def test_models_that_load_later_are_listed_once_they_are_known():
    upstream = Named("local")
    config = Config(
        upstreams={"local": UpstreamConfig(base_url="http://h")}, routes=(RouteConfig(to="local"),)
    )
    router = Router(config, {"local": upstream})
    assert router.models(tenant="t") == ()
    upstream.models = ("smollm2-135m",)
    assert [model.id for model in router.models(tenant="t")] == ["smollm2-135m"]


def test_names_of_a_model_are_what_aliases_and_routes_make_of_it():
    config = Config(
        upstreams={"main": UpstreamConfig(base_url="http://h")},
        aliases={"fast": "quick", "quick": "gpt-4"},
        routes=(
            RouteConfig(match=Match(model="gpt-*"), to="main", model=ModelRewrite(rewrite="own")),
            RouteConfig(match=Match(model="x"), to="main", model=ModelRewrite(rewrite="other")),
            RouteConfig(to="main"),
        ),
    )
    assert names_of("fast", config) == ("fast", "gpt-4", "own")
    assert names_of("plain", config) == ("plain",)
