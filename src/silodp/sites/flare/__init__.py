"""The adapter to NVIDIA FLARE, which carries messages between sites."""

from importlib.util import find_spec

from silodp.base.errors import SilodpError


def require_flare() -> None:
    """Refuses with the remedy if NVIDIA FLARE is not installed."""
    if find_spec("nvflare") is None:
        raise SilodpError(
            "NVIDIA FLARE, which carries messages between sites, is not installed: "
            "pip install 'silodp[sites]'."
        )
