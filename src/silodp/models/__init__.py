"""Models, and sums of their clipped gradients."""
