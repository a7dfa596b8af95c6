"""``python -m waveplan.cli``."""

import sys

from waveplan.cli import main

sys.exit(main())
