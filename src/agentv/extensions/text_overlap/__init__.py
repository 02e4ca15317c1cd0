"""BLEU and ROUGE: the overlap of words and phrases with a reference."""

_OVERLAP = "agentv.extensions.text_overlap.text_overlap"

ROWS = {
    "agentv.evaluators": {
        "bleu": f"{_OVERLAP}:Bleu",
        "rouge": f"{_OVERLAP}:Rouge",
    },
}
