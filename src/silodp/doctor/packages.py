"""Checks of installed packages against the requirements in silodp's metadata."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from silodp.base.version import own_version
from silodp.doctor.findings import Finding

_US = "silodp"


def check_packages() -> Iterator[Finding]:
    """Checks Python and the required packages."""
    part, required = "packages", metadata(_US)["Requires-Python"]
    running = platform.python_version()
    if SpecifierSet(required).contains(running, prereleases=True):
        yield Finding(part, "Python", f"{running} (needs {required})")
    else:
        remedy = f"Make an environment with Python {required}."
        yield Finding(part, "Python", f"{running} (needs {required})", "problem", remedy)
    yield Finding(part, _US, own_version())
    for requirement in _requirements(_US, ""):
        wrong = list(unmet(requirement))
        found = (
            f"{_installed(requirement.name) or 'not installed'} (needs {_specifier(requirement)})"
        )
        if wrong:
            remedy = f"pip install '{requirement.name}{requirement.specifier}'"
            yield Finding(part, requirement.name, found, "problem", remedy)
        else:
            yield Finding(part, requirement.name, found)


def check_extras() -> Iterator[Finding]:
    """Checks the extras that the package declares."""
    for extra in metadata(_US).get_all("Provides-Extra") or ():
        wrong = [name for need in _requirements(_US, extra) for name in unmet(need)]
        if wrong:
            found = f"lacks {', '.join(dict.fromkeys(wrong))}"
            yield Finding("extras", extra, found, "absent", f"pip install '{_US}[{extra}]'")
        else:
            yield Finding("extras", extra, "installed")


def unmet(requirement: Requirement) -> Iterator[str]:
    """What is missing of a requirement, including the extras that it names."""
    found = _installed(requirement.name)
    if found is None:
        yield requirement.name
        return
    if not requirement.specifier.contains(found, prereleases=True):
        yield f"{requirement.name}{requirement.specifier} ({found} is installed)"
    for extra in sorted(requirement.extras):
        for need in _requirements(requirement.name, extra):
            yield from unmet(need)


def _requirements(package: str, extra: str) -> Iterator[Requirement]:
    """Requirements of a package, always ("") or for one of its extras alone."""
    for text in requires(package) or ():
        requirement = Requirement(text)
        marker = requirement.marker
        always = marker is None or marker.evaluate({"extra": ""})
        wanted = marker is None or marker.evaluate({"extra": extra})
        if wanted and always == (not extra):
            yield requirement


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _specifier(requirement: Requirement) -> str:
    return str(requirement.specifier) or "any"
