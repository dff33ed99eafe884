"""Moves tables of a MariaDB server from InnoDB to Ferrite, and back. cli.py names the commands; move.py does the work."""
