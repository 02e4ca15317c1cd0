// The F1 score of the names of tools, read from an answer in the formats of OpenAI, Anthropic and Google.
const isObject = (value) => value !== null && typeof value === "object";
const nameIn = (value) => (isObject(value) && typeof value.name === "string" ? [value.name] : []);

const blockNames = (block) => {
  if (!isObject(block)) return [];
  if (block.type === "tool_use" && typeof block.name === "string") return [block.name];
  if (isObject(block.functionCall)) return nameIn(block.functionCall);
  if (isObject(block.function)) return nameIn(block.function);
  return nameIn(block);
};

const namesIn = (value) => {
  if (typeof value === "string") return textNames(value);
  if (!isObject(value)) return [];
  if (Array.isArray(value.tool_calls)) return value.tool_calls.flatMap((call) => (isObject(call) ? [...nameIn(call.function), ...nameIn(call)] : []));
  if (value.type === "tool_use" && typeof value.name === "string") return [value.name];
  if (isObject(value.functionCall)) return nameIn(value.functionCall);
  if (isObject(value.toolCall)) return Array.isArray(value.toolCall.functionCalls) ? value.toolCall.functionCalls.flatMap(nameIn) : [];
  return Array.isArray(value) ? value.flatMap(blockNames) : [];
};

const textNames = (text) => {
  try {
    return namesIn(JSON.parse(text));
  } catch {}
  return text.split("\n").map((line) => line.trim()).filter((line) => /^[{[]/.test(line)).flatMap((line) => {
    try {
      return namesIn(JSON.parse(line));
    } catch {
      return [];
    }
  });
};

const expected = new Set(context.config.tools);
const calls = new Set(namesIn(output));
const shared = [...expected].filter((name) => calls.has(name)).length;
return shared ? (2 * shared) / (expected.size + calls.size) : 0;
