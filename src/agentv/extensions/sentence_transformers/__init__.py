"""Embeddings from local models, using the package sentence-transformers."""

ROWS = {
    "agentv.targets": {
        "sentence-transformers": "agentv.extensions.sentence_transformers.sentence_transformers:SentenceTransformers",
    },
}
