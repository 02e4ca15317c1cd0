module.exports = (scores, context) => ({ pass: false, score: 0.1, reason: "never" });
module.exports.lenient = (scores, context) => ({ pass: true, score: 0.9, reason: "always" });
module.exports.count = (scores, context) => ({ pass: true, score: context.componentResults.length / 10, reason: "" });
module.exports.sum = (scores) => ({ pass: true, score: Object.values(scores).reduce((a, b) => a + b, 0) / 10, reason: "" });
module.exports.types = (scores, { componentResults }) => ({
  pass: componentResults.every((result) => result.pass),
  score: componentResults.filter((result) => result.assertion.type === "contains").length / 10,
  reason: "",
});
module.exports.passes = (scores, { componentResults }) => {
  const passed = componentResults.filter((result) => result.pass).length;
  return { pass: passed > 1, score: passed / 10, reason: "" };
};
module.exports.limit = (scores, context) => ({ pass: true, score: context.threshold ?? 0.05, reason: "" });
module.exports.wide = () => ({ pass: true, score: 3, reason: "" });
module.exports.throws = () => {
  throw new Error("no");
};
module.exports.odd = () => 0.5;
