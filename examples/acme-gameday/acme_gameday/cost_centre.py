"""A section of the report: who pays for the GPU time of the run."""

from pydantic import BaseModel

from gameday import RunFolder

ORDER = 95
TITLE = "Cost centre"
TEMPLATE = "<p>{{ data.gpus }} GPU(s) of cost centre <strong>{{ data.centre }}</strong>.</p>"


class CostCentre(BaseModel):
    """The data of the section, which report.json has as well."""

    centre: str
    gpus: int


def build(run: RunFolder) -> CostCentre:
    return CostCentre(centre="ml-platform", gpus=len(run.target_names))
