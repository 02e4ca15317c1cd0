module.exports = async (output, context) => ({ pass: output.length > 100, score: 0.7, reason: "n" });
module.exports.named = (output, context) => output.length >= context.config.least;
