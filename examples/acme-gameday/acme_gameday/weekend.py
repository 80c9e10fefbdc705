"""No game-days at weekends: nobody is there to look."""

from gameday import Guardrail, Measurement, Observation

SATURDAY = 5


class Weekend(Guardrail):
    """Refuses a run on a Saturday or a Sunday, by UTC."""

    name = "weekend"
    needs_targets = False

    def limit(self, observation: Observation) -> str:
        return "Monday to Friday (Acme)"

    def measure(self, observation: Observation) -> Measurement:
        day = observation.now
        return Measurement(day.weekday() < SATURDAY, f"{day:%A}", hint="come back on Monday")
