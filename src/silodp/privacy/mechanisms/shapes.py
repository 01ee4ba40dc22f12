"""Shapes that the types of mechanisms and of methods name in common."""

from jaxtyping import Array, Float, Integer, PyTree, Shaped

# A pytree of arrays of any shape: the model's.
Params = PyTree
# Models along a leading axis, from which one is selected.
Candidates = PyTree[Shaped[Array, "candidates ..."]]
# Numbers that are traced where they differ between the runs of one program.
Number = Float[Array, ""] | float
WholeNumber = Integer[Array, ""] | int
