"""The claims of the paper, recomputed from the numbers in docs/results.

    python -m benchmarks.results                     # do the page and the numbers agree?
    python -m benchmarks.results --write             # writes the numbers into the page
    python -m benchmarks.results --take runs/results # takes over pictures and numbers first

A claim is a function: it reads CSV files and returns a verdict with the numbers that it rests on.
docs/results.md has a place for each between `<!-- claim: NAME -->` and `<!-- end -->`.
"""

import argparse
import re
import shutil
from pathlib import Path

from benchmarks.results import additions, images, queries, school, vehicle
from benchmarks.results.numbers import CLAIMS, RESULTS

PAGE = RESULTS.parent / "results.md"
SUBJECTS = (school, vehicle, images, queries, additions)  # importing them makes the claims known


def with_numbers(page: str) -> str:
    """The page with every claim computed anew."""
    named = re.findall(r"<!-- claim: (\S+) -->", page)
    if sorted(named) != sorted(CLAIMS):
        odd = ", ".join(sorted(set(named) ^ set(CLAIMS)))
        raise SystemExit(f"{PAGE.name} and the claims do not name the same: {odd}")

    def computed(place: re.Match[str]) -> str:
        return f"{place[1]}{CLAIMS[place[2]]()}\n{place[3]}"

    # Lines up to the end; none of them is another mark.
    inside = r"(<!-- claim: (\S+) -->\n)(?:(?!<!-- ).*\n)*(<!-- end -->)"
    return re.sub(inside, computed, page)


def take_over(folder: Path) -> None:
    """Pictures and numbers of `silodp figure all`, without tables and PDF files."""
    RESULTS.mkdir(exist_ok=True)
    for path in sorted((*folder.glob("*/*.png"), *folder.glob("*/*.csv"))):
        shutil.copyfile(path, RESULTS / path.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="write the numbers into the page")
    parser.add_argument("--take", type=Path, help="folder of `silodp figure all` to take over")
    asked = parser.parse_args()
    if asked.take:
        take_over(asked.take)
    page = PAGE.read_text(encoding="utf-8")
    fresh = with_numbers(page)
    if asked.write or asked.take:
        PAGE.write_text(fresh, encoding="utf-8")
        print(f"{len(CLAIMS)} places of {PAGE.name} written")
    elif page != fresh:
        raise SystemExit(f"{PAGE.name} says other numbers than docs/results: use --write")
    else:
        print(f"{PAGE.name} says what docs/results says, in {len(CLAIMS)} places")


if __name__ == "__main__":
    main()
