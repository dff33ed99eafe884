"""Unit tests of ferrite_migrate, without a server: `python3 -m unittest discover -s tests -t .` in migrate/."""
