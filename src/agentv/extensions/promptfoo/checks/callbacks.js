// The answer with the results of functions that the model called; unchanged if one of them throws.
const textOf = (result) => (result === undefined || result === null ? "" : typeof result === "object" ? JSON.stringify(result) : String(result));
const argumentsOf = (call) => call.arguments || call.function?.arguments;
const nameOf = (call) => call.name || call.function?.name;
const isObject = (value) => value !== null && typeof value === "object";

const lineOf = async (line) => {
  try {
    const item = JSON.parse(line);
    return item.type === "function_call" && callbacks[item.name] ? textOf(await callbacks[item.name](argumentsOf(item))) : line;
  } catch {
    return line;
  }
};

return (async () => {
  if (typeof output === "string") return isResponses ? (await Promise.all(output.split("\n").map(lineOf))).join("\n") : output;
  const own = isObject(output) && !Array.isArray(output) ? output.function_call ?? output.tool_calls ?? output : output;
  const results = [];
  for (const call of Array.isArray(own) ? own : isObject(own) ? [own] : []) {
    if (!callbacks[nameOf(call)]) continue;
    try {
      results.push(textOf(await callbacks[nameOf(call)](argumentsOf(call))));
    } catch {
      return output;
    }
  }
  return results.length ? results.join("\n") : output;
})();
