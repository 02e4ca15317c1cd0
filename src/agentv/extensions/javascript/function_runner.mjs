// Call functions of a JavaScript file: a request on each line of the input, and a reply with a mark on the output.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [file, mark] = process.argv.slice(2);
console.log = console.info = console.debug = console.error;

// The default export is the module, as in promptfoo: also one in another, of files that were compiled.
const load = async () => {
  const module = await import(pathToFileURL(file).href);
  return module.default?.default || module.default || module;
};

const pick = (module, name, isTransform) => {
  if (!isTransform) return name ? module[name] : module;
  if (name && typeof module[name] === "function") return module[name];
  return typeof module === "function" ? module : module.default;
};

// What a file exports as its default, or as AgentV's suites do, as data: functions in it are marked.
const LOWERED = Symbol.for("@agentv/sdk/to-eval-yaml-object");
const exported = async () => {
  const module = await import(pathToFileURL(file).href);
  const value = module.default?.default ?? module.default ?? module.config ?? module.evalConfig;
  if (typeof value !== "object" || value === null) return value;
  const mark = (key, item) => (typeof item === "function" ? { "agentv:function": key } : item);
  return JSON.parse(JSON.stringify(value[LOWERED] ? value[LOWERED]() : value, mark));
};

const called = async ({ name, arguments: values, isTransform }) => {
  const isDefault = name === "default" && !isTransform;
  const picked = isDefault ? await exported() : pick(await load(), name, isTransform);
  if (picked === undefined) throw `it does not export ${name || "a function"}`;
  return typeof picked === "function" ? picked(...values) : picked;
};

// Providers of promptfoo are classes. Each is made once, with the options of its entry.
const providers = new Map();

const provided = async ({ provider: options, method = "callApi", arguments: values }) => {
  const key = JSON.stringify(options);
  if (!providers.has(key)) {
    const Provider = await load();
    if (typeof Provider !== "function") throw "its default export is not a class";
    providers.set(key, new Provider(options));
  }
  const provider = providers.get(key);
  if (typeof provider[method] !== "function") throw `its class has no method ${method}`;
  return provider[method](...values);
};

const reply = async ({ call, ...request }) => {
  try {
    const value = await (request.provider ? provided : called)(request);
    return JSON.stringify(value === undefined ? { call, error: "it returned undefined" } : { call, value });
  } catch (error) {
    return JSON.stringify({ call, error: error instanceof Error ? `${error.name}: ${error.message}` : String(error) });
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  reply(JSON.parse(line)).then((text) => process.stdout.write(`\n${mark}${text}\n`));
}
