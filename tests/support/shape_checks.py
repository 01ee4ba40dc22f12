"""Shapes in types, checked in every call while tests run.

`tests/conftest.py` names the packages whose types say shapes.
"""

from beartype import BeartypeConf, beartype

# A whole number will do where a type says float, as everywhere in Python.
checker = beartype(conf=BeartypeConf(is_pep484_tower=True))
