// Render prompts with AgentMark's engine: one line of JSON per prompt, in the order of the file.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [, , packageFolder, file] = process.argv;
const { TemplateDX, TagPlugin } = await import(pathToFileURL(`${packageFolder}/dist/index.js`));
const { props, files, prompts } = JSON.parse(readFileSync(file, "utf8"));

/** A message tag: its content is written as Markdown, as AgentMark's own tags do it. */
class Message extends TagPlugin {
  constructor(messages) {
    super();
    this.messages = messages;
  }

  async transform(_props, children, { scope, tagName, createNodeTransformer, nodeHelpers }) {
    const message = { role: tagName.toLowerCase() };
    this.messages.push(message);
    const transformer = createNodeTransformer(tagName === "User" ? scope.createChild() : scope);
    const results = await Promise.all(children.map(async (child) => transformer.transformNode(child)));
    message.content = nodeHelpers.toMarkdown({ type: "root", children: results.flat() }).trim();
    return [];
  }
}

async function render(prompt) {
  const messages = [];
  const engine = new TemplateDX();
  engine.registerTagPlugin(new Message(messages), ["System", "User", "Assistant"]);
  const load = async (path) => {
    const name = path.split("/").pop();
    if (!(name in files)) throw new Error(`no file ${name}`);
    return files[name];
  };
  const tree = await engine.parse(`---\nname: x\n---\n\n${prompt}\n`, "/project", load);
  await engine.transform(tree, props, {});
  return messages;
}

for (const { case: name, prompt } of prompts) {
  let result;
  try {
    result = { messages: await render(prompt) };
  } catch (error) {
    result = { error: String(error.message).split("\n")[0] };
  }
  console.log(JSON.stringify({ case: name, ...result }));
}
