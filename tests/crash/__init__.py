"""The crash test: kill -9 under writing clients, restart, and check that nothing acknowledged is lost."""
