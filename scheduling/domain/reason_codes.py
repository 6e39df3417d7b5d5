"""One table of all reason codes, as they appear in plans, rows and the API.

A code's string is stored and never changes. Rows of earlier releases may hold other strings: `find_code` returns None
for them, and the sets below do not contain them.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Category(StrEnum):
    """What the reason explains."""

    START = "start"  # the job gets GPUs, or different ones
    WAIT = "wait"  # the job is pending
    KEEP = "keep"  # the job keeps its GPUs
    LEAVE = "leave"  # the job gave up GPUs and is pending again
    END = "end"  # the run ended, or changes its state


class Cause(StrEnum):
    """What is in the job's way."""

    CAPACITY = "capacity"  # too few GPUs are free
    NODE = "node"  # a node is lost, drained or too small
    ORDER = "order"  # other jobs come first
    GUARANTEE = "guarantee"  # GPUs are guaranteed to other projects
    QUOTA = "quota"  # a limit or a budget
    CONSTRAINT = "constraint"  # nodes are closed to the job for a time
    HOLD = "hold"  # the job itself may not start yet
    NEVER = "never"  # the job cannot run here as it is


class NoStart(StrEnum):
    """Why no start is predicted for a job."""

    NEVER = "never"
    NO_PROFILE = "no_profile"
    NODE_UNAVAILABLE = "node_unavailable"
    DEPENDENCY = "dependency"
    PERIOD = "period"


@dataclass(frozen=True, slots=True)
class Row:
    token: str
    category: Category
    cause: Cause | None = None
    #: Slurm's word for it; empty only where the job is not pending.
    slurm: str = ""
    #: What would change it; a format string for the reason's detail.
    way_out: str = ""
    #: Slurm's words if the limit belongs to a QoS: over all of its jobs, and for each user.
    slurm_of_qos: tuple[str, str] | None = None
    no_start: NoStart | None = None


_START, _WAIT, _KEEP, _LEAVE, _END = Category
_CAPACITY, _NODE, _ORDER, _GUARANTEE, _QUOTA, _CONSTRAINT, _HOLD, _NEVER = Cause
_WINDOW_ENDS = "It starts when the window is over, or before it with a max_duration that ends in time."
_GOES_ON_WITH_NODES = "It resumes from its checkpoint when enough GPUs on other nodes are free."
_NEXT_ROUND = "The next round considers it."
_RETRIED = "It queues again when its wait is over, unless the retries are stopped."
_RELEASED = "It queues again when it is released."


class ReasonCode(StrEnum):
    """Each row: token, category, cause, Slurm word, way out."""

    # Too few GPUs are free.
    NO_ROOM = Row(
        "no_room",
        _WAIT,
        _CAPACITY,
        "Resources",
        "It starts when {needs} × {type} are free: when a job ends or shrinks.",
    )
    RESOURCES = Row(
        "resources",
        _WAIT,
        _CAPACITY,
        "Resources",
        "It starts when {needs} × {type} are free: when a job ends, as the sentence says, or earlier.",
    )
    NO_SLOT = Row("no_slot", _WAIT, _CAPACITY, "Resources", "It starts when a job ends and leaves its slot.")
    NO_LAYOUT = Row(
        "no_layout", _WAIT, _CAPACITY, "Resources", "It starts when enough GPUs are free together on nodes it may use."
    )
    NEXT_ROUND = Row(
        "next_round", _WAIT, _CAPACITY, "Resources", "It starts in a later round, when its share of the time is due."
    )
    WAITS = Row("waits", _WAIT, _CAPACITY, "Resources", "The next round considers it again.")
    WAITS_TO_SHARE = Row(
        "waits_to_share",
        _WAIT,
        _CAPACITY,
        "Resources",
        "It starts when a shared GPU has room for it or a GPU is free; a smaller part finds room sooner.",
    )
    SOLVER_FAILED = Row(
        "solver_failed", _WAIT, _CAPACITY, "Resources", "The next round considers it again, with a new answer."
    )
    OTHERS_END_SOONER = Row(
        "others_end_sooner", _WAIT, _CAPACITY, "Priority", "It starts when jobs that end sooner have ended."
    )
    PARTITION_FULL = Row(
        "partition_full",
        _WAIT,
        _CAPACITY,
        "Resources",
        "It starts when {needs} GPUs of partition {partition} are free; another partition may have room.",
    )
    ACROSS_POOLS = Row(
        "across_pools",
        _WAIT,
        _CAPACITY,
        "Resources",
        "It starts when {needs} × {type} are free at once on nodes that it may use; fewer start sooner.",
    )
    NO_SHARE = Row("no_share", _WAIT, _CAPACITY, "Resources", "It gets a share when other jobs end.")

    # Nodes are too small, lost or drained.
    NO_HOST = Row(
        "no_host",
        _WAIT,
        _NODE,
        "Resources",
        "It starts when a node has so much free beside GPUs for it; asking for less lets it start sooner.",
    )
    TOO_LARGE = Row(
        "too_large",
        _WAIT,
        _NODE,
        "Resources",
        "It starts when it may use a node that is large enough; asking for less lets it start sooner.",
    )
    ENGINE_AWAY = Row(
        "ENGINE_AWAY", _WAIT, _NODE, "ReqNodeNotAvail", "It is considered when the cluster answers again."
    )
    NODE_LOST = Row("node_lost", _LEAVE, _NODE, "ReqNodeNotAvail", _GOES_ON_WITH_NODES)
    NODE_DRAINED = Row("node_drained", _LEAVE, _NODE, "ReqNodeNotAvail", _GOES_ON_WITH_NODES)
    ASSIGNMENT_WITHDRAWN = Row(
        "assignment_withdrawn", _LEAVE, _NODE, "ReqNodeNotAvail", "It starts when enough GPUs on other nodes are free."
    )
    NODE_DRAINED_WAITS = Row(
        "node_drained_waits",
        _KEEP,
        _NODE,
        "ReqNodeNotAvail",
        "It continues when GPUs on other nodes are free, or the node is resumed.",
    )
    NODE_DRAINED_ENDS = Row("node_drained_ends", _KEEP, _NODE)
    NODE_DRAINED_LOST = Row(
        "node_drained_lost",
        _KEEP,
        _NODE,
        way_out="It continues if it ends before the deadline, or if the node is resumed before.",
    )
    NODE_DRAINED_STOPPED = Row("node_drained_stopped", _END, _NODE)
    NODE_WITHHELD = Row("node_withheld", _KEEP, _NODE)

    # Other jobs come first.
    PRIORITY = Row(
        "priority",
        _WAIT,
        _ORDER,
        "Priority",
        "It starts after those ahead of it; fewer GPUs or a shorter max_duration may let it pass them.",
    )
    BEHIND = Row("behind", _WAIT, _ORDER, "Priority", "It starts after the job ahead of it.")
    HELD_BACK = Row(
        "held_back",
        _WAIT,
        _ORDER,
        "Resources",
        "It starts when a GPU is free or a compatible job to share one with is running.",
    )
    KEPT_FOR = Row("kept_for", _WAIT, _ORDER, "Resources", "It starts when its reserved GPUs are free.")
    KEPT_FROM = Row(
        "kept_from",
        _WAIT,
        _ORDER,
        "Priority",
        "It starts after the job with the reservation, or elsewhere when there is room.",
    )
    DEADLINE_MISSED = Row(
        "deadline_missed", _WAIT, _ORDER, "DeadLine", "A later deadline, or the end of other jobs, lets it be met."
    )
    NEW = Row("NEW", _WAIT, _ORDER, "None", _NEXT_ROUND)
    ACCEPTED = Row("ACCEPTED", _WAIT, _ORDER, "None", _NEXT_ROUND)
    RETRY = Row("RETRY", _WAIT, _ORDER, "BeginTime", _RETRIED)
    PREEMPTED = Row(
        "preempted", _LEAVE, _ORDER, "Priority", "It resumes from its checkpoint when GPUs are free for its level."
    )
    UNASSIGNED = Row("UNASSIGNED", _LEAVE, _ORDER, "None", _NEXT_ROUND)
    STOPPED_EMPTY = Row("STOPPED_EMPTY", _LEAVE, _ORDER, "None", _NEXT_ROUND)

    # GPUs are guaranteed to other projects.
    MAY_NOT_BORROW = Row(
        "may_not_borrow",
        _WAIT,
        _GUARANTEE,
        "Resources",
        "It starts when GPUs without a guarantee are free, or once it can be checkpointed.",
    )
    RECLAIMING = Row(
        "reclaiming",
        _WAIT,
        _GUARANTEE,
        "Resources",
        "It starts when the borrowers' protection, or the guarantee's time, is over.",
    )
    RECLAIMED = Row(
        "reclaimed",
        _LEAVE,
        _GUARANTEE,
        "Priority",
        "It resumes from its checkpoint when GPUs are free that no project reclaims.",
    )

    # Limits and budgets.
    QUOTA = Row(
        "quota",
        _WAIT,
        _QUOTA,
        "AssocGrpGRES",
        "It starts when another job that the limit counts ends, or when the limit leaves {needs} more GPUs.",
        ("QOSGrpGRES", "QOSMaxGRESPerUser"),
    )
    QUOTA_JOBS = Row(
        "quota_jobs",
        _WAIT,
        _QUOTA,
        "AssocGrpJobsLimit",
        "It starts when a job that the limit counts ends, or when the limit is raised.",
        ("QOSGrpJobsLimit", "QOSMaxJobsPerUserLimit"),
    )
    QUOTA_QUEUE = Row(
        "quota_queue",
        _WAIT,
        _QUOTA,
        "AssocMaxJobsLimit",
        "It is considered when a job before it starts, or when the limit is raised.",
    )
    QUOTA_PERIOD = Row(
        "quota_period",
        _WAIT,
        _QUOTA,
        "AssocGrpGRESMinutes",
        "It starts when the period ends, or when the limit is raised.",
        no_start=NoStart.PERIOD,
    )
    BUDGET_SUSPENDED = Row(
        "budget_parked",
        _LEAVE,
        _QUOTA,
        "AssocGrpGRESMinutes",
        "It resumes from its checkpoint when the period ends, or when the limit is raised.",
        no_start=NoStart.PERIOD,
    )
    REFUSED = Row("refused", _WAIT, _QUOTA, "AssocGrpGRES", "Ask for less, or have the limit raised.")

    # Nodes are closed to the job for a time.
    MAINTENANCE = Row("maintenance", _WAIT, _CONSTRAINT, "ReqNodeNotAvail", _WINDOW_ENDS)
    RESERVATION = Row("reservation", _WAIT, _CONSTRAINT, "Reservation", _WINDOW_ENDS)
    NODE_UNAVAILABLE = Row(
        "node_unavailable",
        _WAIT,
        _CONSTRAINT,
        "ReqNodeNotAvail",
        "It starts when drained nodes are resumed, lost ones return, or checked ones pass.",
        no_start=NoStart.NODE_UNAVAILABLE,
    )

    # The job itself may not start yet.
    ON_HOLD = Row("HELD", _WAIT, _HOLD, "JobHeldUser", _RELEASED)
    ON_HOLD_SHARES = Row("held", _WAIT, _HOLD, "JobHeldUser", _RELEASED)
    HELD_USER = Row("held_user", _WAIT, _HOLD, "JobHeldUser", _RELEASED)
    HELD_ADMIN = Row("held_admin", _WAIT, _HOLD, "JobHeldAdmin", "It queues again when an administrator releases it.")
    HELD_IDLE = Row(
        "held_idle",
        _WAIT,
        _HOLD,
        "JobHeldAdmin",
        "It queues again when it is released, and resumes from its checkpoint.",
    )
    HELD_COST = Row("held_cost", _WAIT, _HOLD, "AssocGrpBillingMinutes", "It queues again with a larger max_cost.")
    DEPENDENCY = Row(
        "dependency",
        _WAIT,
        _HOLD,
        "Dependency",
        "It queues when that has happened; if it cannot happen any more, the job is cancelled.",
        no_start=NoStart.DEPENDENCY,
    )
    BACK_OFF = Row("back_off", _WAIT, _HOLD, "BeginTime", _RETRIED)
    PREPARING = Row("PREPARING", _WAIT, _HOLD, "Prolog", "It queues when its code and environment are ready.")
    WAITS_FOR_CONTACT = Row("waits_for_contact", _WAIT, _HOLD, "None", "It queues when the executor has accepted it.")
    NOT_ACCEPTED = Row(
        "NOT_ACCEPTED", _WAIT, _HOLD, "BadConstraints", "Change what it asks for, or submit it to another cluster."
    )
    LEFT_OUT = Row(
        "LEFT_OUT", _WAIT, _HOLD, "SystemFailure", "It is considered again when the portal's error is fixed."
    )
    CLUSTER_RETIRED = Row(
        "CLUSTER_RETIRED", _WAIT, _HOLD, "PartitionDown", "Cancel it, and submit it to another cluster."
    )

    # The job cannot run here as it is.
    NEVER = Row(
        "never",
        _WAIT,
        _NEVER,
        "BadConstraints",
        "Allow other accelerator types or ask for less; otherwise cancel it.",
        no_start=NoStart.NEVER,
    )
    NO_TYPE = Row("no_type", _WAIT, _NEVER, "BadConstraints", "Allow other accelerator types, or fewer GPUs.")
    NO_PROFILE = Row(
        "no_profile",
        _WAIT,
        _NEVER,
        "BadConstraints",
        "Give its throughput in the job file, allow a type on which it is known, or measure it there.",
        no_start=NoStart.NO_PROFILE,
    )
    PARTITION_TOO_SMALL = Row(
        "partition_too_small",
        _WAIT,
        _NEVER,
        "PartitionNodeLimit",
        "Ask for fewer GPUs, or for another partition.",
        no_start=NoStart.NEVER,
    )
    SLOT_TOO_SMALL = Row(
        "slot_too_small",
        _WAIT,
        _NEVER,
        "BadConstraints",
        "It starts when slots have at least {needs} GPUs; an administrator sets their size.",
    )

    # The job gets GPUs.
    STARTED = Row("started", _START)
    BACKFILLED = Row("backfilled", _START)
    GUARANTEED = Row("guaranteed", _START)
    RECLAIMS = Row("reclaims", _START)
    SHARES = Row("shares", _START)
    STARTS_ACROSS_POOLS = Row("starts_across_pools", _START)
    GROWN = Row("grown", _START)
    SHRUNK = Row("shrunk", _START)
    CHANGED_TYPE = Row("changed_type", _START)
    ENDS_SOON = Row("ends_soon", _START)
    IN_ROUND = Row("in_round", _START, slurm="Resources")

    # The job keeps its GPUs.
    KEEPS = Row("keeps", _KEEP)
    KEEPS_ITS_PART = Row("keeps_its_part", _KEEP)
    HELD_RUNNING = Row("held_running", _KEEP, _HOLD)
    PROTECTED = Row("protected", _KEEP)
    RIGID = Row("rigid", _KEEP, way_out="It is never resized, because it cannot be checkpointed.")
    NOT_RESIZABLE = Row("not_resizable", _KEEP)
    OUTSIDE_PARTITION = Row("outside_partition", _KEEP)
    WITHIN_GUARANTEE = Row("within_guarantee", _KEEP, _GUARANTEE)
    LIMITS = Row("limits", _KEEP, _QUOTA)
    MIN_GAIN = Row("min_gain", _KEEP, way_out="A plan that gains more than min_gain, or a job that ends.")
    NOT_AMORTISED = Row("not_amortised", _KEEP)
    STANDBY = Row("standby", _KEEP)
    LAUNCHING = Row("launching", _KEEP)
    MOVING = Row("moving", _KEEP)

    # Events of a run that needed no other reason (scheduling.lifecycle), and how runs fail (ExitInfo.reason).
    ASSIGNED = Row("ASSIGNED", _END)
    GPUS_FREE = Row("GPUS_FREE", _END)
    FIRST_STEP_READY = Row("FIRST_STEP_READY", _END)
    PROTECTION_ENDED = Row("PROTECTION_ENDED", _END)
    REALLOCATED = Row("REALLOCATED", _END)
    CHECKPOINTED = Row("CHECKPOINTED", _END)
    STOPPED_REASSIGNED = Row("STOPPED_REASSIGNED", _END)
    STEPS_DONE = Row("STEPS_DONE", _END)
    FAIL = Row("FAIL", _END)
    CANCEL = Row("CANCEL", _END)
    DONE = Row("DONE", _END)
    STOPPED = Row("STOPPED", _END)
    USER_ERROR = Row("USER_ERROR", _END)
    SIGNAL = Row("SIGNAL", _END)
    OUT_OF_MEMORY = Row("OUT_OF_MEMORY", _END)
    TIME_LIMIT = Row("TIME_LIMIT", _END)
    RUNNER_LOST = Row("RUNNER_LOST", _END, _NODE)
    LAUNCH_FAILED = Row("LAUNCH_FAILED", _END, _NODE)
    NOT_PREPARED = Row("NOT_PREPARED", _END)
    DATA_UNAVAILABLE = Row("DATA_UNAVAILABLE", _END)

    row: Row

    def __new__(cls, row: Row) -> ReasonCode:
        code = str.__new__(cls, row.token)
        code._value_, code.row = row.token, row
        return code


_BY_TOKEN = {code.value: code for code in ReasonCode}


def find_code(token: str) -> ReasonCode | None:
    """None: a token that is in no table any more."""
    return _BY_TOKEN.get(token)


def _of_cause(*causes: Cause) -> frozenset[str]:
    return frozenset(code.value for code in ReasonCode if code.row.cause in causes)


def _of_category(*categories: Category) -> frozenset[str]:
    return frozenset(code.value for code in ReasonCode if code.row.category in categories)


#: Codes that a pending run can have.
PENDING = _of_category(Category.WAIT, Category.LEAVE)
SHORT_OF_GPUS = _of_cause(Cause.CAPACITY)
#: Only a change of the cluster or of the job file lets the job start.
UNSCHEDULABLE = _of_cause(Cause.NEVER)
#: The job does not compete for GPUs.
NO_CONTENDER = _of_cause(Cause.NEVER, Cause.HOLD, Cause.QUOTA, Cause.CONSTRAINT)
#: Codes that do not depend on free GPUs of node pools.
NOT_OF_POOLS = _of_category(Category.LEAVE) | _of_cause(Cause.HOLD, Cause.QUOTA, Cause.GUARANTEE, Cause.CONSTRAINT)
#: The job left its GPUs because of their node, not because of a policy.
LEFT_NODE = _of_category(Category.LEAVE, Category.END) & _of_cause(Cause.NODE)
#: The period of a budget must end first.
PERIODS = frozenset(code.value for code in ReasonCode if code.row.no_start is NoStart.PERIOD)
WINDOWS = frozenset({ReasonCode.MAINTENANCE.value, ReasonCode.RESERVATION.value})
#: Codes that say no more about a retry than that the job is queued.
UNSPECIFIC = frozenset(
    code.value
    for code in (
        ReasonCode.RETRY,
        ReasonCode.BACK_OFF,
        ReasonCode.NEW,
        ReasonCode.ACCEPTED,
        ReasonCode.WAITS_FOR_CONTACT,
    )
)
