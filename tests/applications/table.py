"""The applications whose schemas are loaded, one entry each: where the package comes from, which of its files are the schema."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Debian:
    """A package of the machine's own Debian release; apt verifies it with the archive's signatures."""

    package: str

    @property
    def folder(self) -> str:
        """Its name in the cache."""
        return self.package


@dataclass(frozen=True)
class Maven:
    """A jar, by its coordinates and its SHA-256."""

    coordinates: str
    sha256: str

    @property
    def folder(self) -> str:
        """Its name in the cache; another version has another."""
        return self.coordinates.replace(":", "_")


@dataclass(frozen=True)
class Application:
    """One schema. `files`: patterns below the unpacked sources, in the order in which they are loaded."""

    name: str
    sources: tuple[Debian | Maven, ...]
    files: tuple[str, ...]
    replace: tuple[tuple[str, str], ...] = ()
    """Placeholders of a template, as regular expressions, and what stands for them."""
    own_mode: bool = False
    """It sets an sql_mode with NO_ENGINE_SUBSTITUTION: without `ferrite_replace_engines` the server replaces no engine's name."""
    full_text: int = 0
    """So many of its tables have FULLTEXT or SPATIAL indexes, which Ferrite refuses."""
    short: bool = False
    """Belongs to the short form."""


def _debian(name: str, package: str, *files: str, **more: object) -> Application:
    return Application(name, (Debian(package),), files, **more)  # type: ignore[arg-type]


def _maven(name: str, coordinates: str, sha256: str, *files: str, **more: object) -> Application:
    return Application(name, (Maven(coordinates, sha256),), files, **more)  # type: ignore[arg-type]


def _dbconfig(name: str, package: str, **more: object) -> Application:
    return _debian(name, package, f"usr/share/dbconfig-common/data/{package}/install/mysql", **more)


_RADIUS = "etc/freeradius/3.0/mods-config/sql"
_CREATE = "org/camunda/bpm/engine/db/create/activiti.mariadb.create"

APPLICATIONS = (
    _debian("Kea", "kea-admin", "**/dhcpdb_create.mysql", short=True),
    _debian("Zabbix server", "zabbix-server-mysql", "**/schema.sql.gz", "**/images.sql.gz", "**/data.sql.gz"),
    _debian("Zabbix proxy", "zabbix-proxy-mysql", "**/schema.sql.gz"),
    _debian("Roundcube", "roundcube-core", "usr/share/roundcube/SQL/mysql.initial.sql", short=True),
    _debian(
        "PowerDNS", "pdns-backend-mysql", "usr/share/*/schema/schema.mysql.sql", "**/enable-foreign-keys.mysql.sql"
    ),
    _dbconfig("Bacula", "bacula-director-mysql"),
    _debian("Cacti", "cacti", "usr/share/cacti/conf_templates/cacti.sql", own_mode=True),
    _debian("ejabberd", "ejabberd", "usr/share/ejabberd/sql/mysql.sql", full_text=1),
    _debian("ejabberd, new schema", "ejabberd", "usr/share/ejabberd/sql/mysql.new.sql", full_text=1),
    _debian("FreeRADIUS", "freeradius-config", f"{_RADIUS}/main/mysql/schema.sql"),
    _debian("FreeRADIUS, DHCP", "freeradius-config", f"{_RADIUS}/dhcp/mysql/schema.sql"),
    _debian("FreeRADIUS, pools", "freeradius-config", f"{_RADIUS}/ippool/mysql/schema.sql"),
    _debian("Gammu", "gammu-smsd", "**/examples/mysql.sql"),
    _debian("Gerbera", "gerbera", "usr/share/gerbera/mysql.sql"),
    _dbconfig("Glewlwyd", "glewlwyd"),
    _debian("Icinga 2 IDO", "icinga2-ido-mysql", "usr/share/icinga2-ido-mysql/schema/mysql.sql"),
    _debian("Icinga DB", "icingadb", "usr/share/icingadb/schema/mysql/schema.sql", own_mode=True),
    _debian("Icinga Web 2", "icingaweb2", "usr/share/icingaweb2/schema/mysql.schema.sql", short=True),
    _debian(
        "Kamailio", "kamailio-mysql-modules", "usr/share/kamailio/mysql/standard-create.sql", "**/mysql/*-create.sql"
    ),
    _debian("Prelude", "libpreludedb7-mysql", "usr/share/libpreludedb/classic/mysql.sql"),
    _debian("MediaWiki", "mediawiki", "usr/share/mediawiki/maintenance/tables-generated.sql", full_text=1),
    _debian("MediaWiki AbuseFilter", "mediawiki", "**/AbuseFilter/db_patches/mysql/tables-generated.sql"),
    _dbconfig("OpenDMARC", "opendmarc"),
    _debian("phpMyAdmin", "phpmyadmin", "usr/share/phpmyadmin/sql/create_tables.sql"),
    _dbconfig("pnopaste", "pnopaste"),
    _debian("Request Tracker", "request-tracker5", "usr/share/request-tracker5/etc/schema.mysql"),
    _dbconfig("rsyslog", "rsyslog-mysql"),
    _debian("SOGo", "sogo", "usr/share/doc/sogo/mysql-utf8mb4.sql.gz", replace=((r"(?m)^--", "-- "),)),
    _debian("Tango", "tango-db", "usr/share/tango-db/create_db_tables.sql"),
    _debian("Tiny Tiny RSS", "tt-rss", "usr/share/tt-rss/schema/ttrss_schema_mysql.sql", short=True),
    _debian("ulogd", "ulogd2", "usr/share/doc/ulogd2/mysql-ulogd2.sql.gz"),
    _debian("ZoneMinder", "zoneminder", "usr/share/zoneminder/db/zm_create.sql"),
    _dbconfig("Zoph", "zoph"),
    _maven(
        "Quartz",
        "org.quartz-scheduler:quartz:2.3.2",
        "639c6a675bc472e1568df9d8c954ff702da6f83ed27da0ff9a7bd12ed73b8bf0",
        "org/quartz/impl/jdbcjobstore/tables_mysql_innodb.sql",
    ),
    _maven(
        "Spring Batch",
        "org.springframework.batch:spring-batch-core:5.1.2",
        "db00a1cf4ee3c3b10ab63242fe905153a075e1aa3671b79ed1e62c74b6e66840",
        "org/springframework/batch/core/schema-mysql.sql",
    ),
    _maven(
        "Spring Integration",
        "org.springframework.integration:spring-integration-jdbc:6.3.1",
        "7cd80d75a60136814c471048b7f8e35a6973074638a0d0d32d743660b7a52e25",
        "org/springframework/integration/jdbc/schema-mysql.sql",
    ),
    _maven(
        "Spring Session",
        "org.springframework.session:spring-session-jdbc:3.3.1",
        "45d1aca008a31e768dff439b367a04ebbaab404a1105da3d81d7a8af40f77a9b",
        "org/springframework/session/jdbc/schema-mysql.sql",
    ),
    _maven(
        "Camunda",
        "org.camunda.bpm:camunda-engine:7.20.0",
        "f8688a4567b4705c1b051e8724559f82e62ee60b3168a8e759dfc99b50667453",
        f"{_CREATE}.engine.sql",
        f"{_CREATE}.identity.sql",
        f"{_CREATE}.case.engine.sql",
        f"{_CREATE}.decision.engine.sql",
        f"{_CREATE}.history.sql",
        f"{_CREATE}.case.history.sql",
        f"{_CREATE}.decision.history.sql",
        short=True,
    ),
    _maven(
        "Activiti",
        "org.activiti:activiti-engine:7.1.0.M6",
        "e222d38c08356748ac68be7f3a7685c72e83f3258cf2100bddf5a562522f68e8",
        "org/activiti/db/create/activiti.mysql.create.engine.sql",
        "org/activiti/db/create/activiti.mysql.create.history.sql",
    ),
    Application(
        "Flowable",
        (
            Maven(
                "org.flowable:flowable-engine-common:6.8.0",
                "5c0fb684ff263a6b437dea1e3166a8ac02296980043946cd5ee0cde6dfb32f3d",
            ),
            Maven(
                "org.flowable:flowable-idm-engine:6.8.0",
                "10a093ae3a53539d0109e4d3c6265d40b7a950a85713a6b53800dd0631dfe0d5",
            ),
            Maven(
                "org.flowable:flowable-task-service:6.8.0",
                "6366a0cb4602e42f477b7966a197d2ec5a5df65bacbead141ff9392186d8a314",
            ),
            Maven(
                "org.flowable:flowable-variable-service:6.8.0",
                "6918176c51b5c08837b121cf079b90341b4919c889d1f5f75bd51327be011785",
            ),
            Maven(
                "org.flowable:flowable-identitylink-service:6.8.0",
                "cd0c8e0c751158b8ff1f6a0cf0f3311a1aaaf91906159c385660300a3759c17f",
            ),
            Maven(
                "org.flowable:flowable-eventsubscription-service:6.8.0",
                "95bd1af958bd8d64da1e8240a16038a3485df0b0c6bb9b5aa9305fa126b95932",
            ),
            Maven(
                "org.flowable:flowable-job-service:6.8.0",
                "61d12c101d63cb0e841963f5516f30217cb59fa640a632ed61126d9c1243cfb3",
            ),
            Maven(
                "org.flowable:flowable-engine:6.8.0",
                "6d1184f9ac2f7129bb4fca015ded801dd63e871a970fa29217d682993c365726",
            ),
        ),
        ("**/db/create/flowable.mysql.create.*.sql",),
    ),
    _maven(
        "jBPM",
        "org.jbpm:jbpm-db-scripts:7.74.1.Final",
        "d99b21f47772393b47831474c44cf454100f442bdde72444a5bf57ecde427df2",
        "db/ddl-scripts/mysqlinnodb/mysql-innodb-jbpm-schema.sql",
        "db/ddl-scripts/mysqlinnodb/quartz_tables_mysql_innodb.sql",
        "db/ddl-scripts/mysqlinnodb/task_assigning_tables_mysql_innodb.sql",
    ),
)
