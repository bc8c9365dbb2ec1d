import pytest

from proxy.request.headers import counted, forwarded, is_looping, passed_on, pseudonym, recorded

VIA = b"rejoinder-0123456789ab"

OPENAI_CLIENT = (
    (b"host", b"127.0.0.1:8080"),
    (b"accept", b"application/json"),
    (b"accept-encoding", b"gzip, deflate"),
    (b"connection", b"keep-alive"),
    (b"content-type", b"application/json"),
    (b"content-length", b"120"),
    (b"user-agent", b"OpenAI/Python 2.1.0"),
    (b"x-stainless-lang", b"python"),
    (b"x-stainless-retry-count", b"0"),
    (b"authorization", b"Bearer sk-1"),
)


def test_plain_client_adds_nothing_to_the_key():
    assert counted(OPENAI_CLIENT) == ()


def test_what_fetch_adds_in_node_is_not_in_the_key():
    headers = ((b"accept-language", b"*"), (b"sec-fetch-mode", b"cors"))
    assert counted((*OPENAI_CLIENT, *headers)) == ()


@pytest.mark.parametrize(
    "name",
    [
        b"traceparent", b"tracestate", b"user-agent", b"accept", b"accept-encoding",
        b"x-request-id", b"x-forwarded-for", b"x-forwarded-proto", b"x-stainless-os",
        b"x-cache-ttl", b"x-cache-tags", b"cache-control", b"cookie", b"authorization",
        b"api-key", b"host", b"via", b"x-client-request-id", b"sentry-trace", b"b3",
        b"x-b3-traceid", b"x-datadog-parent-id", b"x-amzn-trace-id", b"x-correlation-id",
        b"x-forwarded-host", b"x-forwarded-port", b"x-forwarded-prefix", b"x-forwarded-ssl",
    ],
)  # fmt: skip
def test_neutral_header_does_not_count(name):
    assert counted(((name, b"1"),)) == ()


@pytest.mark.parametrize(
    "name",
    [
        b"openai-organization", b"x-user", b"accept-language", b"x-new", b"x-forwarded-user",
        b"x-forwarded-email", b"x-forwarded-access-token", b"x-forwarded-groups",
        b"x-forwarded-preferred-username", b"x-forwarded-client-cert", b"x-forwarded-new",
        b"x-auth-request-user", b"baggage",
    ],
)  # fmt: skip
def test_header_that_is_not_neutral_counts_and_is_forwarded(name):
    assert counted(((name, b"1"),)) == ((name, b"1"),)
    assert (name, b"1") in forwarded(((name, b"1"),), via=VIA)


def test_baggage_counts_but_for_what_is_sentrys_own():
    own = b"sentry-trace_id=1, sentry-release=2"
    assert counted(((b"baggage", own),)) == ()
    assert counted(((b"baggage", own + b", userId=alice"),)) == ((b"baggage", b"userId=alice"),)


def test_every_header_that_counts_is_forwarded():
    headers = (*OPENAI_CLIENT, (b"x-a", b"1"), (b"content-type", b"application/json; v=2"))
    assert set(counted(headers)) <= set(forwarded(headers, via=VIA))


def test_order_of_headers_does_not_count_but_a_second_value_does():
    one = ((b"x-a", b"1"), (b"x-b", b"2"))
    assert counted(one) == counted(one[::-1])
    assert counted((*one, (b"x-a", b"1"))) != counted(one)


@pytest.mark.parametrize("value", [b"application/json", b"Application/JSON; charset=utf-8"])
def test_content_type_of_json_does_not_count(value):
    assert counted(((b"content-type", value),)) == ()


def test_other_content_type_counts():
    assert counted(((b"content-type", b"application/x-ndjson"),))


@pytest.mark.parametrize(
    "name",
    [
        b"host", b"cookie", b"authorization", b"api-key", b"x-api-key", b"content-length", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"keep-alive", b"connection", b"expect",
        b"proxy-authorization", b"proxy-connection", b"proxy-foo", b"x-stainless-arch",
        b"x-cache-tags", b"x-cache-namespace", b"cache-control",
    ],
)  # fmt: skip
def test_header_of_one_hop_or_of_ours_is_not_forwarded(name):
    assert name not in dict(forwarded(((name, b"secret"),), via=VIA))


def test_what_connection_names_is_neither_forwarded_nor_counted():
    headers = ((b"connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"x-stays", b"2"))
    assert b"x-hop" not in dict(forwarded(headers, via=VIA))
    assert counted(headers) == ((b"x-stays", b"2"),)


def test_upstream_is_asked_for_no_compression():
    sent = forwarded(OPENAI_CLIENT, via=VIA)
    assert [value for name, value in sent if name == b"accept-encoding"] == [b"identity"]


def test_trace_and_request_id_are_forwarded():
    headers = ((b"traceparent", b"00-a-b-01"), (b"x-request-id", b"r1"))
    assert set(headers) <= set(forwarded(headers, via=VIA))


def test_our_token_is_added_to_via_and_found_again():
    sent = forwarded(((b"via", b"1.1 edge"),), via=VIA)
    assert (b"via", b"1.1 edge, 1.1 " + VIA) in sent
    assert is_looping(sent, via=VIA)
    assert not is_looping(((b"via", b"1.1 edge"),), via=VIA)


def test_two_stores_have_two_tokens_and_replicas_of_one_the_same():
    assert pseudonym(b"a") == pseudonym(b"a") != pseudonym(b"b")
    assert not is_looping(forwarded((), via=pseudonym(b"a")), via=pseudonym(b"b"))


UPSTREAM = (
    (b"content-type", b"application/json"),
    (b"content-length", b"77"),
    (b"date", b"Mon, 01 Jan 2024 00:00:00 GMT"),
    (b"x-request-id", b"req_1"),
    (b"x-ratelimit-remaining-requests", b"9"),
    (b"retry-after", b"3"),
    (b"retry-after-ms", b"3000"),
    (b"set-cookie", b"__cf=1"),
    (b"server-timing", b"x;dur=1"),
    (b"openai-organization", b"acme"),
    (b"openai-processing-ms", b"12"),
    (b"openai-version", b"2020-10-01"),
    (b"x-cache", b"HIT"),
    (b"connection", b"keep-alive, x-hop"),
    (b"x-hop", b"1"),
    (b"x-new", b"1"),
)


def test_waiting_client_gets_the_upstreams_headers_but_none_of_its_connection():
    assert dict(passed_on(UPSTREAM)) == {
        b"content-type": b"application/json",
        b"x-upstream-request-id": b"req_1",
        b"x-ratelimit-remaining-requests": b"9",
        b"retry-after": b"3",
        b"retry-after-ms": b"3000",
        b"server-timing": b"x;dur=1",
        b"openai-organization": b"acme",
        b"openai-processing-ms": b"12",
        b"openai-version": b"2020-10-01",
        b"x-new": b"1",
    }


def test_replay_repeats_nothing_that_belonged_to_one_exchange():
    assert recorded(UPSTREAM) == ((b"openai-version", b"2020-10-01"),)


@pytest.mark.parametrize(
    "header",
    [(b"x-a", b"a\x00b"), (b"x-a", b"\x7f"), (b"x a", b"b"), (b"", b"b"), (b"x\xff", b"b")],
)
def test_what_no_server_sends_is_passed_on_to_nobody(header):
    assert passed_on((header, (b"x-b", b"ok\t\xff"))) == ((b"x-b", b"ok\t\xff"),)
    assert recorded(((b"openai-version", b"\n"),)) == ()
