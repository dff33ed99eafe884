"""Column types and the literals that are interesting for them: boundaries, ties of collations, wrong values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

Pool = Callable[[Random], list[str]]


def quote(text: str) -> str:
    """A string literal."""
    out = text.replace("\\", "\\\\").replace("'", "''").replace("\0", "\\0").replace("\n", "\\n")
    return f"'{out}'"


def hexed(data: bytes) -> str:
    """A binary literal."""
    return f"x'{data.hex()}'"


@dataclass(frozen=True)
class ColType:
    """One column type: its SQL, its values, and what an index on it needs."""

    sql: str
    pool: Pool
    bad: tuple[str, ...] = ()
    """Values the server refuses or cuts; used now and then, never in WHERE."""
    prefix: int = 0
    """Index prefix length that a key needs (0: the whole column can be a key)."""
    like: bool = False
    sums: bool = False
    """SUM() over it is exact, so that it does not depend on the order of rows."""
    keyable: bool = True
    patterns: bool = True
    """LIKE is among the conditions."""


def _ints(bits: int, unsigned: bool) -> Pool:
    low = 0 if unsigned else -(1 << (bits - 1))
    high = (1 << bits) - 1 if unsigned else (1 << (bits - 1)) - 1

    def pool(rng: Random) -> list[str]:
        near = [low, low + 1, high, high - 1, 0, 1, 2, 127, 128, 255, 256, 65535, 65536]
        values = {v for v in near if low <= v <= high}
        values |= {rng.randint(low, high) for _ in range(8)}
        values |= {max(low, rng.randint(-40, 40)) for _ in range(14)}
        return [str(v) for v in sorted(values)]

    return pool


def integer(name: str, bits: int, unsigned: bool = False, extra: str = "") -> ColType:
    """TINYINT ... BIGINT."""
    sql = f"{name}{' UNSIGNED' if unsigned else ''}{' ' + extra if extra else ''}"
    bad = ("99999999999999999999", "-99999999999999999999", "'abc'", "'12x'", "1.5")
    return ColType(sql, _ints(bits, unsigned), bad, sums=bits < 64)


def decimal(precision: int, scale: int, unsigned: bool = False) -> ColType:
    """DECIMAL(p,s)."""

    def pool(rng: Random) -> list[str]:
        whole = precision - scale
        out = {"0", "1", "0." + "0" * max(scale - 1, 0) + "1" if scale else "1"}
        out.add(("9" * whole or "0") + ("." + "9" * scale if scale else ""))
        for _ in range(16):
            digits = str(rng.randint(0, 10 ** rng.randint(1, max(whole, 1)) - 1)) if whole else "0"
            tail = "".join(rng.choice("0123456789") for _ in range(rng.randint(0, scale)))
            out.add(digits + ("." + tail if tail else ""))
        values = sorted(out)
        return values if unsigned else values + ["-" + v for v in values if v.strip("0.")]

    sql = f"DECIMAL({precision},{scale}){' UNSIGNED' if unsigned else ''}"
    return ColType(sql, pool, ("1e70", "'x'", "'1.2.3'"), sums=True)


def floating(sql: str) -> ColType:
    """FLOAT and DOUBLE, values that are exact in binary, and some that are not."""

    def pool(rng: Random) -> list[str]:
        out = ["0", "-0.0", "1", "-1", "0.5", "-0.25", "1e10", "-1e10", "1e-20", "3.4e37", "0.1", "1.1", "-1.1"]
        return out + [f"{rng.uniform(-1000, 1000):.3f}" for _ in range(10)]

    return ColType(sql, pool, ("'abc'", "1e39", "'1e400'"))


def bits(width: int) -> ColType:
    """BIT(n)."""

    def pool(rng: Random) -> list[str]:
        top = (1 << width) - 1
        values = {0, 1, top, top >> 1} | {rng.randint(0, top) for _ in range(12)}
        return [f"b'{v:b}'" for v in sorted(values)]

    return ColType(f"BIT({width})", pool, ("b'" + "1" * 65 + "'",) if width < 64 else ())


ALPHABETS = {
    "latin": [*"aAbBcCeEéÉèäÄöüßsåÅøzZñniIıy \t\x01_%01-", "ch", "CH", "ll", "LL", "ae", "AE", "oe", "ue", "ss", "SS"],
    "ascii": [*"aAbBcCzZ019_%-", " ", "  ", "\t", "\x01"],
    "cyrillic": [*"абвгАБВГёЁжЖьЪ", "a", "B", " ", "  ", "\t"],
    "japanese": [*"あアいイうかがカガ日本語ー漢字", "ｱ", "ｶﾞ", "a", "A", " ", "\t", "ﾞ"],
    "chinese": [*"中文国國一二三人大学學", "a", "A", " ", "  ", "，"],
    "thai": [*"กขคงเแโไะาิีึืุู่้ๆ", "เก", "แก", "ไก่", "a", "A", " "],
    "hebrew": [*"אבגדהוזךכםמ", "a", "A", " "],
    "greek": [*"αάΑΆβΒσςΣωώΩ", "a", "A", " "],
    "korean": [*"가나다라한국어", "a", "A", " "],
    "emoji": [*"aAéß中あж😀😁🀄", "e\u0301", "\u00ad", " ", "\u200b", "ﬀ", "ff", "Ⅳ", "IV"],
}


def words(alphabet: str, longest: int, count: int = 34) -> Pool:
    """Strings over an alphabet whose letters tie, expand and contract in collations."""

    def pool(rng: Random) -> list[str]:
        letters = ALPHABETS[alphabet]
        out = {"", letters[0], letters[1], letters[0] + " ", letters[0] + "  ", letters[0] + "\t"}
        for _ in range(count):
            text = "".join(rng.choice(letters) for _ in range(rng.choice((1, 1, 2, 2, 3, 4, 6))))
            out.add(text)
            out.add(text + " " * rng.randint(0, 2))
        if longest >= 20:
            stem = "".join(rng.choice(letters) for _ in range(8))
            out |= {stem + letters[0] * rng.randint(1, longest) for _ in range(4)}
        return [quote(w[:longest]) for w in sorted(out)]

    return pool


def text(sql: str, alphabet: str = "latin", longest: int = 20, prefix: int = 0) -> ColType:
    """CHAR, VARCHAR and the TEXT family."""
    bad = (quote("😀x"), quote("q" * 70000)) if not prefix else (quote("中😀"),)
    return ColType(sql, words(alphabet, longest), bad, prefix=prefix, like=True)


def binary(sql: str, longest: int, prefix: int = 0) -> ColType:
    """BINARY, VARBINARY and the BLOB family."""

    def pool(rng: Random) -> list[str]:
        fixed = [b"", b"\0", b"\0\0", b"a", b"a\0", b"a ", b"A", b"\xff", b"\xff\xff", b"\x80", b"a\0b", b"\0a"]
        made = [bytes(rng.choice(b"\0\x01aA \xff\x7f") for _ in range(rng.randint(1, longest))) for _ in range(20)]
        return [hexed(v[:longest]) for v in fixed + made]

    return ColType(sql, pool, prefix=prefix, like=True)


def large(sql: str, sizes: tuple[int, ...], is_text: bool, prefix: int = 20) -> ColType:
    """TEXT and BLOB values around the sizes where storage changes its form."""

    def pool(rng: Random) -> list[str]:
        out = ["''", "'a'", "'a '", "'A'"]
        for size in sizes:
            seed = rng.choice("abcXYZ")
            near = max(1, size + rng.randint(-2, 2))
            tail = quote(str(rng.randint(0, 99)))
            filler = "'xyzé'" if is_text and rng.random() < 0.3 else f"'{seed}q'"
            out.append(f"CONCAT(REPEAT({filler},{near // 4}),{tail})")
        return out

    return ColType(sql, pool, prefix=prefix)


def temporal(kind: str, digits: int = 0, extra: str = "") -> ColType:
    """DATE, TIME, DATETIME, TIMESTAMP with fractions."""

    def fraction(rng: Random) -> str:
        if not digits or rng.random() < 0.3:
            return ""
        return "." + "".join(rng.choice("0159") for _ in range(rng.randint(1, digits)))

    def one(rng: Random) -> str:
        early, late = (1971, 2037) if kind == "TIMESTAMP" else (1000, 9999)
        year = rng.choice((rng.randint(early, late), 2020, 2021))
        day = f"{year:04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
        clock = f"{rng.randint(0, 23):02d}:{rng.choice((0, 1, 30, 59)):02d}:{rng.choice((0, 1, 59)):02d}"
        if kind == "DATE":
            return day
        if kind == "TIME":
            sign = rng.choice(("", "-"))
            return f"{sign}{rng.choice((0, 1, 12, 23, 100, 837)):02d}{clock[2:]}{fraction(rng)}"
        return f"{day} {clock}{fraction(rng)}"

    def pool(rng: Random) -> list[str]:
        out = {one(rng) for _ in range(26)}
        if kind == "DATE":
            out |= {"1000-01-01", "9999-12-31", "2020-02-29"}
        if kind == "TIME":
            out |= {"00:00:00", "-00:00:01", "838:59:59", "-838:59:59"}
        return [quote(v) for v in sorted(out)]

    sql = kind + (f"({digits})" if digits else "") + (f" {extra}" if extra else "")
    return ColType(sql, pool, ("'0000-00-00'", "'2021-02-30'", "'garbage'", "'2020-13-01 00:00:00'", "'900:00:00'"))


def year() -> ColType:
    """YEAR."""

    def pool(rng: Random) -> list[str]:
        return ["0", "1901", "2155", "1970", "2000", "1", "99", "70"] + [
            str(rng.randint(1901, 2155)) for _ in range(10)
        ]

    return ColType("YEAR", pool, ("1800", "'abc'", "2200"))


def enum(collation: str = "") -> ColType:
    """ENUM: sorts by index, compares by name."""
    names = ["b", "a", "Zeta", "é", "x y", "c1", "c2", ""]
    listed = ",".join(quote(n) for n in names)
    return ColType(f"ENUM({listed}){collation}", lambda _: [quote(n) for n in names], ("'nope'", "99"), like=True)


def set_of() -> ColType:
    """SET with 10 members."""
    names = [f"m{i}" for i in range(10)]

    def pool(rng: Random) -> list[str]:
        return ["''"] + [quote(",".join(sorted(rng.sample(names, rng.randint(1, 4))))) for _ in range(16)]

    return ColType(f"SET({','.join(quote(n) for n in names)})", pool, ("'m1,nope'",))


def json() -> ColType:
    """JSON: LONGTEXT with a check."""

    def pool(rng: Random) -> list[str]:
        out = ["{}", "[]", "null", "1", '"s"', '{"a": null}', '{"k": "é中"}']
        out += [f'{{"a": {rng.randint(-9, 9)}, "b": ["x", {rng.randint(0, 99)}]}}' for _ in range(12)]
        return [quote(v) for v in out]

    return ColType("JSON", pool, ("'{broken'",), prefix=30)


def inet6() -> ColType:
    """INET6."""

    def pool(rng: Random) -> list[str]:
        out = ["::", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::ffff:192.0.2.1", "fe80::1", "2001:db8::"]
        return [quote(v) for v in out + [f"2001:db8::{rng.randint(0, 65535):x}" for _ in range(14)]]

    return ColType("INET6", pool, ("'not an address'",))


def inet4() -> ColType:
    """INET4."""

    def pool(rng: Random) -> list[str]:
        made = [".".join(str(rng.choice((0, 1, 10, 127, 192, 255))) for _ in range(4)) for _ in range(16)]
        return [quote(v) for v in ["0.0.0.0", "255.255.255.255", *made]]

    return ColType("INET4", pool, ("'1.2.3'",))


def uuid() -> ColType:
    """UUID: compares by its time part first for version 1."""

    def pool(rng: Random) -> list[str]:
        out = ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"]
        for _ in range(18):
            digits = f"{rng.getrandbits(128):032x}"
            version = rng.choice("1467")
            variant = rng.choice("89ab7")
            out.append(f"{digits[:8]}-{digits[8:12]}-{version}{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}")
        return [quote(v) for v in out]

    return ColType("UUID", pool, ("'xx'",))
