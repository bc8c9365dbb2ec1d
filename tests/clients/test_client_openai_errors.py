"""The `openai` package, when something is wrong: its own error types, and its retries."""

import openai
import pytest
from chats import TEXT
from openai import OpenAI
from proxyprocess import ProxyProcess
from test_client_openai_chat import messages
from upstream import Answer, error


def ask(client: OpenAI, question: str, model: str = "org/chat", **more):
    return client.chat.completions.create(model=model, messages=messages(question), **more)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (404, openai.NotFoundError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
    ],
)
def test_the_upstream_s_errors_become_the_client_s_own(
    client, upstream, seen, question, status, kind, stream
):
    upstream.fail(question, error(status, "So it is.", code="some_code", retry_after="0"))
    with pytest.raises(kind) as caught:
        ask(client, question, stream=stream)
    assert caught.value.status_code == status
    assert caught.value.code == "some_code"
    assert caught.value.body["message"] == "So it is."
    assert caught.value.request_id == seen.headers[0]["x-request-id"]
    assert seen.headers[0]["retry-after"] == "0"
    assert seen.words == ["miss"]
    ask(client, question, stream=stream)
    assert seen.words == ["miss", "miss"]  # an error is not kept


def test_the_sdk_waits_out_a_rate_limit(client, upstream, seen, question):
    upstream.fail(question, error(429, "Slow down.", retry_after="0.01"))
    answer = ask(client.with_options(max_retries=2), question)
    assert answer.choices[0].message.content == TEXT
    assert len(upstream.asks(question)) == 2


def test_the_sdk_retries_a_500_when_the_proxy_does_not(client, upstream, question):
    upstream.fail(question, error(500, "Oops."), error(503, "Oops."))
    answer = ask(client.with_options(max_retries=2), question)
    assert answer.choices[0].message.content == TEXT
    assert len(upstream.asks(question)) == 3


def test_retries_of_proxy_and_sdk_do_not_multiply(client, upstream, question):
    upstream.fail(question, *[error(500, "Oops.") for _ in range(20)])
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client.with_options(max_retries=2), question, model="patient/chat")
    assert caught.value.response.headers["x-should-retry"] == "false"
    assert len(upstream.asks(question)) == 3


def test_the_proxy_retries_so_the_client_need_not(client, upstream, seen, question):
    upstream.fail(question, error(500, "Oops."), error(503, "Oops."))
    answer = ask(client, question, model="patient/chat")
    assert answer.choices[0].message.content == TEXT
    assert len(upstream.asks(question)) == 3
    assert seen.words == ["miss"]


@pytest.mark.parametrize(("said", "num_asked"), [("false", 1), ("true", 2)])
def test_x_should_retry_of_the_upstream_reaches_the_sdk(
    client, upstream, question, said, num_asked
):
    status = 500 if said == "false" else 400
    upstream.fail(question, error(status, "No.", x_should_retry=said, retry_after_ms="1"))
    try:
        ask(client.with_options(max_retries=1), question)
    except openai.InternalServerError:
        assert said == "false"
    assert len(upstream.asks(question)) == num_asked


def test_a_balancer_s_page_becomes_an_error_that_the_sdk_reads(client, upstream, question):
    page = Answer(b"<html>Bad gateway</html>", 502, {"content-type": "text/html"})
    upstream.fail(question, page)
    with pytest.raises(openai.InternalServerError) as caught:
        ask(client, question)
    assert caught.value.status_code == 502
    assert caught.value.body["message"]
    assert caught.value.type


def test_a_key_of_the_proxy_does_not_leak_in_the_upstream_s_words(upstream, question):
    """The real API repeats the end of a wrong key, other servers all of it."""
    process = ProxyProcess(f"""
listen: 127.0.0.1:0
admin: {{listen: "127.0.0.1:0"}}
upstreams:
  own: {{base_url: "{upstream.url}/v1", credential: own, api_key: sk-proxy-secret-0123456789}}
routes: [{{to: own, retries: 0}}]
shutdown: {{grace: 0s, deadline: 5s}}
""")
    said = "Incorrect API key provided: sk-proxy-secret-0123456789."
    upstream.fail(question, error(401, said, www_authenticate="Bearer sk-proxy-secret-0123456789"))
    try:
        with (
            OpenAI(base_url=process.url, api_key="sk-mine", max_retries=0) as client,
            pytest.raises(openai.AuthenticationError) as caught,
        ):
            ask(client, question)
    finally:
        process.stop()
    (asked,) = upstream.asks(question)
    assert asked.headers["authorization"] == "Bearer sk-proxy-secret-0123456789"
    assert "Incorrect API key" in caught.value.message
    assert "sk-proxy-secret" not in caught.value.response.text
    assert "sk-proxy-secret" not in str(caught.value.response.headers)


def test_an_unreachable_upstream_is_an_error_of_the_server():
    process = ProxyProcess("""
listen: 127.0.0.1:0
admin: {listen: "127.0.0.1:0"}
upstreams: {gone: {base_url: "http://127.0.0.1:9/v1"}}
routes: [{to: gone, retries: 0}]
shutdown: {grace: 0s, deadline: 5s}
""")
    try:
        with OpenAI(base_url=process.url, api_key="sk-test", max_retries=5) as client:
            with pytest.raises(openai.InternalServerError) as caught:
                ask(client, "Anybody there?")
            assert caught.value.status_code == 503
            assert caught.value.code == "upstream_unreachable"
            with pytest.raises(openai.InternalServerError):
                client.files.list()
    finally:
        process.stop()


def test_wrong_requests_name_their_field(client, upstream, question):
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, question, extra_body={"api_base": "http://elsewhere"})
    assert caught.value.param == "api_base"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="org/chat", messages="hello")
    assert caught.value.param == "messages"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, question, extra_body={"cache": {"no-stor": True}})
    assert caught.value.param == "cache.no-stor"
    assert upstream.asks(question) == []
