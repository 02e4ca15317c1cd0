"""Read settings into typed structs, and report problems in them."""
