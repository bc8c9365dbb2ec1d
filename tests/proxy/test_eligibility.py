import msgspec
import pytest

from proxy.call import Call, Caller, Directives, Surface
from proxy.request.eligibility import LONGEST_TEXT_CHARS, Eligibility, judge
from proxy.settings.config import Policy
from proxy.settings.semantic import Semantic

EXACT = Policy()
BY_MEANING = Policy(semantic=Semantic())
CALL = Call(
    request_id="r",
    caller=Caller(tenant="t", credential_id="c"),
    surface=Surface.CHAT,
    path="/chat/completions",
    query=b"",
    headers=(),
    credential=None,
    body=b"",
    fields={"model": "m", "messages": [{"role": "user", "content": "What is a cache?"}]},
    model="m",
    stream=False,
    include_usage=False,
    directives=Directives(),
    received_at=0.0,
)


def volatile(text: str) -> str | None:
    return "volatile" if "today" in text else None


def chat(*messages, **more) -> Call:
    fields = {"model": "m", "messages": list(messages) or CALL.fields["messages"]} | more
    return msgspec.structs.replace(CALL, fields=fields)


def user(content) -> dict:
    return {"role": "user", "content": content}


def responses(**fields) -> Call:
    fields = {"model": "m", "input": "What is a cache?"} | fields
    return msgspec.structs.replace(CALL, surface=Surface.RESPONSES, fields=fields)


def telling(call: Call = CALL, **directives) -> Call:
    return msgspec.structs.replace(call, directives=Directives(**directives))


def of(call: Call, policy: Policy | None = BY_MEANING) -> Eligibility:
    return judge(call, policy, volatile=volatile)


@pytest.mark.parametrize("call", [CALL, responses(), chat(user([{"type": "text", "text": "q"}]))])
def test_plain_question_may_be_read_written_and_matched_by_meaning(call):
    assert of(call) == Eligibility(read=True, write=True, semantic=True, reasons=())


def test_without_a_policy_the_cache_does_nothing():
    assert of(CALL, None) == Eligibility(
        read=False, write=False, semantic=False, reasons=("no_policy",)
    )


def test_policy_without_semantic_tier_is_exact_and_has_no_reasons():
    assert of(CALL, EXACT) == Eligibility(read=True, write=True, semantic=False, reasons=())


@pytest.mark.parametrize("policy", [EXACT, BY_MEANING])
@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (telling(no_store=True), "no_store"),
        (chat(web_search_options={}), "web_search"),
        (chat(tools=[{"type": "web_search"}]), "hosted_tools"),
        (responses(tools=[{"type": "function"}, {"type": "mcp"}]), "hosted_tools"),
        (responses(tools=[{"type": "file_search"}]), "hosted_tools"),
        (responses(tools=[{"type": "code_interpreter"}]), "hosted_tools"),
        (responses(conversation="conv_1"), "conversation"),
        (responses(previous_response_id="resp_1"), "previous_response_id"),
        (responses(background=True), "background"),
        (responses(input=[{"type": "item_reference", "id": "i"}]), "item_reference"),
    ],
)
def test_what_depends_on_more_than_the_request_is_bypassed(policy, call, reason):
    assert of(call, policy) == Eligibility(
        read=False, write=False, semantic=False, reasons=(reason,)
    )


@pytest.mark.parametrize(
    "call",
    [
        chat(web_search_options=None),
        chat(tools=[{"type": "function"}, {"type": "custom"}]),
        responses(conversation=None, previous_response_id=None, background=False),
        responses(tools=[{"type": "function", "name": "f"}]),
    ],
)
def test_fields_that_say_nothing_do_not_bypass(call):
    assert of(call, EXACT).reasons == ()


def test_no_cache_is_not_read_but_written():
    found = of(telling(no_cache=True))
    assert found == Eligibility(read=False, write=True, semantic=True, reasons=("no_cache",))


@pytest.mark.parametrize(
    ("call", "policy"),
    [(telling(ttl_s=0), BY_MEANING), (CALL, Policy(ttl=0, semantic=Semantic()))],
)
def test_ttl_of_zero_is_read_but_not_written(call, policy):
    found = of(call, policy)
    assert (found.read, found.write, found.reasons) == (True, False, ("ttl_zero",))


def test_ttl_of_the_request_counts_before_that_of_the_policy():
    assert of(telling(ttl_s=5), Policy(ttl=0)).write


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        (telling(semantic=False), "semantic_off"),
        (chat(response_format={"type": "json_object"}), "structured_output"),
        (chat(response_format={"type": "json_schema", "json_schema": {}}), "structured_output"),
        (responses(text={"format": {"type": "json_schema"}}), "structured_output"),
        (chat(logprobs=True), "logprobs"),
        (responses(top_logprobs=3), "logprobs"),
        (responses(include=["message.output_text.logprobs"]), "logprobs"),
        (chat(n=2), "several_choices"),
        (chat(tool_choice="required"), "tool_choice"),
        (chat(tool_choice={"type": "function"}), "tool_choice"),
        (chat(modalities=["text", "audio"]), "audio"),
        (chat(user("q"), {"role": "assistant"}, {"role": "tool", "content": "1"}), "tool_turn"),
        (
            responses(input=[user("q"), {"type": "function_call_output", "output": "1"}]),
            "tool_turn",
        ),
        (chat(user("q"), {"role": "assistant", "content": "a"}), "no_user_text"),
        (chat({"role": "system", "content": "a"}), "no_user_text"),
        (chat(user([{"type": "text", "text": "a"}] * 2)), "no_user_text"),
        (chat(user("  \n")), "empty_text"),
        (chat(user("x" * (LONGEST_TEXT_CHARS + 1))), "long_text"),
        (
            chat(user([{"type": "image_url", "image_url": {}}]), user("what was on it?")),
            "image",
        ),
        (chat(user([{"type": "input_audio"}]), user("q")), "audio"),
        (chat(user([{"type": "file"}]), user("q")), "file"),
        (responses(input=[user([{"type": "input_image"}]), user("q")]), "image"),
    ],
)
def test_what_only_an_equal_request_may_share_is_exact_only(call, reason):
    assert of(call) == Eligibility(read=True, write=True, semantic=False, reasons=(reason,))


@pytest.mark.parametrize(
    ("surface", "fields"),
    [(Surface.COMPLETIONS, {"prompt": "q"}), (Surface.EMBEDDINGS, {"input": "today"})],
)
def test_other_surfaces_are_exact_only(surface, fields):
    found = of(msgspec.structs.replace(CALL, surface=surface, fields=fields))
    assert found == Eligibility(read=True, write=True, semantic=False, reasons=("surface",))


TODAY = chat(user("weather today?"))


def test_volatile_question_is_bypassed_on_a_policy_that_answers_by_meaning():
    assert of(TODAY) == Eligibility(read=False, write=False, semantic=False, reasons=("volatile",))


def test_volatile_question_is_kept_by_its_ttl_on_an_exact_policy():
    assert of(TODAY, EXACT).reasons == ()


def test_volatile_question_that_names_a_ttl_is_kept():
    assert of(telling(TODAY, ttl_s=5)) == Eligibility(read=True, write=True, semantic=True)


def test_volatile_question_that_names_a_ttl_of_zero_is_bypassed():
    assert of(telling(TODAY, ttl_s=0)).reasons == ("volatile",)


def test_volatile_question_behind_a_tools_answer_is_bypassed():
    call = chat(user("weather today?"), {"role": "assistant"}, {"role": "tool", "content": "18"})
    assert of(call).reasons == ("volatile",)


def test_all_reasons_are_named():
    found = of(telling(chat(n=2, logprobs=True), no_cache=True, ttl_s=0))
    assert found.reasons == ("no_cache", "ttl_zero", "logprobs", "several_choices")
