// The `openai` package for Node. Each scenario fails by an assertion or leaves its words behind.

import assert from "node:assert/strict";

import OpenAI, { toFile } from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";

import { TEXT, base, collected, question, run, seeing } from "./scenario.mjs";

const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "sk-test", fetch: seeing, maxRetries: 0 });
const messages = [{ role: "user", content: question }];
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object" } } }];
const Robot = z.object({ name: z.string(), age: z.number() });

const ask = (model, more = {}) => client.chat.completions.create({ model, messages, ...more });

await run({
  async plain() {
    const first = await ask("org/chat");
    const again = await ask("org/chat");
    assert.equal(first.choices[0].message.content, TEXT);
    assert.equal(first.usage.prompt_tokens_details.cached_tokens, 8);
    assert.deepEqual({ ...again, _request_id: 0 }, { ...first, _request_id: 0 });
  },

  async streamed() {
    const first = await collected(await ask("org/chat", { stream: true }));
    const again = await collected(await ask("org/chat", { stream: true }));
    const counted = await collected(
      await ask("org/chat", { stream: true, stream_options: { include_usage: true } }),
    );
    assert.deepEqual(again, first);
    assert.equal(first.map((chunk) => chunk.choices[0].delta.content ?? "").join(""), TEXT);
    assert.ok(first.every((chunk) => !chunk.usage));
    assert.equal(counted.at(-1).usage.total_tokens, 29);
  },

  async tools() {
    const plain = await ask("org/tools", { tools });
    const helped = await client.chat.completions
      .stream({ model: "org/tools", messages, tools })
      .finalChatCompletion();
    const calls = plain.choices[0].message.tool_calls;
    assert.deepEqual(calls.map((call) => call.id), ["call_paris", "call_rome"]);
    assert.deepEqual(
      helped.choices[0].message.tool_calls.map(({ id, type, function: f }) => ({
        id,
        type,
        function: { name: f.name, arguments: f.arguments },
      })),
      calls,
    );
  },

  async toolRunner() {
    const asked = [];
    const weather = {
      type: "function",
      function: {
        name: "weather",
        parameters: { type: "object", properties: { city: { type: "string" } } },
        parse: JSON.parse,
        function: ({ city }) => (asked.push(city), `sunny in ${city}`),
      },
    };
    for (let n = 0; n < 2; n += 1) {
      const runner = client.chat.completions.runTools({ model: "org/tools", messages, tools: [weather] });
      assert.equal(await runner.finalContent(), TEXT);
    }
    assert.deepEqual(asked, ["Paris", "Rome", "Paris", "Rome"]);
  },

  async parsed() {
    for (let n = 0; n < 2; n += 1) {
      const answer = await client.chat.completions.parse({
        model: "org/structured",
        messages,
        response_format: zodResponseFormat(Robot, "robot"),
      });
      assert.deepEqual(answer.choices[0].message.parsed, { name: "Marvin", age: 37 });
    }
  },

  async responses() {
    const asked = { model: "org/chat", input: question };
    const first = await collected(await client.responses.create({ ...asked, stream: true }));
    const again = await collected(await client.responses.create({ ...asked, stream: true }));
    const plain = await client.responses.create(asked);
    const helped = await client.responses.stream(asked).finalResponse();
    assert.deepEqual(again, first);
    assert.equal(plain.output_text, TEXT);
    assert.equal(helped.output_text, TEXT);
    assert.deepEqual(plain.output, first.at(-1).response.output);
  },

  async embeddings() {
    const asked = { model: "org/embed", input: [question, `${question} two`] };
    const first = await client.embeddings.create(asked);
    const again = await client.embeddings.create(asked);
    const floats = await client.embeddings.create({ ...asked, encoding_format: "float" });
    assert.equal(first.data[0].embedding.length, 8);
    assert.deepEqual(again.data, first.data);
    assert.deepEqual(floats.data, first.data);
  },

  async surfaces() {
    const ids = (await collected(client.models.list())).map((model) => model.id);
    assert.ok(ids.includes("acme/house-model"));
    assert.equal((await client.models.retrieve("acme/house-model")).id, "acme/house-model");
    const content = Buffer.alloc(300_000, 7);
    const file = await client.files.create({ file: await toFile(content, "a.bin"), purpose: "user_data" });
    assert.equal(file.bytes, content.length);
    const pages = (await collected(client.files.list({ limit: 2 }))).map((one) => one.id);
    assert.deepEqual(pages, ["file-1", "file-2", "file-3", "file-4"]);
    assert.equal((await (await client.files.content("file-1")).arrayBuffer()).byteLength, 262_144);
  },

  async errors() {
    await assert.rejects(ask("org/chat"), (error) => {
      assert.ok(error instanceof OpenAI.RateLimitError);
      assert.equal(error.code, "rate_limit_exceeded");
      assert.ok(error.requestID);
      return true;
    });
    await assert.rejects(client.models.retrieve("acme/none"), OpenAI.NotFoundError);
  },

  async retried() {
    const answer = await client.chat.completions.create(
      { model: "org/chat", messages },
      { maxRetries: 2 },
    );
    assert.equal(answer.choices[0].message.content, TEXT);
  },

  async dying() {
    const stream = await ask("org/dying", { stream: true });
    await assert.rejects(collected(stream), OpenAI.APIError);
  },

  async cut() {
    await assert.rejects(ask("org/cut", { stream: true }).then(collected));
    const kinds = [];
    const events = await client.responses.create({ model: "org/cut", input: question, stream: true });
    await assert.rejects(
      (async () => {
        for await (const event of events) {
          kinds.push(event.type);
          if (event.type === "error") throw new Error(event.message);
        }
      })(),
    );
    assert.ok(!kinds.includes("response.completed"));
  },

  async thinking() {
    const first = await collected(await ask("org/thinking", { stream: true }));
    const again = await collected(await ask("org/thinking", { stream: true }));
    assert.deepEqual(again, first);
  },

  async left() {
    for await (const chunk of await ask("org/slow", { stream: true })) {
      assert.equal(chunk.choices[0].delta.role, "assistant");
      break;
    }
  },
});
