module.exports = () => "A good {{rubric}} for {{output}}";
module.exports.chat = (...values) => [{ role: "user", content: `REPLY<[["score": ${values.length}.5]]> {{rubric}}` }];
