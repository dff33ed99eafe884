"""Django's settings: two databases on the server under test, nothing that depends on the engine."""

import os
from typing import Any

import pymysql

pymysql.install_as_MySQLdb()


def _database(name: str) -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.mysql",
        "HOST": os.environ["FERRITE_SUITE_SOCKET"],
        "USER": "root",
        "NAME": name,
        "TEST": {"CHARSET": "utf8mb4"},
    }


DATABASES = {"default": _database("django_main"), "other": _database("django_other")}
SECRET_KEY = "not a secret"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
USE_TZ = False
TEST_RUNNER = "django_runner.Runner"
