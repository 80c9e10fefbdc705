"""`python -m gameday_rehearsal.lab`: a real control plane; one JSON line on stdout when it serves."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

from pydantic import ValidationError

from gameday.errors import ChildError, ProgramMissingError, StartError
from gameday.processes.lifeline import die_with_parent
from gameday_rehearsal.lab.control_plane import ControlPlane
from gameday_rehearsal.lab.settings import LabSettings
from gameday_rehearsal.signals import broken_off_by_signals, ignore_signals


def main() -> int:
    """Serve; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gameday_rehearsal.lab", description=__doc__)
    parser.add_argument("--data-dir", type=Path, required=True, help="certificates, kubeconfigs, etcd's data and logs")
    parser.add_argument("--settings", type=_settings, default=LabSettings(), help="LabSettings as JSON")
    arguments = parser.parse_args()
    folder: Path = arguments.data_dir.absolute()
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="lab %(levelname)s %(message)s")
    plane = ControlPlane(folder, arguments.settings)
    with broken_off_by_signals():
        die_with_parent()
        try:
            plane.start()
            ready = {"ready": True, "url": plane.url, "kubeconfig": str(folder / "admin.kubeconfig")}
            print(json.dumps(ready), flush=True)
            plane.supervise()
        except (ChildError, ProgramMissingError, StartError, OSError) as error:
            print(f"lab: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 0
        finally:
            ignore_signals()
            plane.end()


def _settings(text: str) -> LabSettings:
    try:
        return LabSettings.model_validate_json(text)
    except ValidationError as error:
        raise argparse.ArgumentTypeError("; ".join(one["msg"] for one in error.errors())) from None


if __name__ == "__main__":
    sys.exit(main())
