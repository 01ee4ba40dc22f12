"""Texts as the word pieces that BERT reads (uncased), by a list of pieces.

Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"
(2019). A text becomes lower case without accents, is parted at blanks, punctuation and ideographs,
and each word is cut into the longest pieces that the list has.
"""

import unicodedata
from collections.abc import Iterable

import numpy as np

_LONGEST_WORD = 100
_IDEOGRAPHS = (
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


class WordPieces:
    """Pieces by their number, which is their place in the list."""

    def __init__(self, pieces: Iterable[str]):
        self._number = {piece: number for number, piece in enumerate(pieces)}
        self._first, self._last, self._unknown = (
            self._number[mark] for mark in ("[CLS]", "[SEP]", "[UNK]")
        )

    def numbers(self, text: str, most: int) -> np.ndarray:
        """The numbers of a text's pieces, with both marks at most `most`: int64 [pieces]."""
        found = [self._first]
        for word in _words(text):
            found += self._pieces(word)
            if len(found) >= most - 1:
                break
        return np.array([*found[: most - 1], self._last], np.int64)

    def _pieces(self, word: str) -> list[int]:
        if len(word) > _LONGEST_WORD:
            return [self._unknown]
        found, start = [], 0
        while start < len(word):
            before = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if before + word[start:end] in self._number), None)
            if end is None:
                return [self._unknown]
            found.append(self._number[before + word[start:end]])
            start = end
        return found


def _words(text: str) -> list[str]:
    """Words, and each mark of punctuation and ideograph by itself."""
    spaced = []
    for sign in text:
        kind = unicodedata.category(sign)
        if sign in "\t\n\r" or kind == "Zs":
            spaced.append(" ")
        elif sign in "\0\ufffd" or kind.startswith("C"):
            continue
        elif any(low <= ord(sign) <= high for low, high in _IDEOGRAPHS):
            spaced.append(f" {sign} ")
        else:
            spaced.append(sign)
    plain = unicodedata.normalize("NFD", "".join(spaced).lower())
    parted = (
        f" {sign} " if _is_punctuation(sign) else sign
        for sign in plain
        if unicodedata.category(sign) != "Mn"
    )
    return "".join(parted).split()


def _is_punctuation(sign: str) -> bool:
    # All of ASCII that is no letter, digit or blank counts, such as $ and ^.
    other = sign.isascii() and sign.isprintable() and not sign.isalnum() and sign != " "
    return other or unicodedata.category(sign).startswith("P")
