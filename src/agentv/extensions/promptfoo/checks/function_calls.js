// The calls of functions in an answer, with their arguments as data. An answer without any is an empty list.
const isObject = (value) => value !== null && typeof value === "object";
const callOf = (call) => {
  if (!isObject(call) || typeof call.name !== "string" || typeof call.arguments !== "string") return {};
  try {
    return { name: call.name, arguments: JSON.parse(call.arguments) };
  } catch {
    return {};
  }
};
const text = typeof output === "string" ? output : JSON.stringify(output);
if (isListed && text.includes("MCP Tool Error")) return [];
if (isListed && text.includes("MCP Tool Result")) return [{ result: true }];
const parts = Array.isArray(output) && !isListed ? output.filter((part) => isObject(part) && isObject(part.functionCall)) : [];
if (parts.length) return parts.map(({ functionCall }) => ({ name: functionCall.name, arguments: functionCall.args ?? {} }));
const own = isObject(output) && !Array.isArray(output) ? output[isListed ? "tool_calls" : "function_call"] : undefined;
const calls = own === undefined ? output : own;
if (!isListed) return [callOf(calls)];
return Array.isArray(calls) ? calls.map((call) => callOf(isObject(call) ? call.function : null)) : [];
