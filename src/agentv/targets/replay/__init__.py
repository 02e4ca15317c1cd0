"""Record responses, replay them, and cache them."""
