export default (output, context) => output.includes(context.vars.text);
export const named = async (output) => ({ pass: output.length > 2, score: 1, reason: "long enough" });
