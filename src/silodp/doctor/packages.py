"""What is installed, held against what silodp's own metadata ask for."""

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, metadata, requires, version

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from silodp.base.version import own_version
from silodp.doctor.findings import Finding

_US = "silodp"


def check_packages() -> Iterator[Finding]:
    """Python and the packages that nothing works without."""
    part, asked = "packages", metadata(_US)["Requires-Python"]
    running = platform.python_version()
    if SpecifierSet(asked).contains(running, prereleases=True):
        yield Finding(part, "Python", f"{running} (needs {asked})")
    else:
        remedy = f"Make an environment with Python {asked}."
        yield Finding(part, "Python", f"{running} (needs {asked})", "problem", remedy)
    yield Finding(part, _US, own_version())
    for requirement in _requirements(_US, ""):
        wrong = list(unmet(requirement))
        found = f"{_installed(requirement.name) or 'not installed'} (needs {_asked(requirement)})"
        if wrong:
            remedy = f"pip install '{requirement.name}{requirement.specifier}'"
            yield Finding(part, requirement.name, found, "problem", remedy)
        else:
            yield Finding(part, requirement.name, found)


def check_extras() -> Iterator[Finding]:
    """What can be installed besides, as the package itself announces it."""
    for extra in metadata(_US).get_all("Provides-Extra") or ():
        wrong = [name for need in _requirements(_US, extra) for name in unmet(need)]
        if wrong:
            found = f"lacks {', '.join(dict.fromkeys(wrong))}"
            yield Finding("extras", extra, found, "absent", f"pip install '{_US}[{extra}]'")
        else:
            yield Finding("extras", extra, "installed")


def unmet(requirement: Requirement) -> Iterator[str]:
    """What of a requirement is not there, extras of the package that is asked for included."""
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
    """What a package asks for, always ("") or for one of its extras alone."""
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


def _asked(requirement: Requirement) -> str:
    return str(requirement.specifier) or "any"
