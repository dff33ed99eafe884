"""InnoDB tables of every kind that a move meets, each as the statements that make and fill it.

`MOVES` can be moved; `REFUSED` cannot, for the reason that stands beside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

ODD = 'o`d\'d "t\\able" ü.x'
"""A table's name that needs quoting everywhere."""
OTHER = "mig other"
"""A second database, with a space in its name."""

MOVES: dict[str, list[str]] = {
    "empty": ["CREATE TABLE empty (a INT PRIMARY KEY, b VARCHAR(10))"],
    "no_key": [
        "CREATE TABLE no_key (a INT, b TEXT)",
        "INSERT INTO no_key VALUES (1,'x'),(1,'x'),(NULL,NULL),(2,REPEAT('y',30000))",
    ],
    "counter": [
        "CREATE TABLE counter (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, v INT) AUTO_INCREMENT=1000",
        "INSERT INTO counter (v) VALUES (1),(2)",
        "DELETE FROM counter WHERE v=2",
    ],
    "numbers": [
        "CREATE TABLE numbers (id INT PRIMARY KEY, f FLOAT, d DOUBLE, m DECIMAL(30,10), b BIT(17), y YEAR, u BIGINT UNSIGNED, KEY(f), KEY(d), KEY(m))",
        "INSERT INTO numbers VALUES (1,0.1,-0.0,1.5,b'10101',1999,18446744073709551615),(2,1e-38,2.2250738585072014e-308,-1e15,0,NULL,0),"
        "(3,16777217,9007199254740993,NULL,b'11111111111111111',2155,NULL),(4,-3.4e38,0.1+0.2,0.0000000001,1,1901,1)",
    ],
    "times": [
        "CREATE TABLE times (id INT PRIMARY KEY, d DATE, t TIME(6), dt DATETIME(3), ts TIMESTAMP(6) NULL, KEY(dt))",
        "INSERT IGNORE INTO times VALUES (1,'0000-00-00','-838:59:59','0000-00-00','1970-01-01 00:00:01'),(2,'2026-02-28','01:02:03.456789',"
        "'9999-12-31 23:59:59.999','2026-10-25 01:30:00.5'),(3,'2026-00-00',NULL,NULL,NULL)",
    ],
    "texts": [
        "CREATE TABLE texts (id INT PRIMARY KEY, c CHAR(5), v VARCHAR(300), e ENUM('','a','ü'), s SET('x','y'), j JSON, u UUID, i INET6, "
        "KEY(v(7)), KEY(c,v(3)), hid INT INVISIBLE DEFAULT 3, CHECK (id > 0)) DEFAULT CHARSET=utf8mb4",
        "INSERT INTO texts (id,c,v,e,s,j,u,i) VALUES (1,'a ','x  ','ü','x,y','{\"a\": 1}',UUID(),'::1'),(2,NULL,REPEAT('ä',300),'','',NULL,NULL,NULL)",
    ],
    "long_values": [
        "CREATE TABLE long_values (id INT PRIMARY KEY, b LONGBLOB, t LONGTEXT, z TEXT COMPRESSED, KEY(b(20)), UNIQUE(t) USING HASH)",
        "INSERT INTO long_values VALUES (1,REPEAT(CHAR(0,255,1,2),300000),REPEAT('long',200000),REPEAT('z',5000)),(2,'',NULL,''),(3,NULL,'t',NULL)",
    ],
    "wide": [
        "CREATE TABLE wide (id INT PRIMARY KEY, "
        + ", ".join(f"c{i} VARCHAR(300)" for i in range(60))
        + ") ROW_FORMAT=DYNAMIC DEFAULT CHARSET=latin1",
        "INSERT INTO wide SELECT seq, " + ", ".join("REPEAT('w', 100)" for _ in range(60)) + " FROM seq_1_to_50",
    ],
    "generated": [
        "CREATE TABLE generated (id INT PRIMARY KEY, a INT, v INT AS (a*2) VIRTUAL, s VARCHAR(20) AS (CONCAT('s',a)) STORED, KEY(v), UNIQUE(s))",
        "INSERT INTO generated (id,a) SELECT seq, seq*3 FROM seq_1_to_100",
    ],
    "parts": [
        "CREATE TABLE parts (id INT, r INT, PRIMARY KEY (id, r), KEY (r)) PARTITION BY RANGE (r) SUBPARTITION BY HASH (id) SUBPARTITIONS 2 "
        "(PARTITION p0 VALUES LESS THAN (10) COMMENT='low', PARTITION p1 VALUES LESS THAN MAXVALUE)",
        "INSERT INTO parts SELECT seq, seq%20 FROM seq_1_to_200",
    ],
    "compressed": [
        "CREATE TABLE compressed (id INT PRIMARY KEY, v VARCHAR(99)) ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8 COMMENT='ENGINE=InnoDB, it''s \\\\ odd'",
        "INSERT INTO compressed SELECT seq, seq FROM seq_1_to_100",
    ],
    "redundant": [
        "CREATE TABLE redundant (id INT PRIMARY KEY) ROW_FORMAT=REDUNDANT STATS_PERSISTENT=1 STATS_AUTO_RECALC=0",
        "INSERT INTO redundant VALUES (1)",
    ],
    "page_compressed": [
        "CREATE TABLE page_compressed (id INT PRIMARY KEY) PAGE_COMPRESSED=1",
        "INSERT INTO page_compressed VALUES (7)",
    ],
    "period": [
        "CREATE TABLE period (id INT, s DATE, e DATE, PERIOD FOR p(s,e), PRIMARY KEY (id, p WITHOUT OVERLAPS))",
        "INSERT INTO period VALUES (1,'2026-01-01','2026-02-01'),(1,'2026-02-01','2026-03-01')",
    ],
    "shapes": [
        "CREATE TABLE shapes (id INT PRIMARY KEY, g GEOMETRY)",
        "INSERT INTO shapes VALUES (1,ST_GeomFromText('POINT(1 2)')),(2,NULL)",
    ],
    "sequence": ["CREATE SEQUENCE sequence START WITH 10 INCREMENT BY 5 CACHE 0", "DO NEXTVAL(sequence)"],
    ODD: [
        "CREATE TABLE {odd} (`a``b` INT PRIMARY KEY, `c d` VARCHAR(20) DEFAULT '),(''`' COMMENT 'x`y'',', KEY `k,(` (`c d`))",
        "INSERT INTO {odd} VALUES (1, DEFAULT)",
    ],
    # ---- foreign keys ----
    "parent": [
        "CREATE TABLE parent (id INT PRIMARY KEY, code VARCHAR(10), n INT DEFAULT 0, UNIQUE (code))",
        "INSERT INTO parent SELECT seq, seq, 0 FROM seq_1_to_100",
    ],
    "child": [
        "CREATE TABLE child (id INT AUTO_INCREMENT PRIMARY KEY, p INT, code VARCHAR(10), CONSTRAINT fk_p FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE, "
        "FOREIGN KEY (code) REFERENCES parent (code) ON DELETE SET NULL ON UPDATE CASCADE)",
        "INSERT INTO child (p, code) SELECT 1+seq%100, 1+seq%100 FROM seq_1_to_500",
    ],
    "grandchild": [
        "CREATE TABLE grandchild (id INT PRIMARY KEY, c INT, note TEXT, KEY named_by_hand (c, id), FOREIGN KEY (c) REFERENCES child (id) ON UPDATE RESTRICT)",
        "INSERT INTO grandchild SELECT seq, seq, 'n' FROM seq_1_to_100",
    ],
    "tree": [
        "CREATE TABLE tree (id INT PRIMARY KEY, up INT, FOREIGN KEY (up) REFERENCES tree (id) ON DELETE CASCADE)",
        "INSERT INTO tree VALUES (1,NULL),(2,1),(3,2),(4,4)",
    ],
    "circle_a": ["CREATE TABLE circle_a (id INT PRIMARY KEY, b INT)", "INSERT INTO circle_a VALUES (1,NULL)"],
    "circle_b": [
        "CREATE TABLE circle_b (id INT PRIMARY KEY, a INT, CONSTRAINT `to a` FOREIGN KEY (a) REFERENCES circle_a (id))",
        "INSERT INTO circle_b VALUES (5,1)",
        "UPDATE circle_a SET b=5",
        "ALTER TABLE circle_a ADD CONSTRAINT to_b FOREIGN KEY (b) REFERENCES circle_b (id)",
    ],
    "abroad": [
        "CREATE TABLE abroad (a INT, b INT, PRIMARY KEY (a, b), FOREIGN KEY (a, b) REFERENCES `{other}`.`par``ent` (x, y) ON DELETE CASCADE)",
        "INSERT INTO abroad VALUES (1,2)",
    ],
    "orphans": [
        "SET foreign_key_checks=0",
        "CREATE TABLE orphans (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES not_there (id))",
        "INSERT INTO orphans VALUES (1,1)",
        "SET foreign_key_checks=1",
    ],
}
"""Name of a table, and the statements; all in the database `mig` but for the parent of `abroad`."""

ABROAD = [
    "CREATE TABLE `{other}`.`par``ent` (x INT, y INT, PRIMARY KEY (x, y))",
    "INSERT INTO `{other}`.`par``ent` VALUES (1,2),(3,4)",
]

REFUSED: dict[str, tuple[list[str], str]] = {
    "words": (
        ["CREATE TABLE words (id INT PRIMARY KEY, t TEXT, FULLTEXT KEY (t))", "INSERT INTO words VALUES (1,'a b')"],
        "FULLTEXT",
    ),
    "words_child": (
        ["CREATE TABLE words_child (id INT PRIMARY KEY, w INT, FOREIGN KEY (w) REFERENCES words (id))"],
        "connected by foreign keys with mig.words",
    ),
    "places": (["CREATE TABLE places (id INT PRIMARY KEY, g POINT NOT NULL, SPATIAL KEY (g))"], "SPATIAL"),
    "versioned": (
        ["CREATE TABLE versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", "INSERT INTO versioned VALUES (1)"],
        "4120",
    ),
    "thai": (["CREATE TABLE thai (v VARCHAR(9) COLLATE tis620_thai_ci, KEY (v)) DEFAULT CHARSET=tis620"], "1478"),
}

MOVES_SINCE_11_8 = {
    "vectors": [
        "CREATE TABLE vectors (id INT PRIMARY KEY, v VECTOR(3) NOT NULL, VECTOR INDEX (v))",
        "INSERT INTO vectors SELECT seq, VEC_FromText(CONCAT('[', seq, ',', seq % 7, ',1]')) FROM seq_1_to_50",
    ],
}
"""What only later servers have."""

MORE = [
    "CREATE VIEW seen AS SELECT p.id, COUNT(*) AS children FROM parent p JOIN child c ON c.p=p.id GROUP BY p.id",
    "CREATE TRIGGER count_children BEFORE INSERT ON grandchild FOR EACH ROW SET NEW.note=CONCAT(NEW.note,'!')",
    "CREATE TABLE bystander (a INT) ENGINE=MyISAM",
]


def statements(table: str) -> list[str]:
    """What makes and fills a table."""
    odd = "`" + ODD.replace("`", "``") + "`"
    return [
        x.replace("{odd}", odd).replace("{other}", OTHER)
        for x in {**MOVES, **MOVES_SINCE_11_8}.get(table) or REFUSED[table][0]
    ]


def collation_tables(connection: Any, every: bool, width: int = 50) -> Iterator[tuple[str, list[str]]]:
    """Tables with an indexed column in each collation of the server, or in each but the many of Unicode 14."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT CHARACTER_SET_NAME, FULL_COLLATION_NAME FROM information_schema.COLLATION_CHARACTER_SET_APPLICABILITY "
            "WHERE FULL_COLLATION_NAME NOT LIKE 'tis620\\_thai%' "
            + ("" if every else "AND FULL_COLLATION_NAME NOT LIKE '%\\_uca1400\\_%' ")
            + "ORDER BY 1, 2"
        )
        collations = list(cursor.fetchall())
    for i in range(0, len(collations), width):
        columns = [
            f"c{j} VARCHAR(20) CHARACTER SET {cs} COLLATE {co}, KEY (c{j})"
            for j, (cs, co) in enumerate(collations[i : i + width])
        ]
        values = [f"{', '.join(repr(word) for _ in columns)}" for word in ("a", "B ", "Ab c")]
        name = f"collations_{i // width}"
        yield (
            name,
            [
                f"CREATE TABLE {name} (id INT PRIMARY KEY, {', '.join(columns)})",
                f"INSERT INTO {name} VALUES " + ", ".join(f"({n}, {x})" for n, x in enumerate(values)),
            ],
        )
