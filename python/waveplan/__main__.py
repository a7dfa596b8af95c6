"""``python -m waveplan``."""

import sys

from waveplan.cli import main

sys.exit(main())
