// The signs of HTML that promptfoo counts. Two are enough, and some count twice.
const text = typeof output === "string" ? output : JSON.stringify(output);
const elements = "html|head|body|div|span|p|a|img|h[1-6]|ul|ol|li|table|tr|td|th|form|input|button|script|style|link|meta|br|hr";
const signs = [
  /<[a-z][a-z0-9-]*(?:\s[^>]*)?>/i.test(text),
  /<\/[a-z][a-z0-9-]*\s*>/i.test(text),
  /<[a-z][a-z0-9-]*(?:\s[^>]*)?\/>/i.test(text),
  /&(?:[a-zA-Z]+|#[0-9]+|#x[0-9a-fA-F]+);/.test(text),
  /<!--[^-]*(?:-[^-]+)*-->/.test(text),
  /\s[a-z-]+=\s*["'][^"']*["']/i.test(text),
];
const isCertain = /<!DOCTYPE\s+html/i.test(text) || new RegExp(`<(?:${elements})\\b`, "i").test(text);
return text.length <= 10 * 1024 * 1024 && (isCertain || signs.filter(Boolean).length >= 2);
