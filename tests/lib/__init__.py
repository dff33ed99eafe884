"""What all test suites share: a private server, connections, engines under test."""
