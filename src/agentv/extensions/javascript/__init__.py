"""Score and transform answers with JavaScript, and get them from providers written in it."""

_JAVASCRIPT = "agentv.extensions.javascript"

ROWS = {
    "agentv.evaluators": {
        "javascript": f"{_JAVASCRIPT}.javascript:JavaScriptCheck",
    },
    "agentv.targets": {
        "javascript": f"{_JAVASCRIPT}.javascript_target:JavaScriptTarget | a promptfoo provider in a JavaScript file",
    },
    "agentv.services": {
        "javascript-engine": f"{_JAVASCRIPT}.javascript_engine:run_code",
        "javascript-files": f"{_JAVASCRIPT}.javascript_provider:call_file",
        "javascript-program": f"{_JAVASCRIPT}.javascript_provider:check_program",
    },
}
