// Vercel's AI SDK with its OpenAI-compatible provider.

import assert from "node:assert/strict";

import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import {
  APICallError,
  embedMany,
  generateObject,
  generateText,
  stepCountIs,
  streamObject,
  streamText,
  tool,
} from "ai";
import { z } from "zod";

import { TEXT, base, collected, question, run, seeing } from "./scenario.mjs";

const provider = createOpenAICompatible({
  name: "proxy",
  baseURL: `${base}/v1`,
  apiKey: "sk-test",
  fetch: seeing,
  includeUsage: true,
  supportsStructuredOutputs: true,
});
const bare = createOpenAICompatible({ name: "proxy", baseURL: base, apiKey: "sk-test", fetch: seeing });
const asked = (kind, from = provider) => ({
  model: from(`org/${kind}`),
  prompt: question,
  maxRetries: 0,
});
const Robot = z.object({ name: z.string(), age: z.number() });

await run({
  async plain() {
    const [first, again] = [await generateText(asked("chat")), await generateText(asked("chat"))];
    assert.equal(first.text, TEXT);
    assert.equal(again.text, TEXT);
    assert.deepEqual(again.usage, first.usage);
    assert.equal(first.usage.totalTokens, 29);
    assert.equal(again.response.id, first.response.id);
  },

  async streamed() {
    const runs = [];
    for (const from of [provider, provider, bare]) {
      const result = streamText(asked("chat", from));
      runs.push(await collected(result.textStream));
      const { totalTokens } = await result.usage;
      assert.equal(totalTokens, from === bare ? undefined : 29);
    }
    assert.deepEqual(runs[1], runs[0]);
    assert.equal(runs[2].join(""), TEXT);
  },

  async reasoning() {
    for (let n = 0; n < 2; n += 1) {
      const result = streamText(asked("reasoning"));
      await result.consumeStream();
      assert.equal(await result.reasoningText, "The user asks. I think it over.");
      assert.equal(await result.text, TEXT);
    }
  },

  async tools() {
    const cities = [];
    const weather = tool({
      inputSchema: z.object({ city: z.string() }),
      execute: async ({ city }) => (cities.push(city), `sunny in ${city}`),
    });
    const more = { tools: { weather }, stopWhen: stepCountIs(3) };
    for (let n = 0; n < 2; n += 1) {
      assert.equal((await generateText({ ...asked("tools"), ...more })).text, TEXT);
    }
    const streamed = streamText({ ...asked("tools"), ...more });
    assert.equal((await collected(streamed.textStream)).join(""), TEXT);
    assert.deepEqual(cities, ["Paris", "Rome", "Paris", "Rome", "Paris", "Rome"]);
  },

  async objects() {
    const robot = { name: "Marvin", age: 37 };
    const first = await generateObject({ ...asked("structured"), schema: Robot });
    const again = streamObject({ ...asked("structured"), schema: Robot });
    assert.deepEqual(first.object, robot);
    assert.deepEqual((await collected(again.partialObjectStream)).at(-1), robot);
    assert.deepEqual(await again.object, robot);
  },

  async embeddings() {
    const values = [question, `${question} two`];
    const model = provider.embeddingModel("org/embed");
    const first = await embedMany({ model, values, maxRetries: 0 });
    const again = await embedMany({ model, values, maxRetries: 0 });
    assert.deepEqual(again.embeddings, first.embeddings);
  },

  async errors() {
    await assert.rejects(generateText(asked("chat")), (error) => {
      assert.ok(APICallError.isInstance(error));
      assert.equal(error.statusCode, 429);
      assert.ok(error.isRetryable);
      assert.equal(error.data.error.code, "rate_limit_exceeded");
      return true;
    });
  },

  async cut() {
    const result = streamText({ ...asked("cut"), onError() {} });
    await assert.rejects(collected(result.textStream));
  },

  async thinking() {
    for (let n = 0; n < 2; n += 1) {
      const result = streamText(asked("thinking"));
      assert.equal((await collected(result.textStream)).join(""), TEXT);
    }
  },

  async left() {
    const leaving = new AbortController();
    const result = streamText({ ...asked("slow"), abortSignal: leaving.signal, onError() {} });
    for await (const part of result.fullStream) {
      if (part.type === "text-delta") leaving.abort();
      if (part.type === "abort") break;
    }
  },
});
