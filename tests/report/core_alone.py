"""A reader who has installed none of our packages: `python -m tests.report.core_alone FOLDER...`.

Renders the report of each run, and prints as JSON what it makes of each.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from gameday import plugins
from gameday.plugins import Group
from tests.report.page import NOW

plugins._installed = lambda: dict.fromkeys(Group, ())  # type: ignore[assignment]

if __name__ == "__main__":
    from gameday.report.render import render

    for name in sys.argv[1:]:
        run = render(Path(name), NOW).run
        said = {
            "outcome": run.result.outcome,
            "problems": run.problems,
            "verdicts": {one.check: [one.status, one.why] for one in run.verdicts},
        }
        print(json.dumps(said), flush=True)
    assert not [name for name in sys.modules if name.startswith(("gameday_control_plane", "gameday_health"))]
