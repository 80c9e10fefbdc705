"""Every series of API servers, schedulers and etcd that this project reads, each once.

The names and labels are those of Kubernetes 1.37 and etcd 3.6, and the lab's tests look for each on the real pages. The
servers have more labels than those that are listed, which are the ones that may be asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SERVER_LABEL = "instance"
"""The label that names the server in every series; the rehearsal's scrapes set it to the server's name."""

API_SERVER_JOB = "apiserver"
"""The scrape job of API servers, in the rehearsal and by the custom of kube-prometheus."""

SCHEDULER_JOB = "kube-scheduler"
"""The scrape job of schedulers, in the rehearsal and by the custom of kube-prometheus."""


@dataclass(frozen=True)
class Metric:
    """A metric family and where it is found."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    meaning: str
    labels: tuple[str, ...] = ()
    after: str = ""
    """The use after which a server first shows it; empty if it does so from its start."""

    @property
    def series(self) -> tuple[str, ...]:
        """The names of its series; a histogram has its buckets, its sum and its count."""
        return tuple(f"{self.name}{suffix}" for suffix in _SUFFIXES[self.kind])


_SUFFIXES = {"gauge": ("",), "counter": ("",), "histogram": ("_bucket", "_sum", "_count")}
_LEVEL = ("priority_level",)
_FLOW = ("priority_level", "flow_schema")
_RESOURCE = ("group", "resource")
_REQUEST = ("verb", "group", "version", "resource", "subresource", "scope")

RESIDENT_MEMORY = Metric("process_resident_memory_bytes", "gauge", "Memory that the kernel holds for the process.")
CPU_SECONDS = Metric("process_cpu_seconds_total", "counter", "CPU time of the process, in seconds.")
START_TIME = Metric("process_start_time_seconds", "gauge", "Start of the process, in Unix seconds; a restart moves it.")
HEAP_IN_USE = Metric("go_memstats_heap_inuse_bytes", "gauge", "Bytes in spans of the heap that hold an object.")
HEAP_LIVE = Metric("go_gc_heap_live_bytes", "gauge", "Bytes that the last collection found in use.")
HEAP_GOAL = Metric("go_gc_heap_goal_bytes", "gauge", "Bytes of heap at which the next collection ends.")
HEAP_FREE = Metric("go_memory_classes_heap_free_bytes", "gauge", "Free bytes of heap that could be given back.")
HEAP_RELEASED = Metric("go_memory_classes_heap_released_bytes", "gauge", "Free bytes of heap given back to the kernel.")
HEAP_UNUSED = Metric("go_memory_classes_heap_unused_bytes", "gauge", "Bytes reserved for objects and not used by any.")
GC_CYCLES = Metric("go_gc_cycles_total_gc_cycles_total", "counter", "Collections that have ended.")
ALLOCATED_BYTES = Metric("go_gc_heap_allocs_bytes_total", "counter", "Bytes of heap ever allocated.")
GO_CPU_SECONDS = Metric(
    "go_cpu_classes_total_cpu_seconds_total", "counter", "Estimated CPU time that Go's runtime had, idle time included."
)
GO_IDLE_SECONDS = Metric("go_cpu_classes_idle_cpu_seconds_total", "counter", "Estimated part of it that was idle.")
GC_CPU_SECONDS = Metric("go_cpu_classes_gc_total_cpu_seconds_total", "counter", "Estimated CPU time of collections.")
GC_IDLE_SECONDS = Metric(
    "go_cpu_classes_gc_mark_idle_cpu_seconds_total",
    "counter",
    "Estimated part of it on processors that had nothing else to do.",
)
GC_PERCENT = Metric("go_gc_gogc_percent", "gauge", "GOGC in force.")
MEMORY_LIMIT = Metric("go_gc_gomemlimit_bytes", "gauge", "GOMEMLIMIT in force; 2^63 - 1 where none is set.")

IN_FLIGHT = Metric("apiserver_current_inflight_requests", "gauge", "Requests in work.", ("request_kind",))
LONG_RUNNING = Metric("apiserver_longrunning_requests", "gauge", "Watches, logs and the like that are open.", _REQUEST)
REQUESTS = Metric("apiserver_request_total", "counter", "Answered requests.", (*_REQUEST, "code"))
REQUEST_SECONDS = Metric(
    "apiserver_request_sli_duration_seconds",
    "histogram",
    "Time to answer, without the waits in webhooks and in queues.",
    _REQUEST,
)
RESPONSE_BYTES = Metric("apiserver_response_sizes", "histogram", "Bytes of the answers.", _REQUEST)
TERMINATIONS = Metric(
    "apiserver_request_terminations_total",
    "counter",
    "Requests that the server ended in self-defence.",
    (*_REQUEST, "code"),
    after="a request is ended in self-defence",
)
ABORTS = Metric(
    "apiserver_request_aborts_total",
    "counter",
    "Requests that ended by a time limit or by a client that left.",
    _REQUEST,
    after="a request is aborted",
)

NOMINAL_SEATS = Metric("apiserver_flowcontrol_nominal_limit_seats", "gauge", "A level's own seats.", _LEVEL)
LOWER_SEATS = Metric("apiserver_flowcontrol_lower_limit_seats", "gauge", "Seats that a level does not lend.", _LEVEL)
UPPER_SEATS = Metric("apiserver_flowcontrol_upper_limit_seats", "gauge", "Seats with all it may borrow.", _LEVEL)
CURRENT_SEATS = Metric("apiserver_flowcontrol_current_limit_seats", "gauge", "Seats of a level now.", _LEVEL)
EXECUTING_REQUESTS = Metric(
    "apiserver_flowcontrol_current_executing_requests", "gauge", "Requests of a level in work.", _FLOW
)
EXECUTING_SEATS = Metric("apiserver_flowcontrol_current_executing_seats", "gauge", "Seats that these hold.", _FLOW)
QUEUED_REQUESTS = Metric("apiserver_flowcontrol_current_inqueue_requests", "gauge", "Requests that wait.", _FLOW)
QUEUED_SEATS = Metric("apiserver_flowcontrol_current_inqueue_seats", "gauge", "Seats that these wait for.", _FLOW)
DISPATCHED = Metric("apiserver_flowcontrol_dispatched_requests_total", "counter", "Requests that got seats.", _FLOW)
REJECTED = Metric(
    "apiserver_flowcontrol_rejected_requests_total",
    "counter",
    "Requests answered with 429: the queue was full, the wait too long, or there is no queue.",
    (*_FLOW, "reason"),
    after="a request is rejected",
)
SEATS_ASKED = Metric(
    "apiserver_flowcontrol_work_estimated_seats", "histogram", "Seats that requests were estimated to need.", _FLOW
)
EXECUTION_SECONDS = Metric(
    "apiserver_flowcontrol_request_execution_seconds", "histogram", "Time in work.", (*_FLOW, "type")
)
QUEUE_SECONDS = Metric(
    "apiserver_flowcontrol_request_wait_duration_seconds", "histogram", "Time in queues.", (*_FLOW, "execute")
)

WEBHOOK_REJECTIONS = Metric(
    "apiserver_admission_webhook_rejection_count",
    "counter",
    "Requests that an admission webhook kept out, by its answer or (calling_webhook_error) because it gave none.",
    ("name", "type", "operation", "error_type", "rejection_code"),
    after="a webhook keeps a request out",
)
WEBHOOK_FAIL_OPEN = Metric(
    "apiserver_admission_webhook_fail_open_count",
    "counter",
    "Requests that were admitted although their webhook gave no answer.",
    ("name", "type"),
    after="a webhook with failurePolicy Ignore gives no answer",
)

RESOURCE_OBJECTS = Metric(
    "apiserver_resource_objects", "gauge", "Stored objects, counted every minute; -1: not known.", _RESOURCE
)
RESOURCE_BYTES = Metric(
    "apiserver_resource_size_estimate_bytes",
    "gauge",
    "Estimated size of the stored objects, every minute; -1: not known.",
    _RESOURCE,
)
STORAGE_BYTES = Metric("apiserver_storage_size_bytes", "gauge", "Size of etcd's file.", ("storage_cluster_id",))
CACHE_CAPACITY = Metric(
    "apiserver_watch_cache_capacity",
    "gauge",
    "Events that a watch cache keeps.",
    _RESOURCE,
    after="a watch cache grows or shrinks",
)
CACHE_INITIALIZATIONS = Metric(
    "apiserver_watch_cache_initializations_total", "counter", "Times a watch cache was filled from etcd.", _RESOURCE
)
CACHE_LISTS = Metric(
    "apiserver_cache_list_total",
    "counter",
    "LISTs served from a watch cache.",
    (*_RESOURCE, "index"),
    after="a LIST is served from a watch cache",
)
CONSISTENT_READS = Metric(
    "apiserver_watch_cache_consistent_read_total",
    "counter",
    "Consistent LISTs asked of a watch cache, with those that fell back to etcd.",
    (*_RESOURCE, "success", "fallback"),
)
ENDED_WATCHES = Metric(
    "apiserver_terminated_watchers_total",
    "counter",
    "Watches that the server closed because the client read too slowly.",
    _RESOURCE,
    after="a watch is closed because its client is slow",
)

API_SERVER_METRICS: tuple[Metric, ...] = (
    RESIDENT_MEMORY,
    CPU_SECONDS,
    START_TIME,
    HEAP_IN_USE,
    HEAP_LIVE,
    HEAP_GOAL,
    HEAP_FREE,
    HEAP_RELEASED,
    HEAP_UNUSED,
    GC_CYCLES,
    ALLOCATED_BYTES,
    GO_CPU_SECONDS,
    GO_IDLE_SECONDS,
    GC_CPU_SECONDS,
    GC_IDLE_SECONDS,
    GC_PERCENT,
    MEMORY_LIMIT,
    IN_FLIGHT,
    LONG_RUNNING,
    REQUESTS,
    REQUEST_SECONDS,
    RESPONSE_BYTES,
    TERMINATIONS,
    ABORTS,
    NOMINAL_SEATS,
    LOWER_SEATS,
    UPPER_SEATS,
    CURRENT_SEATS,
    EXECUTING_REQUESTS,
    EXECUTING_SEATS,
    QUEUED_REQUESTS,
    QUEUED_SEATS,
    DISPATCHED,
    REJECTED,
    SEATS_ASKED,
    EXECUTION_SECONDS,
    QUEUE_SECONDS,
    WEBHOOK_REJECTIONS,
    WEBHOOK_FAIL_OPEN,
    RESOURCE_OBJECTS,
    RESOURCE_BYTES,
    STORAGE_BYTES,
    CACHE_CAPACITY,
    CACHE_INITIALIZATIONS,
    CACHE_LISTS,
    CONSISTENT_READS,
    ENDED_WATCHES,
)
"""The metrics that are read from API servers."""

SCHEDULING_SECONDS = Metric(
    "scheduler_pod_scheduling_sli_duration_seconds",
    "histogram",
    "Time from a pod's first place in the queue to its binding, without the waits for its gates.",
    ("attempts",),
    after="a pod is scheduled",
)
PENDING_PODS = Metric("scheduler_pending_pods", "gauge", "Pods that wait, by queue.", ("queue",))
SCHEDULE_ATTEMPTS = Metric(
    "scheduler_schedule_attempts_total",
    "counter",
    "Attempts to place a pod.",
    ("result", "profile"),
    after="a pod is scheduled",
)
SCHEDULER_METRICS: tuple[Metric, ...] = (
    RESIDENT_MEMORY,
    CPU_SECONDS,
    START_TIME,
    SCHEDULING_SECONDS,
    PENDING_PODS,
    SCHEDULE_ATTEMPTS,
)
"""The metrics that are read from schedulers."""

CONTROLLER_METRICS: tuple[Metric, ...] = (RESIDENT_MEMORY, CPU_SECONDS, START_TIME)
"""The metrics that are read from controller-managers."""

ETCD_BYTES = Metric("etcd_mvcc_db_total_size_in_bytes", "gauge", "Size of etcd's file, its free pages included.")
ETCD_BYTES_IN_USE = Metric("etcd_mvcc_db_total_size_in_use_in_bytes", "gauge", "Size of etcd's file in use.")
ETCD_QUOTA_BYTES = Metric("etcd_server_quota_backend_bytes", "gauge", "Size of its file at which etcd stops writes.")
ETCD_METRICS: tuple[Metric, ...] = (
    RESIDENT_MEMORY,
    CPU_SECONDS,
    START_TIME,
    ETCD_BYTES,
    ETCD_BYTES_IN_USE,
    ETCD_QUOTA_BYTES,
)
"""The metrics that are read from etcd."""
