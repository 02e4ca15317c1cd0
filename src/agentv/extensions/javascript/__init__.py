"""Score and transform answers with JavaScript."""

_JAVASCRIPT = "agentv.extensions.javascript"

ROWS = {
    "agentv.evaluators": {
        "javascript": f"{_JAVASCRIPT}.javascript:JavaScriptCheck",
    },
    "agentv.services": {
        "javascript-engine": f"{_JAVASCRIPT}.quickjs_engine:run_code",
        "javascript-files": f"{_JAVASCRIPT}.javascript_files:call_file",
    },
}
