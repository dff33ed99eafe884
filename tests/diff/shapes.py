"""The tables of the differential test: every column type, many collations, every kind of key and table option."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from diff import values as v
from diff.model import Column, Key, Shape, fill_pools
from diff.values import ColType

INT = v.integer("INT", 32)
ID = ColType("INT", lambda _: [str(n) for n in range(1, 60)], ("'x'",))

COLLATIONS = [
    # charset, collation, alphabet
    ("utf8mb4", "utf8mb4_general_ci", "latin"),
    ("utf8mb4", "utf8mb4_unicode_ci", "emoji"),
    ("utf8mb4", "utf8mb4_bin", "emoji"),
    ("utf8mb4", "utf8mb4_unicode_nopad_ci", "latin"),
    ("utf8mb4", "utf8mb4_nopad_bin", "latin"),
    ("utf8mb4", "utf8mb4_general_nopad_ci", "emoji"),
    ("utf8mb4", "utf8mb4_swedish_ci", "latin"),
    ("utf8mb4", "utf8mb4_german2_ci", "latin"),
    ("utf8mb4", "utf8mb4_spanish2_ci", "latin"),
    ("utf8mb4", "utf8mb4_turkish_ci", "latin"),
    ("utf8mb4", "utf8mb4_unicode_520_ci", "thai"),
    ("utf8mb4", "utf8mb4_thai_520_w2", "thai"),
    ("utf8mb4", "uca1400_ai_ci", "emoji"),
    ("utf8mb4", "uca1400_nopad_as_cs", "latin"),
    ("utf8mb3", "utf8mb3_general_ci", "greek"),
    ("utf8mb3", "utf8mb3_czech_ci", "latin"),
    ("latin1", "latin1_swedish_ci", "latin"),
    ("latin1", "latin1_german1_ci", "latin"),
    ("latin1", "latin1_german2_ci", "latin"),
    ("latin1", "latin1_general_cs", "latin"),
    ("latin1", "latin1_bin", "latin"),
    ("latin1", "latin1_swedish_nopad_ci", "latin"),
    ("ascii", "ascii_general_ci", "ascii"),
    ("ucs2", "ucs2_general_ci", "cyrillic"),
    ("ucs2", "ucs2_unicode_ci", "japanese"),
    ("utf16", "utf16_unicode_ci", "emoji"),
    ("utf16", "utf16_bin", "emoji"),
    ("utf16le", "utf16le_general_ci", "latin"),
    ("utf32", "utf32_unicode_ci", "emoji"),
    ("cp1251", "cp1251_general_ci", "cyrillic"),
    ("cp1251", "cp1251_bulgarian_ci", "cyrillic"),
    ("koi8r", "koi8r_general_ci", "cyrillic"),
    ("sjis", "sjis_japanese_ci", "japanese"),
    ("cp932", "cp932_japanese_ci", "japanese"),
    ("ujis", "ujis_japanese_ci", "japanese"),
    ("eucjpms", "eucjpms_japanese_ci", "japanese"),
    ("big5", "big5_chinese_ci", "chinese"),
    ("gbk", "gbk_chinese_ci", "chinese"),
    ("gb2312", "gb2312_chinese_ci", "chinese"),
    ("euckr", "euckr_korean_ci", "korean"),
    # tis620_thai_ci is refused in keys: see scenarios.py.
    ("hebrew", "hebrew_general_ci", "hebrew"),
    ("greek", "greek_general_ci", "greek"),
    ("latin2", "latin2_czech_cs", "latin"),
    ("latin2", "latin2_general_ci", "latin"),
    ("cp1250", "cp1250_czech_cs", "latin"),
    ("cp1257", "cp1257_lithuanian_ci", "latin"),
    ("latin5", "latin5_turkish_ci", "latin"),
]


def _table(name: str, types: list[ColType], **keywords: object) -> Shape:
    """id INT PRIMARY KEY, then c1, c2, ..., each with a key if its type can have one."""
    columns = [Column("id", ID, True)]
    keys = [Key("PRIMARY", ["id"], True)]
    for number, kind in enumerate(types, 1):
        column = Column(f"c{number}", kind)
        columns.append(column)
        if kind.keyable:
            keys.append(Key(f"k{number}", [column.name], prefixes=_prefix(column)))
    return Shape(name, columns, keys, **keywords)  # type: ignore[arg-type]


def _prefix(*columns: Column) -> dict[str, int]:
    return {c.name: c.type.prefix for c in columns if c.type.prefix}


def _type_shapes() -> list[Shape]:
    tiny = ("TINYINT", 8), ("SMALLINT", 16), ("MEDIUMINT", 24), ("INT", 32), ("BIGINT", 64)
    temporal = v.temporal
    wide = _table("wide", [INT] * 90)
    wide.keys = wide.keys[:20]
    return [
        _table("ints_signed", [v.integer(n, b) for n, b in tiny]),
        _table("ints_unsigned", [v.integer(n, b, True) for n, b in tiny] + [v.integer("INT(6)", 32, True, "ZEROFILL")]),
        _table("decimals", [v.decimal(5, 2), v.decimal(65, 30), v.decimal(10, 0, True), v.decimal(18, 18)]),
        _table(
            "floats", [v.floating("FLOAT"), v.floating("DOUBLE"), v.floating("FLOAT(7,3)"), v.floating("DOUBLE(12,2)")]
        ),
        _table("bits", [v.bits(1), v.bits(7), v.bits(33), v.bits(64)]),
        _table("binaries", [v.binary("BINARY(6)", 6), v.binary("VARBINARY(20)", 20), v.binary("VARBINARY(300)", 40)]),
        _table("enums", [v.enum(), v.enum(" COLLATE utf8mb4_bin"), v.set_of()], options="DEFAULT CHARSET=utf8mb4"),
        _table("dates", [temporal("DATE"), temporal("TIME"), temporal("DATETIME"), v.year()]),
        _table(
            "fractions", [temporal("TIME", 6), temporal("DATETIME", 3), temporal("DATETIME", 6), temporal("TIME", 1)]
        ),
        _table(
            "timestamps",
            [temporal("TIMESTAMP", 0, "NULL"), temporal("TIMESTAMP", 6, "NULL"), temporal("TIMESTAMP", 2, "NULL")],
        ),
        _table("addresses", [v.inet6(), v.uuid(), v.inet4()]),
        _table("json", [v.json(), v.json(), INT], options="DEFAULT CHARSET=utf8mb4"),
        wide,
    ]


def _long_shapes() -> list[Shape]:
    texts = [v.large("TINYTEXT", (20, 200, 250), True), v.large("TEXT", (700, 8000, 65000), True)]
    more = [v.large("MEDIUMTEXT", (100, 20000, 300000), True), v.large("LONGTEXT", (100, 70000, 900000), True)]
    blobs = [v.large("TINYBLOB", (20, 250), False), v.large("BLOB", (760, 8100, 16300, 65000), False)]
    big = [v.large("MEDIUMBLOB", (30, 33000, 400000), False), v.large("LONGBLOB", (10, 16000, 3000000), False)]
    few = {"options": "DEFAULT CHARSET=utf8mb4", "weight": 0.25, "fill": 20}
    squeezed = [v.text("VARCHAR(400) COMPRESSED", "latin", 200), v.text("TEXT COMPRESSED", "latin", 200)]
    rows = _table(
        "long_rows", [v.text("VARCHAR(1500)", "emoji", 1400)] * 4, options="DEFAULT CHARSET=utf8mb4", weight=0.5
    )
    for key in rows.keys[1:]:
        key.prefixes = {key.parts[0]: 100}
    for kind in squeezed:
        object.__setattr__(kind, "keyable", False)
    return [
        _table("texts", texts + more, **few),
        _table("blobs", blobs + big, **few),
        _table("compressed_columns", squeezed, options="DEFAULT CHARSET=utf8mb4"),
        rows,
    ]


def _collation_shapes() -> list[Shape]:
    shapes = []
    for number, (charset, collation, alphabet) in enumerate(COLLATIONS):
        options = f"DEFAULT CHARSET={charset} COLLATE={collation}"
        short, long = v.text("VARCHAR(20)", alphabet), v.text("VARCHAR(60)", alphabet, 50)
        fixed, body = v.text("CHAR(8)", alphabet, 8), v.text("TEXT", alphabet, 200, prefix=10)
        if charset in ("utf16", "utf16le", "utf32"):  # the server's ranges for LIKE miss characters beyond U+FFFF there
            short, long, fixed, body = (replace(k, patterns=False) for k in (short, long, fixed, body))
        a, b, c, d = Column("a", short, True), Column("b", fixed), Column("c", long), Column("d", body)
        identity = Column("id", ID, True)
        variants = [
            [
                Key("PRIMARY", ["id"], True),
                Key("ua", ["a"], True),
                Key("kb", ["b"]),
                Key("kc", ["c"], prefixes={"c": 4}),
            ],
            [
                Key("PRIMARY", ["a"], True),
                Key("uid", ["id"], True),
                Key("kbc", ["b", "c"]),
                Key("kd", ["d"], prefixes={"d": 10}),
            ],
            [
                Key("PRIMARY", ["b", "id"], True),
                Key("uid", ["id"], True),
                Key("ua", ["a"], True, prefixes={"a": 3}),
                Key("kca", ["c", "a"]),
            ],
            [
                Key("PRIMARY", ["id"], True),
                Key("ubc", ["b", "c"], True),
                Key("ka", ["a"], descending={"a"}),
                Key("ud", ["d"], True, {"d": 6}),
            ],
        ]
        keys = variants[number % 4]
        if keys[0].parts[0] == "b":
            b.not_null = True
        shapes.append(Shape(f"coll_{collation}", [identity, a, b, c, d], keys, options))
    shapes.append(_mixed_charsets())
    return shapes


def _mixed_charsets() -> Shape:
    """One key over columns of four character sets."""
    picks = [
        ("latin1", "latin1_german2_ci"),
        ("utf8mb4", "utf8mb4_unicode_ci"),
        ("binary", "binary"),
        ("ucs2", "ucs2_bin"),
    ]
    columns = [Column("id", ID, True)]
    for number, (charset, collation) in enumerate(picks, 1):
        kind = v.text(f"VARCHAR(12) CHARACTER SET {charset} COLLATE {collation}", "latin", 10)
        columns.append(Column(f"c{number}", kind))
    keys = [
        Key("PRIMARY", ["id"], True),
        Key("k", ["c1", "c2", "c3", "c4"]),
        Key("u", ["c4", "c1"], True),
        Key("k3", ["c3"]),
    ]
    return Shape("mixed_charsets", columns, keys)


def _key_shapes() -> list[Shape]:
    short = v.text("VARCHAR(20)")
    i, a, b = Column("id", ID, True), Column("a", INT), Column("b", short)
    n, s, w = Column("n", v.integer("INT", 32), True), Column("s", short, True), Column("w", v.decimal(8, 2))
    blob = Column("x", v.binary("BLOB", 40, prefix=8))
    stamp = Column("ts", v.temporal("TIMESTAMP", 3, "NULL"))
    utf = "DEFAULT CHARSET=utf8mb4"
    pk = Key("PRIMARY", ["id"], True)
    return [
        Shape("no_key", [i, a, b, w], [], utf, id_unique=False),
        Shape(
            "hidden_pk",
            [i, a, b, w],
            [Key("ka", ["a"]), Key("kb", ["b"]), Key("kba", ["b", "a"])],
            utf,
            id_unique=False,
        ),
        Shape(
            "unique_nullable", [i, a, b, w], [Key("ua", ["a"], True), Key("ub", ["b", "w"], True)], utf, id_unique=False
        ),
        Shape(
            "promoted_unique",
            [i, n, s, w],
            [Key("u", ["n", "s"], True), Key("uid", ["id"], True), Key("kw", ["w"])],
            utf,
        ),
        Shape(
            "composite_pk",
            [i, n, s, w, a],
            [Key("PRIMARY", ["s", "n", "id"], True), Key("uid", ["id"], True), Key("kwa", ["w", "a"])],
            utf,
        ),
        Shape(
            "pk_desc",
            [i, a, b, w],
            [Key("PRIMARY", ["id"], True, descending={"id"}), Key("k", ["a", "b"], descending={"a"})],
            utf,
        ),
        Shape(
            "all_desc",
            [i, n, s, w],
            [
                Key("PRIMARY", ["n", "id"], True, descending={"n", "id"}),
                Key("uid", ["id"], True),
                Key("u", ["s", "w"], True, descending={"s"}),
                Key("kw", ["w", "s"], descending={"w", "s"}),
            ],
            utf,
        ),
        Shape(
            "prefix_keys",
            [i, b, s, blob],
            [
                pk,
                Key("kb", ["b"], prefixes={"b": 1}),
                Key("us", ["s"], True, {"s": 4}),
                Key("kx", ["x", "b"], prefixes={"x": 3, "b": 2}),
            ],
            utf,
        ),
        Shape(
            "blob_unique",
            [i, blob, a],
            [pk, Key("ux", ["x"], True, {"x": 8}), Key("kxa", ["x", "a"], prefixes={"x": 2})],
            utf,
        ),
        Shape(
            "hash_unique",
            [i, Column("x", v.text("TEXT", "latin", 30)), a],
            [pk, Key("ux", ["x"], True), Key("ka", ["a"])],
            utf,
        ),
        Shape(
            "overlapping",
            [i, a, n, w],
            [
                pk,
                Key("k1", ["a"]),
                Key("k2", ["a", "n"]),
                Key("k3", ["a", "n", "w"]),
                Key("k4", ["n", "a"]),
                Key("k5", ["w", "id"]),
            ],
        ),
        Shape(
            "covering",
            [i, a, n, s, stamp],
            [pk, Key("c1", ["a", "n", "s", "ts"]), Key("c2", ["ts", "s"]), Key("c3", ["s", "a"])],
            utf,
        ),
        Shape(
            "not_null_all",
            [i, n, s, Column("e", v.enum(), True), Column("f", v.binary("BINARY(4)", 4), True)],
            [pk, Key("u", ["f", "e", "n"], True), Key("k", ["e", "s"])],
            utf,
        ),
    ]


def _generated_shapes() -> list[Shape]:
    # Values that would be cut are left out: InnoDB's indexes on virtual columns are corrupt after them.
    i, a, b = (
        Column("id", ID, True),
        Column("a", v.integer("SMALLINT", 16)),
        Column("b", replace(v.text("VARCHAR(20)"), bad=())),
    )
    plus = Column("g1", v.integer("INT", 32), clause="GENERATED ALWAYS AS (a * 3 + 1) STORED", generated=True)
    upper = Column(
        "g2",
        v.text("VARCHAR(40)"),
        clause="GENERATED ALWAYS AS (CONCAT(UPPER(b), '-', IFNULL(a, 'n'))) STORED",
        generated=True,
    )
    half = Column("g3", v.integer("INT", 32), clause="GENERATED ALWAYS AS (a DIV 2) VIRTUAL", generated=True)
    lower = Column("g4", v.text("VARCHAR(30)"), clause="GENERATED ALWAYS AS (LOWER(b)) VIRTUAL", generated=True)
    pk, utf = Key("PRIMARY", ["id"], True), "DEFAULT CHARSET=utf8mb4"
    extracted = Column("j1", v.text("VARCHAR(30)"), clause="AS (JSON_VALUE(j, '$.a')) STORED", generated=True)
    hidden = Column("h", INT, clause="DEFAULT 5 INVISIBLE")
    default = Column("d", v.text("VARCHAR(30)"), clause="DEFAULT (CONCAT('d', id))")
    checked = Column("a", v.integer("INT", 32), clause="CHECK (a BETWEEN -1000 AND 100000)")
    return [
        Shape(
            "generated_stored",
            [i, a, b, plus, upper],
            [pk, Key("k1", ["g1"]), Key("k2", ["g2", "a"]), Key("ub", ["b"], True)],
            utf,
        ),
        Shape("generated_virtual", [i, a, b, half, lower], [pk, Key("ka", ["a", "b"])], utf),
        Shape("generated_virtual_key", [i, a, b, half, lower], [pk, Key("k3", ["g3"]), Key("k4", ["g4", "g3"])], utf),
        Shape("generated_json", [i, Column("j", v.json()), extracted], [pk, Key("k", ["j1"])], utf),
        Shape(
            "checks",
            [i, checked, b],
            [pk, Key("k", ["a"])],
            utf,
            checks=["CONSTRAINT whole CHECK (a <> id OR b IS NULL)"],
        ),
        Shape("defaults", [i, hidden, default, b], [pk, Key("k", ["h", "d"])], utf),
    ]


def _partition_shapes() -> list[Shape]:
    def parts(name: str, clause: str) -> Shape:
        columns = [
            Column("id", ID, True),
            Column("a", v.integer("SMALLINT", 16), True),
            Column("b", v.text("VARCHAR(20)")),
            Column("w", v.decimal(8, 2)),
        ]
        keys = [Key("PRIMARY", ["id", "a"], True), Key("kb", ["b", "w"]), Key("ka", ["a"])]
        return Shape(name, columns, keys, f"DEFAULT CHARSET=utf8mb4 {clause}", id_unique=False, churn=False)

    return [
        parts("part_hash", "PARTITION BY HASH (a) PARTITIONS 5"),
        parts("part_key", "PARTITION BY KEY (id) PARTITIONS 3"),
        parts(
            "part_range",
            "PARTITION BY RANGE (a) (PARTITION p0 VALUES LESS THAN (0), PARTITION p1 VALUES LESS THAN (30), PARTITION p2 VALUES LESS THAN MAXVALUE)",
        ),
        parts(
            "part_list",
            "PARTITION BY LIST (a) (PARTITION p0 VALUES IN (0,1,2,3,4,5,6,7,8,9,10), PARTITION p1 VALUES IN (-1,-2,-3,127,128), PARTITION pd DEFAULT)",
        ),
        parts(
            "part_sub",
            "PARTITION BY RANGE (a) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN MAXVALUE)",
        ),
    ]


def _special_shapes() -> list[Shape]:
    i, a, b = Column("id", ID, True), Column("a", INT), Column("b", v.text("VARCHAR(20)"))
    auto = Column("id", ColType("INT", ID.pool), True, clause="AUTO_INCREMENT")
    tiny = Column(
        "id",
        ColType("TINYINT UNSIGNED", lambda _: [str(n) for n in (1, 2, 5, 250, 254)]),
        True,
        clause="AUTO_INCREMENT",
    )
    pk, utf = Key("PRIMARY", ["id"], True), "DEFAULT CHARSET=utf8mb4"
    stamp = Column(
        "ts", v.temporal("TIMESTAMP", 0), True, clause="DEFAULT CURRENT_TIMESTAMP ON UPDATE CURRENT_TIMESTAMP"
    )
    keys = [pk, Key("ka", ["a"]), Key("ub", ["b"], True)]
    since, until = Column("s", v.temporal("DATE"), True), Column("e", v.temporal("DATE"), True)
    trigger = "CREATE TRIGGER tr BEFORE UPDATE ON t FOR EACH ROW SET NEW.a = IFNULL(NEW.a, 0) + 1"
    log = ["CREATE TABLE log (id INT, what VARCHAR(10), KEY (id)) ENGINE={E}"]
    logging = [trigger, "CREATE TRIGGER tl AFTER INSERT ON t FOR EACH ROW INSERT INTO log VALUES (NEW.id, 'ins')"]
    big = Shape(
        "big_table",
        [i, a, b, Column("w", v.decimal(8, 2))],
        [pk, Key("ka", ["a", "w"]), Key("kb", ["b"])],
        utf,
        fill=3000,
        weight=0.6,
    )
    return [
        Shape("auto_increment", [auto, a, b], keys, utf, auto_increment=True),
        Shape("auto_increment_tiny", [tiny, a, b], [pk, Key("ka", ["a"])], utf, auto_increment=True, fill=10),
        Shape(
            "auto_increment_key",
            [Column("n", INT, True), auto, b],
            [Key("PRIMARY", ["n", "id"], True), Key("uid", ["id"], True)],
            utf,
            auto_increment=True,
        ),
        Shape("on_update", [i, a, stamp, b], [pk, Key("kt", ["ts"])], utf),
        Shape(
            "versioned",
            [i, a, b],
            [pk, Key("ka", ["a"])],
            utf + " WITH SYSTEM VERSIONING",
            versioned=True,
            handler=False,
            churn=False,
        ),
        Shape(
            "period",
            [i, since, until, b],
            [Key("kb", ["b"]), Key("ki", ["id"])],
            utf,
            checks=["PERIOD FOR p(s, e)"],
            id_unique=False,
            handler=False,
        ),
        Shape("temporary", [i, a, b], keys, utf, temporary=True, handler=False),
        Shape("triggers", [i, a, b], keys, utf, before=log, after=logging, churn=False),
        Shape("row_formats", [i, a, b], keys, utf + " ROW_FORMAT=DYNAMIC COMMENT='c'"),
        big,
    ]


def all_shapes(seed: int) -> list[Shape]:
    """Every shape with its literals drawn from the seed, in a fixed order."""
    shapes = _type_shapes() + _key_shapes() + _generated_shapes() + _partition_shapes() + _special_shapes()
    shapes += _long_shapes() + _collation_shapes()
    for shape in shapes:
        shape.columns = [Column(c.name, c.type, c.not_null, c.clause, c.generated) for c in shape.columns]
        fill_pools(shape, Random(f"{seed}:{shape.name}:values"))
    return shapes
