"""Numbers as options take them: click's ranges, with words for what is none of theirs."""

from __future__ import annotations

from typing import Any

import click

from agentv.ranges import Range


class Whole(click.IntRange):
    """A whole number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return Range(self.min, self.max, whole=True).read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Real(click.FloatRange):
    """A number in a range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return Range(self.min, self.max, above=self.min_open, below=self.max_open).read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


AT_LEAST_0 = Whole(min=0)
AT_LEAST_1 = Whole(min=1)
POSITIVE = Real(min=0, min_open=True)
SHARE = Real(0, 1)
