"""Entry point of `python -m ferrite_bench`."""

import sys

from ferrite_bench.cli import main

sys.exit(main())
