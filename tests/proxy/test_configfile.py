"""Config files as a person writes them: what is read, and what every mistake is answered with."""

import os
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proxy.errors import ConfigError
from proxy.settings.address import Tcp, Unix, parse_address
from proxy.settings.config import Config
from proxy.settings.file import load, read

A_DURATION = "expected a duration such as 250ms, 10s, 5m, 1h or 2d"
A_SIZE = "expected a size such as 64KiB, 256MiB or 8GiB"
HUGE = "9" * 5000
PIECES = [
    "upstreams: ", "routes: ", "policies: ", "tenants: ", "u: ", "to: u", "base_url: http://h",
    "match: ", "keys: ", "ttl: ", "tags: ", "pattern: (", "engine: ", "model: ", "${X}", "${X:-y}",
    "{", "}", "[", "]", "- ", ", ", "\n", "\n  ", "\n    ", "&a ", "*a", "<<: ", "null", "1", "1h",
    "'", '"', "#", "!!int ", "? ", "|\n", "a: ", "\t",
]  # fmt: skip
REMOTE = """
upstreams:
  remote: {base_url: "http://127.0.0.1:9/v1"}
routes:
  - {to: remote}
"""


@pytest.fixture
def write(tmp_path):
    def write_config(text: str, name: str = "config.yaml") -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write_config


@pytest.fixture
def config_of(write):
    def read_config(text: str, **environ: str) -> Config:
        return load(write(text), environ=environ)

    return read_config


@pytest.fixture
def problems_of(write):
    def read_problems(text: str, **environ: str) -> list[str]:
        """Problems without the file's name: `line: path: what is wrong`."""
        path = write(text)
        with pytest.raises(ConfigError) as caught:
            load(path, environ=environ)
        assert str(caught.value) == "\n".join(caught.value.problems)
        assert all(line.startswith(f"{path}:") for line in caught.value.problems)
        return [line.removeprefix(f"{path}:") for line in caught.value.problems]

    return read_problems


def test_a_minimal_file_takes_every_default(config_of):
    config = config_of(REMOTE)
    assert config.upstreams["remote"].base_url == "http://127.0.0.1:9/v1"
    assert config.upstreams["remote"].timeout.total == 600
    assert config.routes[0].to == "remote"
    assert config.routes[0].cache == "none"
    assert config.listen == "127.0.0.1:8080"


def test_units_are_read_as_seconds_and_bytes(config_of):
    config = config_of(
        """
        upstreams: {remote: {base_url: "http://h", timeout: {connect: 250ms, total: 1h}}}
        routes: [{to: remote}]
        store: {memory: 1.5MiB}
        shutdown: {deadline: 12}
        """
    )
    assert config.upstreams["remote"].timeout.connect == 0.25
    assert config.upstreams["remote"].timeout.total == 3600
    assert config.store.memory == 1_572_864
    assert config.shutdown.deadline == 12


def test_several_mistakes_come_in_one_message_with_their_lines(problems_of):
    assert problems_of(
        """\
        upstreams:
          openai:
            base_urll: https://api.openai.com/v1
          other:
            base_url: http://127.0.0.1:9
            timeout: {first_byte: 5x}
            max_in_flight: 0
        policies:
          standard: {ttl: 1h, normalize: [trim, unicoed]}
        routes:
          - {match: {model: "a*"}, to: openai, cache: standart}
          - {to: [other, otter]}
          - match: {}
        """
    ) == [
        "3: upstreams.openai.base_urll: unknown key; did you mean `base_url`?",
        "6: upstreams.other.timeout.first_byte: "
        "expected a duration such as 250ms, 10s, 5m, 1h or 2d, got '5x'",
        "7: upstreams.other.max_in_flight: expected a whole number >= 1, got 0",
        "9: policies.standard.normalize[1]: expected one of trim, line_endings, unicode, "
        "collapse_spaces, casefold, message_ids, got 'unicoed'; did you mean `unicode`?",
        "11: routes[0].cache: no policy is called `standart`; did you mean `standard`?",
        "12: routes[1].to[1]: no upstream is called `otter`; did you mean `other`?",
        "13: routes[2]: `to` is missing",
    ]


def test_a_broken_section_does_not_make_what_refers_to_it_wrong(problems_of):
    assert problems_of(
        """\
        upstreams: [remote]
        polices: {standard: {}}
        routes: [{to: remote, cache: standard}]
        """
    ) == [
        "1: upstreams: expected a mapping, got a list",
        "2: polices: unknown key; did you mean `policies`?",
    ]


@pytest.mark.parametrize(
    ("value", "complaint"),
    [
        ("embedder: {model: [1]}", "embedder.model: expected text, got a list"),
        ("embedder: {model: {}}", "embedder.model: expected text, got a mapping"),
        ("embedder: {model: }", "embedder.model: expected text, got nothing"),
        ("shutdown: {deadline: true}", f"shutdown.deadline: {A_DURATION}, got true"),
        ("shutdown: {deadline: -1}", f"shutdown.deadline: {A_DURATION}, got -1"),
        ("shutdown: {deadline: .5e400}", f"shutdown.deadline: {A_DURATION}, got .5e400"),
        ("shutdown: {deadline: 10:30}", f"shutdown.deadline: {A_DURATION}, got '10:30'"),
        ("store: {disk: 1.5}", f"store.disk: {A_SIZE}, got 1.5"),
        ("store: fast", "store: expected a mapping, got 'fast'"),
        ("tenants: {keys: {k: t}, anonymous: on}",
         "tenants.anonymous: expected true or false, got 'on'"),
        ("policies: {p: {jitter: 2}}", "policies.p.jitter: expected a number <= 1.0, got 2"),
        ('policies: {p: {jitter: "0.1"}}', "policies.p.jitter: expected a number, got '0.1'"),
        ("aliases: {[a]: b}", "aliases: a key must be text"),
        ("aliases: {a: {b: c}}", "aliases.a: expected text, got a mapping"),
    ],
)  # fmt: skip
def test_a_value_of_the_wrong_kind_is_named_with_what_was_expected(problems_of, value, complaint):
    assert problems_of(REMOTE + value) == [f"6: {complaint}"]


def test_a_list_item_of_the_wrong_kind_is_named_by_its_number(problems_of):
    text = REMOTE + "admin:\n  hosts:\n    - good\n    - {bad: 1}\n"
    assert problems_of(text) == ["9: admin.hosts[1]: expected text, got a mapping"]


def test_a_broken_list_item_does_not_shift_the_number_of_a_later_one(problems_of):
    policy = "{semantic: {refuse: [{words: [a], pattern: a}, {words: [b]}, {pattern: '('}, 5]}}"
    problems = problems_of(REMOTE + f"policies: {{p: {policy}}}\n")
    told = [problem for problem in problems if "not a regular expression" in problem]
    assert len(told) == 1
    assert "refuse[2].pattern" in told[0]


def test_a_key_written_twice_names_both_lines(problems_of):
    text = REMOTE + "workers: 1\nlisten: 127.0.0.1:1\nworkers: 2\n"
    assert problems_of(text) == ["8: workers: written twice; the first is in line 6"]


def test_missing_top_level_keys_are_told_at_the_beginning(problems_of):
    assert problems_of("listen: 127.0.0.1:8080") == [
        "1: `routes` is missing",
        "1: `upstreams` is missing",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "1: the file is empty"),
        ("# only a comment\n", "1: the file is empty"),
        ("a: 1\n\tb: 2\n", "2: a tab cannot indent or begin a value in YAML; use spaces"),
        ("a: [1,\n", "2: a bracket is not closed, or a value is missing"),
        ("a: 1\nb: {x: 1\nc: 3\n",
         "2: `{` is not closed, or a comma or a quote is missing behind it"),
        ("a: [x}\n", "1: `[` is not closed, or a comma or a quote is missing behind it"),
        ("a: {b: 1}}\nc: 2\n", "1: a closing `}` too many"),
        ('a: "x\nb: 2\nc: 3\n', "1: a quote is opened and not closed"),
        ('a: "x" y\n', "1: a text stands behind a value that has ended"),
        ('a: "\\d"\n',
         r"1: `\d` means nothing in double quotes: write `\\d`, or use single quotes"),
        ("a: 1\nlisten 127\n\nb: 2\n",
         "2: a name and its value are written `name: value`, with a colon and a space"),
        ("a:1\n# why\nb: 2\n",
         "1: a name and its value are written `name: value`, with a colon and a space"),
        ("a: b: c\n", "1: a value with a colon and a space needs quotes"),
        ("a:\n  b: 1\n   c: 2\n",
         "3: the line is not indented as those are that it should go on with"),
        ("a:\n   b: 1\n  c: 2\n",
         "3: the line is not indented as those are that it should go on with"),
        ("a:\n  - b\n  c: 2\n", "3: a name among items of a list, or indented otherwise"),
        ("a: 1\n- b\n", "2: an item of a list among names, or indented otherwise"),
        ("a: {m: *}\n", "1: a text that begins with `*` must be in quotes"),
        ("a: &\n", "1: a text that begins with `&` must be in quotes"),
        ("a: @x\n", "1: a text that begins with `@` must be in quotes"),
        ("a: |x\n b\n", "1: behind `|` or `>` the text begins on the next line; "
         "one that begins so needs quotes"),
        ("a: *nowhere\n",
         "1: nothing is marked `&nowhere`; a text that begins with `*` must be in quotes"),
        ("a: b\x00\n", "1: character U+0000 is not allowed"),
        ("- a\n", "1: expected a mapping, got a list"),
        ("just text\n", "1: expected a mapping, got 'just text'"),
    ],
)  # fmt: skip
def test_text_that_is_no_config_is_refused_with_a_line(problems_of, text, complaint):
    assert problems_of(text) == [complaint]


def test_a_second_document_is_refused(problems_of):
    assert problems_of("a: 1\n---\nb: 2\n") == [
        "2: `---` begins another document, and only one is read"
    ]


def test_a_file_that_is_not_there_is_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"absent.yaml: cannot be read: No such file"):
        load(tmp_path / "absent.yaml", environ={})


def test_bytes_that_are_not_utf8_are_told_with_their_line(tmp_path):
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"listen: a\nadmin: \xff\n")
    with pytest.raises(ConfigError, match=r"latin.yaml:2: the file is not UTF-8"):
        load(path, environ={})


def test_words_that_yaml_1_1_takes_for_booleans_stay_text(config_of):
    config = config_of(
        """
        upstreams: {on: {base_url: "http://h"}, no: {base_url: "http://h"}}
        routes: [{to: [on, no], match: {header: {X-Flag: yes, X-Build: 0123, X-Time: 10:30}}}]
        """
    )
    assert config.routes[0].to == ("on", "no")
    assert config.routes[0].match.header == {"X-Flag": "yes", "X-Build": "0123", "X-Time": "10:30"}


def test_a_leading_zero_does_not_make_a_number_octal(config_of):
    assert config_of(REMOTE + "embedder: null\nshutdown: {deadline: 010}").shutdown.deadline == 10
    assert config_of(REMOTE + "shutdown: {deadline: 0x10}").shutdown.deadline == 16


def test_null_takes_the_place_of_what_may_be_absent(config_of):
    assert config_of(REMOTE + "tenants: null\nstore: {path: ~}").tenants is None


def test_variables_are_filled_in_where_they_stand(config_of):
    config = config_of(
        """
        upstreams:
          remote: {base_url: "http://${HOST}:${PORT:-9000}/v1", max_in_flight: "${MANY}",
                   stream_usage: "${USAGE:-false}", credential: own, api_key: "${KEY}"}
        routes: [{to: remote}]    # ${UNKNOWN} in a comment is nothing
        tenants: {keys: {"${ACME_KEY}": acme}}
        """,
        HOST="h.test",
        MANY="7",
        KEY="12345",
        ACME_KEY="k1",
        PORT="",
    )
    remote = config.upstreams["remote"]
    assert remote.base_url == "http://h.test:9000/v1"
    assert remote.max_in_flight == 7
    assert remote.stream_usage is False
    assert remote.api_key == "12345"
    assert config.tenants is not None
    assert config.tenants.keys == {"k1": "acme"}


def test_a_variable_cannot_add_structure(config_of):
    evil = "x, credential: own"
    config = config_of(REMOTE + "aliases: {a: '${EVIL}'}\n", EVIL=evil)
    assert config.aliases == {"a": evil}


def test_a_missing_variable_is_told_with_its_place(problems_of):
    assert problems_of(REMOTE + "admin:\n  token: ${TOKEN}\n") == [
        "7: admin.token: the environment has no TOKEN, and there is no default"
    ]


def test_a_dollar_brace_that_is_no_variable_is_told_and_can_be_escaped(problems_of, config_of):
    assert problems_of(REMOTE + "aliases: {a: '${no-name}'}") == [
        "6: aliases.a: `${` begins no variable; write ${NAME} or ${NAME:-default}, "
        "or $${ for itself"
    ]
    assert config_of(REMOTE + "aliases: {a: 'x$${y}$'}").aliases == {"a": "x${y}$"}


def test_values_of_the_environment_and_secrets_stay_out_of_messages(problems_of):
    text = REMOTE + (
        'shutdown: {deadline: "${SECRET}"}\n'
        "admin: {listen: '127.0.0.1:1', token: [typed-in]}\n"
        "tenants: {keys: {typed-key: {}, typed-key: x}}\n"
    )
    lines = problems_of(text, SECRET="sk-environment")
    assert lines == [
        f"6: shutdown.deadline: {A_DURATION}, got another value",
        "7: admin.token: expected text, got a list",
        "8: tenants.keys[***]: expected text, got a mapping",
        "8: tenants.keys[***]: written twice; the first is in line 8",
    ]


def test_merge_keys_bring_in_what_is_not_written(config_of):
    config = config_of(
        REMOTE
        + """
policies:
  base: &base {ttl: 5m, share: tenant}
  longer: &longer {<<: *base, ttl: 1h}
  longest: {<<: [*longer], jitter: 0}
"""
    )
    assert config.policies["longest"].ttl == 3600
    assert config.policies["longest"].share == "tenant"
    assert config.policies["longer"].ttl == 3600
    assert config.policies["longer"].share == "tenant"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("aliases: &a {<<: *a, b: c, c: &c [*c]}", "aliases.c: expected text, got a list"),
        (
            "shutdown: {deadline: !x 5}",
            "shutdown.deadline: expected a duration such as 10s, 5m or 1h, got the YAML tag '!x'",
        ),
        (f"shutdown: {{deadline: {HUGE}}}", f"shutdown.deadline: {A_DURATION}, got '{HUGE}'"),
        (f"limits: {{body: {HUGE}}}", f"limits.body: {A_SIZE}, got '{HUGE}'"),
        (f"policies: {{p: {{jitter: {HUGE}}}}}", f"policies.p.jitter: expected a number, "
         f"got '{HUGE}'"),
    ],
)  # fmt: skip
def test_unusual_yaml_is_refused_and_never_followed(problems_of, line, complaint):
    assert problems_of(REMOTE + line) == [f"6: {complaint}"]


def test_brackets_without_end_are_refused(problems_of):
    assert problems_of("[" * 3000 + "]" * 3000) == ["1: nested too deeply"]


@settings(deadline=None)
@given(
    st.one_of(
        st.text(max_size=300),
        st.lists(st.sampled_from(PIECES), max_size=40).map("".join),
    )
)
def test_any_text_is_a_config_or_a_config_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_text(text, encoding="utf-8")
    try:
        read(path, environ={"X": "1"})
    except ConfigError as error:
        assert error.problems
        assert all(str(line).startswith(f"{path}:") for line in error.problems)


def test_rules_over_several_keys_are_told_at_the_mapping(problems_of):
    assert problems_of(
        """\
        upstreams:
          a: {}
          b: {base_url: ftp://x}
          c: {base_url: http://x, credential: own, api_key: "${NONE:-}"}
        policies:
          p: {tags: [{header: X, pattern: y}]}
        routes: [{to: a}, {to: b}, {to: c}]
        """
    ) == [
        "2: upstreams.a: give either `base_url` or `engine`",
        "3: upstreams.b: `base_url` must begin with http:// or https://",
        "4: upstreams.c: `credential: own` needs `api_key`",
        "6: policies.p.tags[0]: give one of `header`, `pattern`, `tool`, `documents`",
    ]


def test_warnings_name_routes_that_are_never_reached(write):
    loaded = read(
        write(
            """\
            upstreams: {remote: {base_url: "http://h"}}
            routes:
              - {match: {model: "a[bc]"}, to: remote}
              - {match: {}, to: remote}
              - {match: {model: x}, to: remote}
            """
        ),
        environ={},
    )
    assert [line.split(":", 1)[1] for line in loaded.warnings] == [
        "3: routes[0].match.model: 'a[bc]': only * and ? are wildcards, "
        "brackets stand for themselves",
        "5: routes[2]: never reached: routes[1] takes every such request before it",
    ]


STORED = """\
upstreams: {{remote: {{base_url: "http://h"}}}}
routes: [{{match: {{}}, to: remote}}]
store:
  path: {path}
"""


def test_a_store_that_cannot_be_written_is_named_and_nothing_is_made(write, tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    write("")
    before = sorted(tmp_path.rglob("*"))
    for path in ("folder", "file/cache.db", "file/deeper/cache.db"):
        with pytest.raises(ConfigError) as error:
            read(write(STORED.format(path=tmp_path / path)), environ={})
        (problem,) = error.value.problems
        assert ":4: store.path: cannot be written here: " in problem
    for path in ("file", "folder/cache.db", "new/deeper/cache.db"):
        assert read(write(STORED.format(path=tmp_path / path)), environ={}).warnings == ()
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_in_a_folder_of_others_is_named(write, tmp_path):
    (tmp_path / "folder").mkdir(mode=0o500)
    with pytest.raises(ConfigError, match=r"store\.path: cannot be written here"):
        read(write(STORED.format(path=tmp_path / "folder" / "cache.db")), environ={})


def test_tracing_without_its_packages_is_refused_by_name(write, monkeypatch):
    for name in [one for one in sys.modules if one.startswith("opentelemetry.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r"tracing: opentelemetry\.sdk, .* not installed: .*otel"):
        read(write(REMOTE + "tracing: {endpoint: 'http://127.0.0.1:4318'}\n"), environ={})


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Tcp(host="127.0.0.1", port=8080)),
        ("[::1]:8080", Tcp(host="::1", port=8080)),
        ("[0:0::1]:0", Tcp(host="::1", port=0)),
        ("unix:/run/r.sock", Unix(path="/run/r.sock")),
    ],
)
def test_an_address_is_parsed(text, address):
    assert parse_address(text) == address
    assert address.loopback


@pytest.mark.parametrize(
    "text", ["", ":80", "host", "host:", "1.2.3.4:65536", "::1:80", "[zz]:1", "[1.2]:1", "unix:r"]
)
def test_text_that_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match=r"expected|needs|must be"):
        parse_address(text)
