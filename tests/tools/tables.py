"""Tables with every column type, and rows at the edges of each."""

from __future__ import annotations

from random import Random
from typing import Any

CHARSETS = (
    "latin1",
    "utf8mb3",
    "utf8mb4",
    "ucs2",
    "utf16",
    "utf32",
    "sjis",
    "gbk",
    "big5",
    "cp1251",
    "ascii",
    "binary",
)

ALL_TYPES = """CREATE TABLE all_types (
  id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
  ti TINYINT, tu TINYINT UNSIGNED, si SMALLINT, mi MEDIUMINT, mu MEDIUMINT UNSIGNED, i INT ZEROFILL, bu BIGINT UNSIGNED,
  f FLOAT, fd FLOAT(7,3), d DOUBLE, n1 DECIMAL(10,4), n2 DECIMAL(65,30), n3 DECIMAL(9,9), n4 DECIMAL(38,0) UNSIGNED,
  b1 BIT(1), b64 BIT(64), y YEAR, dt DATE, t0 TIME, t2 TIME(2), t4 TIME(4), t6 TIME(6), dt0 DATETIME, dt3 DATETIME(3),
  dt6 DATETIME(6), ts0 TIMESTAMP NULL, ts5 TIMESTAMP(5) NULL, c CHAR(10), cb BINARY(7), v VARCHAR(300), vb VARBINARY(300),
  tb TINYBLOB, bl BLOB, mb MEDIUMBLOB, lb LONGBLOB, tt TINYTEXT, tx TEXT, mt MEDIUMTEXT, lt LONGTEXT, js JSON,
  en ENUM('one','two','it''s','tab\there'), se SET('a','b','c'), u UUID, i6 INET6, i4 INET4, g GEOMETRY, p POINT,
  vc VARCHAR(2000) COMPRESSED, bc LONGBLOB COMPRESSED, gs INT AS (ti + 1) STORED, gv INT AS (ti + 2) VIRTUAL,
  KEY (si), UNIQUE KEY (bu), KEY (v(20)), KEY (dt, t0 DESC), KEY (gv))"""

EDGES: dict[str, tuple[Any, ...]] = {
    "ti": (-128, 127, 0),
    "tu": (0, 255),
    "si": (-32768, 32767),
    "mi": (-8388608, 8388607),
    "mu": (0, 16777215),
    "i": (-2147483648, 2147483647),
    "f": (0.1, -3.4e38, 1e-30, 16777217.0),
    "fd": (1234.567, -0.001),
    "d": (0.1, -1.7e308, 5e-324, 3.141592653589793),
    "n1": ("1234.5678", "-0.0001", "999999.9999"),
    "n2": ("-12345678901234567890123456789012345.123456789012345678901234567890", "0.1"),
    "n3": ("0.123456789", "-0.999999999"),
    "n4": ("99999999999999999999999999999999999999", "0"),
    "b1": (0, 1),
    "b64": (0, 2**64 - 1, 2**63),
    "y": (1901, 2155, 0),
    "dt": ("2024-02-29", "0001-01-01", "9999-12-31", "0000-00-00"),
    "t0": ("-838:59:59", "838:59:59", "00:00:01", "-00:00:01"),
    "t2": ("-00:00:00.01", "-00:00:01.99", "12:34:56.78"),
    "t4": ("-838:59:58.0001", "00:00:00.9999"),
    "t6": ("-00:00:00.000001", "838:59:58.999999"),
    "dt0": ("2024-02-29 23:59:59", "0000-00-00 00:00:00", "9999-12-31 23:59:59"),
    "dt3": ("2024-02-29 23:59:59.999", "1000-01-01 00:00:00.001"),
    "dt6": ("2024-02-29 23:59:59.999999",),
    "ts0": ("1970-01-02 00:00:01", "2038-01-18 03:14:07", "2024-03-31 02:30:00"),
    "ts5": ("2024-02-29 23:59:59.99999", "2000-01-01 00:00:00.00001"),
    "c": ("", "abc", "tab\tx", "x" * 10, "é\\N"),
    "cb": (b"", b"\x00\x01\t\n\\", b"\xff" * 7),
    "v": ("", "\\N", "NULL", "line\nline\r\n\ttab\\back", "🦀" * 50, "trailing  "),
    "vb": (b"\x00\t\n\r\\N\x1a'\"", bytes(range(256))),
    "tb": (bytes(range(255)),),
    "bl": (b"", b"\\" * 1000, b"\x00" * 5000),
    "mb": (b"m" * 70000,),
    "lb": (bytes(range(256)) * 700,),
    "tt": ("tiny\ttext",),
    "tx": ("", "text\n" * 900),
    "mt": ("µ" * 40000,),
    "lt": ("longtext\\",),
    "js": ('{"a": [1, "two\\n", null]}',),
    "en": ("one", "it's", "tab\there", 0),
    "se": ("", "a,c", "a,b,c"),
    "u": (
        "123e4567-e89b-12d3-a456-426655440000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "01890a5d-ac96-774b-bcce-b302099a8057",
        "00000000-0000-0000-0000-000000000000",
    ),
    "i6": ("::1", "2001:db8::ff00:42:8329", "::ffff:192.0.2.1"),
    "i4": ("192.0.2.1", "0.0.0.0"),
    "vc": ("", "short", "compress me " * 150),
    "bc": (b"", b"pack" * 5000, b"\x00\x80"),
}


def _all_types(cursor: Any) -> None:
    cursor.execute(ALL_TYPES)
    rows = max(len(v) for v in EDGES.values())
    for n in range(rows + 1):
        values = {name: edge[n % len(edge)] for name, edge in EDGES.items()} if n else {}
        values["bu"] = 2**64 - 1 - n
        names = ", ".join(values)
        marks = ", ".join(["%s"] * len(values))
        sql = f"INSERT INTO all_types ({names}, g, p) VALUES ({marks}, ST_GeomFromText(%s, 4326), POINT(%s, -1.5))"
        cursor.execute(sql, [*values.values(), "POLYGON((0 0, 0 9, 9 9, 0 0))", n])
    cursor.execute("INSERT INTO all_types () VALUES ()")


def _charsets(cursor: Any) -> None:
    for name in CHARSETS:
        cursor.execute(
            f"CREATE TABLE cs_{name} (k VARCHAR(40) PRIMARY KEY, c CHAR(20), v VARCHAR(99), t TEXT) CHARACTER SET {name}"
        )
        text = (
            "plain \\ 表ソ噂\n" if name in ("utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32", "sjis") else "plain\t\\ x\n"
        )
        for n in range(30):
            cursor.execute(f"INSERT INTO cs_{name} VALUES (%s, %s, %s, %s)", (f"Key {n}", text, text * 2, text * n))


def _keys(cursor: Any) -> None:
    """Primary keys of every encoding, from which columns must come back."""
    kinds = {
        "int_desc": ("INT, b SMALLINT UNSIGNED", "a DESC, b", lambda n: (n - 50, n)),
        "binary_var": ("VARBINARY(40), b INT", "a, b DESC", lambda n: (bytes([n, 0, 255]) * (n % 12), -n)),
        "binary_fix": ("BINARY(9), b DATE", "a, b", lambda n: (bytes([n]) * 9, f"2024-01-{n % 28 + 1:02}")),
        "decimal": ("DECIMAL(20,5), b TIME(3)", "a, b", lambda n: (f"{n - 50}.00001", f"-00:00:{n % 60:02}.5")),
        "uuid": ("UUID, b TIMESTAMP(6)", "a, b", lambda n: (f"{n:08x}-0000-1000-8000-{n:012x}", "2024-01-01")),
        "enum": ("ENUM('x','y'), b BIGINT", "a, b", lambda n: ("xy"[n % 2], (n - 50) * 10**15)),
        "real": ("DOUBLE, b FLOAT", "a, b", lambda n: (n / 7 - 5, n / 3)),
        "bit": ("BIT(20), b YEAR", "a, b", lambda n: (n, 1950 + n)),
        "prefix": ("VARCHAR(200), b INT", "a(5), b", lambda n: (f"prefix {n}", n)),
    }
    for name, (columns, key, row) in kinds.items():
        cursor.execute(f"CREATE TABLE k_{name} (a {columns}, v VARCHAR(20), PRIMARY KEY ({key}), KEY (v))")
        for n in range(100):
            cursor.execute(f"INSERT INTO k_{name} VALUES (%s, %s, %s)", (*row(n), f"value {n}"))


def _shapes(cursor: Any, rng: Random) -> None:
    cursor.execute("CREATE TABLE no_key (a INT, b VARCHAR(50))")
    cursor.executemany("INSERT INTO no_key VALUES (%s, %s)", [(n % 7, f"row {n}") for n in range(2000)])
    wide = ", ".join(f"`a rather long name for column {n}` INT" for n in range(400))
    cursor.execute(f"CREATE TABLE wide (id INT PRIMARY KEY, {wide})")
    cursor.execute("INSERT INTO wide (id, `a rather long name for column 399`) VALUES (1, 7), (2, NULL)")
    cursor.execute("CREATE TABLE `odd-name $ x` (`a``b` INT PRIMARY KEY, `c d` VARCHAR(10))")
    cursor.execute("INSERT INTO `odd-name $ x` VALUES (1, 'x')")
    cursor.execute("CREATE TABLE con (a INT PRIMARY KEY)")
    cursor.execute("INSERT INTO con VALUES (1)")
    cursor.execute("CREATE SEQUENCE counter START WITH 7 INCREMENT 5 MAXVALUE 9000 CYCLE")
    cursor.execute("SELECT NEXT VALUE FOR counter")
    cursor.execute("CREATE TABLE parts (a INT PRIMARY KEY, b INT) PARTITION BY HASH (a) PARTITIONS 3")
    cursor.executemany("INSERT INTO parts VALUES (%s, %s)", [(n, -n) for n in range(500)])
    cursor.execute("CREATE TABLE numbered (a INT NOT NULL AUTO_INCREMENT, b INT, v INT AS (b + 1) VIRTUAL, KEY (a, v))")
    cursor.executemany("INSERT INTO numbered (b) VALUES (%s)", [(n,) for n in range(50)])
    cursor.execute("CREATE TABLE referenced (b INT NOT NULL, v INT AS (b + 1) VIRTUAL, UNIQUE KEY (b, v))")
    cursor.execute("INSERT INTO referenced (b) VALUES (1), (2)")
    cursor.execute("CREATE TABLE referring (c INT, FOREIGN KEY (c) REFERENCES referenced (b))")
    cursor.execute("INSERT INTO referring VALUES (1), (1), (2)")
    cursor.execute("CREATE TABLE versioned (a INT PRIMARY KEY, b INT) WITH SYSTEM VERSIONING")
    cursor.execute("INSERT INTO versioned VALUES (1, 1), (2, 2)")
    cursor.execute("CREATE TABLE renamed (a INT PRIMARY KEY, old_name INT)")
    cursor.execute("INSERT INTO renamed VALUES (1, 1)")
    cursor.execute("ALTER TABLE renamed CHANGE old_name new_name INT, ALGORITHM=INSTANT")
    cursor.execute("SET foreign_key_checks = 0")
    cursor.execute(
        "CREATE TABLE `a child` (id INT PRIMARY KEY, `up``` INT, down INT, CONSTRAINT `c-1`` x` FOREIGN KEY (`up```) "
        "REFERENCES `the parent` (`i d`) ON DELETE CASCADE ON UPDATE SET NULL, FOREIGN KEY (down) REFERENCES `a child` (id))"
    )
    cursor.execute("CREATE TABLE `the parent` (`i d` INT PRIMARY KEY)")
    cursor.execute("INSERT INTO `the parent` VALUES (1), (2)")
    cursor.execute("INSERT INTO `a child` VALUES (1, 1, 1), (2, NULL, 1), (3, 99, NULL)")
    cursor.execute("SET foreign_key_checks = 1")
    cursor.execute("CREATE TABLE big (id INT PRIMARY KEY, a INT, b VARCHAR(400), c TEXT, KEY (a), KEY (b, a))")
    for start in range(0, 20000, 500):
        rows = [
            (n * 7919 % 20011, n % 100, "x" * rng.randrange(200), "y" * (3000 if n % 500 == 0 else 20))
            for n in range(start, start + 500)
        ]
        cursor.executemany("INSERT INTO big VALUES (%s, %s, %s, %s)", rows)
    cursor.execute("DELETE FROM big WHERE a BETWEEN 20 AND 60")
    cursor.execute("UPDATE big SET b = CONCAT(b, '!'), a = a + 1 WHERE a > 80")


def create(connection: Any, rng: Random) -> list[str]:
    """Make all tables; returns their names."""
    with connection.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
        _all_types(cursor)
        _charsets(cursor)
        _keys(cursor)
        _shapes(cursor, rng)
        connection.commit()
        cursor.execute("SHOW TABLES")
        return sorted(row[0] for row in cursor.fetchall())


def contents(connection: Any, table: str, skip: frozenset[str] = frozenset()) -> list[tuple[str, ...]]:
    """All rows, every stored column told exactly, sorted."""
    with connection.cursor() as cursor:
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(
            "SELECT column_name, data_type FROM information_schema.columns WHERE table_schema = 'test' "
            "AND table_name = %s AND generation_expression IS NULL ORDER BY ordinal_position",
            (table,),
        )
        told = []
        for name, kind in cursor.fetchall():
            if name in skip:
                continue
            column = "`" + name.replace("`", "``") + "`"
            if kind in ("geometry", "point"):
                column = f"HEX(AsBinary({column}))"
            elif any(word in kind for word in ("char", "text", "blob", "binary", "json")):
                column = f"HEX(CAST({column} AS BINARY))"
            else:
                column = f"CAST({column} + 0 AS CHAR)" if kind in ("bit", "enum", "set") else f"CAST({column} AS CHAR)"
            told.append(f"IFNULL({column}, 'NULL')")
        cursor.execute(f"SELECT {', '.join(told)} FROM `{table.replace('`', '``')}`")
        rows = sorted(tuple(str(value) for value in row) for row in cursor.fetchall())
        cursor.execute(
            "SELECT table_type FROM information_schema.tables WHERE table_schema = 'test' AND table_name = %s "
            "AND table_type = 'SEQUENCE'",
            (table,),
        )
        return rows + [tuple(row) for row in cursor.fetchall()]


FOREIGN_KEYS = "(foreign keys)"
"""Stands among the names of tables."""


def foreign_keys(connection: Any) -> list[tuple[str, ...]]:
    """All constraints with their columns."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT constraint_name, k.table_name, column_name, k.referenced_table_name, referenced_column_name, "
            "delete_rule, update_rule FROM information_schema.key_column_usage k "
            "JOIN information_schema.referential_constraints USING (constraint_schema, constraint_name)"
        )
        return sorted(tuple(map(str, row)) for row in cursor.fetchall())
