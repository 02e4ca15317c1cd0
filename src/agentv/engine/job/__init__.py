"""One job: build the request, call the target, score the answer, make the record."""
