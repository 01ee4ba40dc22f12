"""EBMTL, the default method: `method` says what it is, `server.merge` what happens in a round."""

from silodp.methods.ebmtl.choices import Choices
from silodp.methods.ebmtl.method import ebmtl

__all__ = ["Choices", "ebmtl"]
