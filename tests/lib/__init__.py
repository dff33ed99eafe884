"""What all test rooms share: a private server, connections, engines under test."""
