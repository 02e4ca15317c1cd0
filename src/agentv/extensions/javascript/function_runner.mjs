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

const answer = async ({ name, arguments: values, isTransform }) => {
  try {
    const picked = pick(await load(), name, isTransform);
    if (picked === undefined) return { error: `it does not export ${name || "a function"}` };
    const value = typeof picked === "function" ? await picked(...values) : picked;
    return value === undefined ? { error: "it returned undefined" } : { value };
  } catch (error) {
    return { error: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
  }
};

for await (const line of createInterface({ input: process.stdin })) {
  process.stdout.write(`\n${mark}${JSON.stringify(await answer(JSON.parse(line)))}\n`);
}
