"""All of sysbench's bundled OLTP scripts, each prepared and run, and the tables checked after it."""
