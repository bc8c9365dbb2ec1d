// Runs one scenario by its name and prints what pytest looks at: `X-Cache` of each answer.

export const TEXT = "A cache keeps answers, é and 漢字 too.";
export const base = process.env.PROXY_URL;
export const question = process.env.QUESTION;

const words = [];

export async function seeing(url, options) {
  const response = await fetch(url, options);
  words.push(response.headers.get("x-cache"));
  return response;
}

export async function run(scenarios) {
  const name = process.argv[2];
  if (!(name in scenarios)) throw new Error(`no scenario ${name}`);
  await scenarios[name]();
  console.log(JSON.stringify({ words }));
}

export async function collected(stream) {
  const items = [];
  for await (const item of stream) items.push(item);
  return items;
}
