def get_assert(output, context):
    return "World"
