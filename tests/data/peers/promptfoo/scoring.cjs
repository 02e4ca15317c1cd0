module.exports = (scores, context) => ({ pass: false, score: 0.1, reason: "never" });
module.exports.lenient = (scores, context) => ({ pass: true, score: 0.9, reason: "always" });
