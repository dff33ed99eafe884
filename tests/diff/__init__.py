"""The differential test: the same statements on two engines must give the same answers."""
