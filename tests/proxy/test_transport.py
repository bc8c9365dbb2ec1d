"""What servers may send, as far as the client below them lets them."""

from misbehaving import answering, plain, serving
from running import CONFIG, completion, running


async def test_an_answer_with_hundreds_of_headers_arrives_with_all_of_them(tmp_path):
    many = tuple(f"x-header-{number}: {number}" for number in range(500))
    async with (
        serving(answering(plain(completion(), headers=many))) as upstream,
        running(CONFIG.format(upstream=upstream.url, options="", policy=""), tmp_path) as p,
    ):
        answer = await p.ask(model="uncached")
        assert answer.status_code == 200
        assert sum(name.startswith("x-header-") for name in answer.headers) == 500
