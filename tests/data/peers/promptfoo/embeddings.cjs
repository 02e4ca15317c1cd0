// Embeddings of texts that are numbers with commas.
module.exports = class {
  id() { return "vectors"; }
  async callApi(prompt) { return { output: prompt }; }
  async callEmbeddingApi(text) { return { embedding: text.split(",").map(Number) }; }
};
