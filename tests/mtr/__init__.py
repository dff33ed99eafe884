"""The server's own test suites, run on Ferrite in a private copy of the mysql-test tree."""
