"""Every setting of the portal, once: name, type, default, bounds, who needs it and a line for the documents.

portal/config/env.py reads the environment by it, `scripts/write_settings.py` writes the tables of docs/ from it, and
portal/config/old_names.py knows which names there were before.
"""

from __future__ import annotations

from portal.config.setting import Group, Setting, choice, flag, integer, number, text

_MOST_MIB = 2**30
_DAY_S, _WEEK_S = 86_400, 604_800
CONTAINER_TOOLS = ("apptainer", "singularity", "ch-run", "bwrap")
LOG_LEVELS = ("INFO", "DEBUG", "WARNING", "WARN", "ERROR", "CRITICAL", "FATAL", "NOTSET")
_ADDRESS = "an http:// or https:// address"
_PLACE = "an absolute path"

_PORTAL = Group(
    key="portal",
    needed_by="every portal",
    settings=(
        text("EVENKEEL_DATA", "everything that is kept", shown="`./data`", form="a path"),
        text(
            "EVENKEEL_HOST",
            "where the web process listens; for `127.0.0.1` and `0.0.0.0` also on IPv6 (`::1`, `::`), so that no job "
            "can listen there as `localhost`",
            default="127.0.0.1",
        ),
        integer("EVENKEEL_PORT", "port of the web process", 8_800, 1, 65_535),
        text(
            "EVENKEEL_API_URL", "address under which runners reach the portal", shown="of host and port", form=_ADDRESS
        ),
        text(
            "EVENKEEL_ADMIN_EMAIL",
            "first administrator; the password is printed once",
            default="admin@evenkeel.local",
        ),
        text(
            "EVENKEEL_TIME_ZONE",
            "of the calendar days, weeks and months of quotas and usage reports",
            default="UTC",
            form="a time zone such as Europe/Berlin",
        ),
        choice(
            "EVENKEEL_EXECUTOR",
            "where jobs run: this machine, or a Ray or Slurm cluster that is there already ([executors.md]"
            "(executors.md)); `manage.py doctor` says whether it can",
            "local",
            "ray",
            "slurm",
        ),
        text(
            "EVENKEEL_CLUSTERS",
            "file that names several clusters, each with an executor and settings of its own ([clusters.md]"
            "(clusters.md))",
            form="the path of a YAML file",
        ),
        text(
            "EVENKEEL_KEEP",
            "how long, or how much of it, is kept: [below](#what-is-kept)",
            shown="as below",
            form="as events=365d,decisions=200MiB",
        ),
    ),
)

_WEB = Group(
    key="web",
    needed_by="portals that other machines reach: names, HTTPS, a proxy",
    settings=(
        text(
            "EVENKEEL_ALLOWED_HOSTS", "names people use, separated by commas; loopback always works", shown="the host"
        ),
        flag(
            "EVENKEEL_HTTPS",
            "`1` behind a TLS proxy; plain HTTP is then redirected, but for `/healthz`, `/readyz` and runners",
        ),
        text(
            "EVENKEEL_TRUSTED_ORIGINS",
            "addresses that people use, such as `https://the.name`, separated by commas. A page may open the live "
            "stream only from the portal's own scheme, host and port, or from one of these; a proxy keeps `Host` and "
            "sets `X-Forwarded-Proto`",
            form="origins such as https://portal.example.org, without a path",
        ),
        integer(
            "EVENKEEL_HSTS_S",
            "with HTTPS: how long browsers shall insist on it; `0`: not at all",
            30 * _DAY_S,
            0,
            10**9,
            "seconds",
            shown="30 days",
        ),
        text(
            "FORWARDED_ALLOW_IPS",
            "address of the proxy in front, whose `X-Forwarded-For` then says where people are: for rates, sessions "
            "and the audit log. Without it the header is not believed. Jobs run on this machine: with `127.0.0.1` "
            "they could say any address, so let the proxy come from another. Behind a proxy on this machine without "
            "it, all people and jobs share the sign-in attempts of one address (100 in 5 minutes): a job can use "
            "them up",
        ),
        text(
            "EVENKEEL_WEBHOOK_NETWORKS",
            "networks, separated by commas, that [webhooks](notifications.md) may reach besides public addresses; "
            "there also by plain HTTP",
            form="networks such as 10.20.0.0/16",
        ),
        text(
            "EVENKEEL_METRICS_TOKEN",
            "bearer token with which Prometheus reads `/metrics`; without it administrators alone may",
        ),
        choice("EVENKEEL_LOG_FORMAT", "`json`: an object a line; [below](#logs)", "text", "json"),
        choice("EVENKEEL_LOG_LEVEL", "of what is not the supervisor's", *LOG_LEVELS),
        flag("EVENKEEL_DEBUG", "shows tracebacks to visitors: never in service"),
    ),
)

_SERVERS = Group(
    key="servers",
    needed_by="portals on several machines, or with databases of their own",
    settings=(
        text("DATABASE_URL", "external PostgreSQL; none is started then", shown="embedded", form="a postgresql:// URL"),
        text(
            "EVENKEEL_OWNER_DATABASE_URL",
            "with `DATABASE_URL`: the owner's role, for migrations, back-up and restore; "
            "[below](#two-roles-of-the-database)",
            form="a postgresql:// URL",
        ),
        text(
            "REDIS_URL",
            "external Redis or Valkey; none is started then",
            shown="embedded",
            form="a redis://, rediss:// or unix:// URL",
        ),
        text("EVENKEEL_SECRET_KEY", "signs sessions; the same for all processes", shown="generated once"),
        text(
            "EVENKEEL_SECRET_KEYS",
            "what [secrets](secrets.md#keys) are encrypted with, newest first, separated by commas",
            shown="generated once",
            form="Fernet keys",
        ),
        integer(
            "EVENKEEL_DB_POOL",
            "connections to PostgreSQL that a web process keeps open between requests; others are opened and closed "
            "as needed. Each process of the worker keeps one",
            0,
            0,
            100,
            shown="`8` under `manage.py up` and in Docker, else `0`",
        ),
    ),
)

_PACE = Group(
    key="pace",
    needed_by="portals with many runs, or with emulated devices",
    settings=(
        number("EVENKEEL_ROUND_INTERVAL_S", "the scheduler's timer; events wake it earlier", 5, 0.2, 600),
        number("EVENKEEL_REPORT_INTERVAL_S", "how often runners report", 10, 0.1, 600),
        number(
            "EVENKEEL_REPORTS_PER_S",
            "reports a second from all runs together: with more runs than that each reports less often, by a quarter "
            "at a time and every two minutes at the least. First steps, checkpoints that were asked for and ends are "
            "reported at once whatever this says",
            100,
            0.1,
            100_000,
            "reports a second",
        ),
        number(
            "EVENKEEL_SAMPLE_INTERVAL_S",
            "how often runners read [what programs use](packing.md#what-programs-use) of their GPUs, `0`: never",
            5,
            0,
            3_600,
        ),
        number("EVENKEEL_SPEEDUP", "pace of emulated accelerators, times the catalogue's", 1, 0.01, 10_000, ""),
        text(
            "EVENKEEL_SHARE_STEPS",
            "the percent in whose steps a GPU may be [divided](packing.md#a-part-of-a-gpu), by type: "
            "`5,h100=10,titan_xp=25`",
            shown="`1`",
            form="as 5 or 5,h100=10, in percents that divide 100",
        ),
        flag(
            "EVENKEEL_NODE_CHECKS",
            "`0`: nodes get work without [a check](#checks-of-nodes), and none that failed one is kept from it",
            default=True,
        ),
        number(
            "EVENKEEL_ENGINE_WAIT_S",
            "so long a launch may wait in Slurm's own queue before the job is placed again",
            600,
            30,
            _WEEK_S,
        ),
        number(
            "EVENKEEL_NODE_UNCLEAR_S",
            "so long a node without jobs may be unclear to Slurm or Ray before it counts as lost ([executors.md]"
            "(executors.md))",
            900,
            0,
            _DAY_S,
        ),
    ),
)

_LOCAL = Group(
    key="local",
    needed_by="jobs on the portal's own machine (`local`)",
    per_cluster=True,
    settings=(
        text(
            "EVENKEEL_VIRTUAL_ACCELERATORS",
            "emulated devices: `titan_xp:6` or `node-a=titan_xp:4,node-b=v100:2`",
            shown="none: the real GPUs",
            form="as titan_xp:6 or node-a=titan_xp:4,node-b=v100:2",
        ),
        choice(
            "EVENKEEL_RUN_NETWORK",
            "as root: `own`: nothing starts without root and pasta; `machine`: all runs share the machine's network; "
            "`auto`: `own` where there are accounts for projects and pasta, else `machine`, of which `doctor` warns",
            "auto",
            "own",
            "machine",
        ),
        text(
            "EVENKEEL_RUN_LOOPBACK_PORTS",
            "TCP ports of the machine's loopback device that runs reach on their own, such as `3141,9000`: of an "
            "object store, a proxy, MLflow",
            form="ports from 1 to 65535, separated by commas",
        ),
        text(
            "EVENKEEL_ACCOUNTS_REGISTRY",
            "as root: where the accounts of all portals of this machine are [registered](#who-jobs-run-as); for each "
            "of them the same",
            default="/var/lib/evenkeel/accounts",
            form="a path",
        ),
        text(
            "EVENKEEL_LOCAL_DIR",
            "of one cluster of several: where its jobs' files lie",
            shown="`DATA/clusters/NAME`",
            form="a path",
        ),
    ),
)

_ENGINE = Group(
    key="engine",
    needed_by="jobs on Ray or Slurm",
    per_cluster=True,
    settings=(
        text(
            "EVENKEEL_SHARED_DIR",
            "a directory under the same path on the portal's machine and all nodes, as `/nfs/evenkeel-jobs`: jobs, "
            "checkpoints, logs, prepared code. [Apart from the data directory](#apart-from-the-data)",
            shown="none: has to be set",
            form="a path",
        ),
        flag(
            "EVENKEEL_EMULATED",
            "the GPUs are only declared (Ray's `--num-gpus`, Slurm's GRES): jobs train on processors, and are "
            "`emulated`",
        ),
        number("EVENKEEL_LEASE_S", "how long a run trains on without an answer of the portal", 600, 30, _DAY_S),
    ),
)

_RAY = Group(
    key="ray",
    needed_by="jobs on Ray, beside [those of both](#settings-of-ray-and-slurm)",
    per_cluster=True,
    settings=(
        text("EVENKEEL_RAY_ADDRESS", "`host:port` of the head; not `ray://`"),
        text("EVENKEEL_RAY_NAMESPACE", "of actors and placement groups; one for each portal", default="evenkeel"),
        text(
            "EVENKEEL_RAY_NODE_ADDRESS",
            "this machine's address in the cluster, where it has several",
            shown="Ray finds it",
        ),
        text("EVENKEEL_RAY_TLS_CERT", "file of this machine's certificate; where set, TLS is used"),
        text("EVENKEEL_RAY_TLS_KEY", "file of the certificate's key"),
        text("EVENKEEL_RAY_TLS_CA", "file of the authority that signed the cluster's certificates"),
        text("EVENKEEL_RAY_TOKEN_FILE", "file with Ray's token; where set, it is shown"),
        number(
            "EVENKEEL_RAY_FENCE_S",
            "how long after a node was lost what ran there may go on unseen; set it only where something switches "
            "lost nodes off",
            0,
            0,
            3_600,
            shown="none: as long as the lease demands",
        ),
    ),
)

_SLURM = Group(
    key="slurm",
    needed_by="jobs in Slurm, beside [those of both](#settings-of-ray-and-slurm)",
    per_cluster=True,
    settings=(
        text("EVENKEEL_SLURM_CONF", "path of slurm.conf", shown="Slurm's own"),
        text(
            "EVENKEEL_SLURM_PYTHON",
            "interpreter on the nodes, with the client package and what jobs import",
            shown="the portal's",
        ),
        text("EVENKEEL_SLURM_PARTITION", "partition of the jobs; only its nodes count", shown="Slurm's own"),
        text("EVENKEEL_SLURM_ACCOUNT", "account of the jobs in Slurm", shown="Slurm's own"),
        text("EVENKEEL_SLURM_QOS", "QOS of the jobs in Slurm", shown="Slurm's own"),
        text("EVENKEEL_SLURM_RESERVATION", "reservation of the jobs in Slurm", shown="none"),
        text("EVENKEEL_SLURM_TIME", "time limit of a job in Slurm, as `1-00:00:00`", shown="the partition's"),
        integer(
            "EVENKEEL_SLURM_END_SIGNAL_S",
            "how long before that limit a job is asked for a checkpoint",
            120,
            10,
            65_535,
            "seconds",
        ),
        number(
            "EVENKEEL_SLURM_LOOK_S",
            "maximum age of Slurm's answers while nothing of the portal's changes; `0`: each round asks",
            20,
            0,
            60,
        ),
        choice("EVENKEEL_SLURM_PLACEMENT", "`delegate`: Slurm chooses the nodes", "nodes", "delegate"),
        integer(
            "EVENKEEL_SLURM_GPU_MEMORY_MIB",
            "memory of a GPU, which Slurm does not say",
            0,
            0,
            10_000_000,
            "MiB",
            shown="`0`: not known",
        ),
        choice(
            "EVENKEEL_SLURM_RUN_AS",
            "`person`: [jobs as the person](#jobs-as-the-person) who submitted them",
            "portal",
            "person",
        ),
        text(
            "EVENKEEL_SLURM_HELPER", "with `person`: where the helper is", default="/usr/local/libexec/evenkeel-run-as"
        ),
        text(
            "EVENKEEL_SLURM_HELPER_SECTION",
            "with `person`: which section of `/etc/evenkeel/run-as.conf` holds for this cluster",
            default="default",
        ),
        integer("EVENKEEL_ACCOUNT_MIN_UID", "with `person`: no account below is a person's", 1_000, 100, 2_000_000_000),
    ),
)

_CHECKPOINTS = Group(
    key="checkpoints",
    needed_by="checkpoints in a store",
    per_cluster=True,
    settings=(
        text(
            "EVENKEEL_CHECKPOINT_URL",
            "`s3://bucket/prefix`, `sftp://host/path`, `file:///mounted/everywhere`",
            form="a URL such as s3://bucket/prefix",
        ),
        text("EVENKEEL_CHECKPOINT_ENDPOINT", "endpoint of `s3://`", shown="the driver's", form=_ADDRESS),
        text("EVENKEEL_CHECKPOINT_REGION", "region of `s3://`", shown="the driver's"),
        text("EVENKEEL_CHECKPOINT_KEY", "key of `s3://`", shown="none: what the machine has (a role, `~/.aws`)"),
        text("EVENKEEL_CHECKPOINT_SECRET", "secret of `s3://`, with the key"),
        text(
            "EVENKEEL_CHECKPOINT_CREDENTIALS_FILE",
            "instead of these, for any driver: a JSON object of its options, mode 0600",
        ),
        text(
            "EVENKEEL_CHECKPOINT_CACHE_DIR",
            "a directory of each node's own for checkpoints, `%n` in it is the node's name (where the engine does not "
            "say it, the host's). Never one that nodes share",
            shown="none: with the job's files",
            form=_PLACE,
        ),
        integer(
            "EVENKEEL_CHECKPOINT_CACHE_MIB",
            "bound of that cache, `0`: none. The job that was not used for longest goes first; what is in use stays",
            102_400,
            0,
            10**9,
            "MiB",
        ),
        number(
            "EVENKEEL_CHECKPOINT_UPLOAD_S",
            "how long the end of a run waits for its last upload, with its GPUs",
            60,
            1,
            3_600,
        ),
        number(
            "EVENKEEL_CHECKPOINT_FETCH_S",
            "how long a launch waits for its checkpoint; 150 s at most where it has several nodes",
            480,
            1,
            540,
        ),
    ),
)

_DATA = Group(
    key="data",
    needed_by="jobs that name data by URL",
    per_cluster=True,
    settings=(
        text(
            "EVENKEEL_DATA_CACHE_DIR",
            "a folder of each node's own, `%n` in it is the node's name; below it one per project. Never one that "
            "nodes share. Without it jobs cannot name a `url`",
            shown="`DATA/data_cache` under `local`, else none",
            form=_PLACE,
        ),
        integer(
            "EVENKEEL_DATA_CACHE_MIB",
            "of each project on each node; `0`: as much as the disk has",
            102_400,
            0,
            10**9,
            "MiB",
        ),
        number("EVENKEEL_DATA_FETCH_S", "how long a launch may take for all of its data", 21_600, 1, _WEEK_S),
        text(
            "EVENKEEL_DATA_STORES_FILE",
            'options for the beginnings of URLs, for all projects: `{"s3://datasets": {"key": "…", "secret": "…"}}`, '
            "mode 0600; the longest beginning counts. Jobs can find such a key: give it no more than the right to "
            "list and read",
        ),
    ),
)

_SOFTWARE = Group(
    key="software",
    needed_by="clusters whose nodes have modules or container tools",
    per_cluster=True,
    settings=(
        flag("EVENKEEL_MODULES", "jobs may load modules: all nodes of the cluster have them"),
        choice("EVENKEEL_CONTAINER_TOOL", "jobs may run in images: the tool that all nodes have", "", *CONTAINER_TOOLS),
    ),
)

_MATERIAL = Group(
    key="material",
    needed_by="sites with Git servers, a package index or little storage of their own",
    settings=(
        text("EVENKEEL_GIT_ALLOWED_HOSTS", "private hosts that may be asked, by name or network, separated by commas"),
        text("EVENKEEL_PIP_INDEX_URL", "where packages come from", shown="PyPI"),
        integer("EVENKEEL_ENVIRONMENT_MAX_MIB", "size of one environment", 20_480, 1, _MOST_MIB, "MiB"),
        number("EVENKEEL_ENVIRONMENT_TIMEOUT_S", "how long one build may take", 1_800, 1, _DAY_S),
        flag("EVENKEEL_SHARE_ENVIRONMENTS", "one cache for all projects, of wheels alone"),
        integer(
            "EVENKEEL_CHECKPOINT_SOFT_MIB",
            "a project's checkpoints together, beyond which an event warns",
            0,
            0,
            _MOST_MIB,
            "MiB",
            shown="`0`: no limit",
        ),
        integer(
            "EVENKEEL_CHECKPOINT_HARD_MIB",
            "the same, beyond which new jobs are refused",
            0,
            0,
            _MOST_MIB,
            "MiB",
            shown="`0`: no limit",
        ),
    ),
)

_SIGN_IN = Group(
    key="sign-in",
    needed_by="sign-in by OpenID Connect",
    settings=(
        text(
            "EVENKEEL_OIDC_ISSUER",
            "such as `https://login.example.org/realms/main`; the redirect address to register there is "
            "`/accounts/oidc/sso/login/callback/`",
            form=_ADDRESS,
        ),
        text("EVENKEEL_OIDC_CLIENT_ID", "as registered with the provider"),
        text("EVENKEEL_OIDC_CLIENT_SECRET", "as registered with the provider"),
        text("EVENKEEL_OIDC_NAME", "the provider's name on the button", default="single sign-on"),
        text("EVENKEEL_OIDC_GROUPS_CLAIM", "claim that lists groups, such as `groups`; empty: groups change nothing"),
        text(
            "EVENKEEL_OIDC_ACCOUNT_CLAIM",
            "claim that names a person's UNIX account, for [jobs as the person](executors.md#jobs-as-the-person); one "
            "that people cannot edit themselves. Empty: administrators set accounts",
        ),
        text(
            "EVENKEEL_OIDC_GROUP_ROLES",
            "which group has which role; a group may have a list of these",
            form='JSON like {"ml-team": {"project": "vision", "role": "member"}, "ops": "admin"}',
        ),
        flag(
            "EVENKEEL_OIDC_TRUST_EMAILS",
            "take addresses as verified although the provider does not say `email_verified`",
        ),
    ),
)

_MAIL = Group(
    key="mail",
    needed_by="outgoing e-mail: invitations and [notifications](notifications.md)",
    settings=(
        text(
            "EVENKEEL_EMAIL_URL",
            "`smtp+tls://user:password@host:587`",
            shown="none: no mail is sent",
            form="an smtp://, smtp+tls:// or smtp+ssl:// URL",
        ),
        text("EVENKEEL_EMAIL_FROM", "sender of e-mail", shown="`EVENKEEL_ADMIN_EMAIL`"),
    ),
)

GROUPS = (
    _PORTAL, _WEB, _SERVERS, _PACE, _LOCAL, _ENGINE, _RAY, _SLURM, _CHECKPOINTS, _DATA, _SOFTWARE, _MATERIAL, _SIGN_IN,
    _MAIL,
)  # fmt: skip
SETTINGS: dict[str, Setting] = {setting.name: setting for group in GROUPS for setting in group.settings}
