"""The undo proved at every instant: each shipped plan is played on the scripted cluster and stopped everywhere.

A *schedule* is a plan, an instant of its run, and what happens there or afterwards:

* The process is killed before or after a durable write (an event of the history) or a request to the cluster, and no
  more code of the run is carried out. Then the pods' own deadlines act, and the reaper, undisturbed or not
  (`aftermaths.py`).
* The run goes on after a request whose answer was lost or that was carried out twice, after a freeze of a minute, or
  after its wall clock jumped by an hour (`disturbances.py`).

After every schedule nothing may be left past the bound. `python -m tests.undo_schedules` plays all of them.
"""
