// Call a function of a JavaScript file with an answer, and print what it returns as JSON.
import { pathToFileURL } from "node:url";

const [file, name, other = "get_assert"] = process.argv.slice(2);
const pieces = [];
for await (const piece of process.stdin) pieces.push(piece);
const { output, context } = JSON.parse(Buffer.concat(pieces).toString("utf8"));
console.log = console.info = console.debug = console.error;

let found;
try {
  const module = await import(pathToFileURL(file).href);
  const exported = module.default?.default ?? module.default;
  const check = name ? (module[name] ?? exported?.[name]) : (typeof exported === "function" ? exported : module[other]);
  if (typeof check !== "function") {
    found = { missing: name || "a default export that is a function" };
  } else {
    try {
      const value = await check(output, context);
      if (typeof value === "number" && !Number.isFinite(value)) found = { odd: String(value) };
      else found = value === undefined || typeof value === "function" ? { odd: typeof value } : { value };
    } catch (error) {
      const isError = error instanceof Error;
      found = { threw: isError ? error.name : "", message: String(isError ? error.message : error) };
    }
  }
} catch (error) {
  found = { syntax: String(error?.message ?? error) };
}
process.stdout.write(JSON.stringify(found) + "\n", () => process.exit(0));
