"""Render templates of Nunjucks, with JavaScript's meaning of values, operators and methods."""
