module.exports = {
  prompt: async ({ vars, config }) => `javascript: ${vars.word} ${config.mark ?? "unmarked"}`,
  shout: (output, context) => output.toUpperCase() + context.vars.tone,
  nothing: () => null,
  tests: [{ description: "exported", vars: { word: "list", tone: "x" }, assert: [{ type: "contains", value: "list" }] }],
};
