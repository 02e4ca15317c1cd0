"""An assertion that reads an object."""


def get_assert(output, context):
    return output["a"] == 1
