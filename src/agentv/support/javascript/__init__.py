"""Values of JavaScript, for the templates of other tools."""
