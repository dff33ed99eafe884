"""`python3 -m ferrite_migrate`: what `./ferrite migrate` runs."""

import sys

from ferrite_migrate.cli import main

sys.exit(main())
