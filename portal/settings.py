"""Settings of Django and of the portal. What operators may set is listed in portal/config/settings_table.py."""

from pathlib import Path
from typing import Any

import django_stubs_ext
from csp.constants import NONE, SELF, UNSAFE_INLINE

from portal.config import env
from portal.config.clusters_file import read_clusters
from portal.config.datasets import read_data_settings
from portal.config.engines import EXECUTORS, read_account_min_uid, read_accounts_registry, read_options
from portal.config.keep import read_keep
from portal.config.layout import Layout
from portal.config.stores import read_checkpoint_store
from portal.material.limits import read_limits, read_secret_keys

django_stubs_ext.monkeypatch()

BASE_DIR = Path(__file__).resolve().parent.parent
VERSION = "0.1.0"

EVENKEEL_DATA = env.folder("EVENKEEL_DATA", BASE_DIR / "data")
EVENKEEL_HOST = env.text("EVENKEEL_HOST")
EVENKEEL_PORT = env.integer("EVENKEEL_PORT")
_local_host = "127.0.0.1" if EVENKEEL_HOST in {"0.0.0.0", "::"} else EVENKEEL_HOST  # noqa: S104  # nosec B104
LOCAL_URL = f"http://{f'[{_local_host}]' if ':' in _local_host else _local_host}:{EVENKEEL_PORT}"
EVENKEEL_API_URL = env.web_url("EVENKEEL_API_URL", LOCAL_URL)
EVENKEEL_ADMIN_EMAIL = env.text("EVENKEEL_ADMIN_EMAIL")
EVENKEEL_VIRTUAL_ACCELERATORS = env.virtual_accelerators("EVENKEEL_VIRTUAL_ACCELERATORS")
EVENKEEL_SHARE_STEPS = env.share_steps("EVENKEEL_SHARE_STEPS")  # percent, by accelerator type
EVENKEEL_EXECUTOR = env.choice("EVENKEEL_EXECUTOR")
EVENKEEL_DATASETS = read_data_settings(EVENKEEL_EXECUTOR, EVENKEEL_DATA)
EVENKEEL_ACCOUNTS_REGISTRY = read_accounts_registry()
EVENKEEL_EXECUTOR_OPTIONS: dict[str, dict[str, Any]] = {name: read_options(name, EVENKEEL_DATA) for name in EXECUTORS}
#: Contains `jobs/`, written by runs, if that is not in the data directory.
EVENKEEL_JOB_FILES = EVENKEEL_EXECUTOR_OPTIONS[EVENKEEL_EXECUTOR].get("shared_dir")
EVENKEEL_CHECKPOINT_STORE = read_checkpoint_store(EVENKEEL_EXECUTOR)
#: By name, in the order of the file; empty: one cluster with the settings above. See portal.jobs.clusters.
EVENKEEL_CLUSTERS = read_clusters(EVENKEEL_DATA)
EVENKEEL_SPEEDUP = env.number("EVENKEEL_SPEEDUP")
EVENKEEL_REPORT_INTERVAL_S = env.number("EVENKEEL_REPORT_INTERVAL_S")
EVENKEEL_REPORTS_PER_S = env.number("EVENKEEL_REPORTS_PER_S")
EVENKEEL_SAMPLE_INTERVAL_S = env.number("EVENKEEL_SAMPLE_INTERVAL_S")
#: How long a launch may wait in its engine (for example Slurm's queue) before the job is placed again.
EVENKEEL_ENGINE_WAIT_S = env.number("EVENKEEL_ENGINE_WAIT_S")
#: How long the state of a node without jobs may be unclear to its engine before it counts as lost.
EVENKEEL_NODE_UNCLEAR_S = env.number("EVENKEEL_NODE_UNCLEAR_S")
EVENKEEL_ROUND_INTERVAL_S = env.number("EVENKEEL_ROUND_INTERVAL_S")
EVENKEEL_NODE_CHECKS = env.flag("EVENKEEL_NODE_CHECKS")
EVENKEEL_KEEP = read_keep()
FORWARDED_ALLOW_IPS = env.text("FORWARDED_ALLOW_IPS")  # uvicorn's: proxies whose forwarded addresses are trusted
# Constants that tests and benchmarks replace.
#: Requests a minute of a token or person, of an address without sign-in, of a run; 0: unlimited.
RATES_PER_MINUTE = {"user": 3_000, "anonymous": 300, "run": 1_200}
#: Free space in the storage of jobs that a node needs to pass its check.
NODE_CHECK_FREE_MIB = 1_024
EVENKEEL_DEBUG = env.flag("EVENKEEL_DEBUG")
EVENKEEL_MATERIAL = read_limits()
EVENKEEL_SECRET_KEYS = read_secret_keys()

_layout = Layout(EVENKEEL_DATA)

DEBUG = EVENKEEL_DEBUG
SECRET_KEY = env.text("EVENKEEL_SECRET_KEY") or _layout.secret("secret_key")
EVENKEEL_ALLOWED_HOSTS = env.words("EVENKEEL_ALLOWED_HOSTS", [EVENKEEL_HOST])
ALLOWED_HOSTS = [*EVENKEEL_ALLOWED_HOSTS, "localhost", "127.0.0.1", "[::1]"]
CSRF_TRUSTED_ORIGINS = env.origins("EVENKEEL_TRUSTED_ORIGINS")

INSTALLED_APPS = [
    "unfold",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.usersessions",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.openid_connect",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "csp",
    "channels",
    "accounts",
    "portal.jobs",
    "portal.material",
    "portal.notices",
    "portal.lab",
    "portal.rollouts",
    "portal.dashboard",
    "portal.operations",
    "portal.supervisor",
]

MIDDLEWARE = [
    "portal.web.middleware.NoStore",
    "accounts.origin.origin_middleware",
    "portal.web.middleware.NoNulInPaths",
    "portal.api.deprecated.OldAddresses",
    "django.middleware.security.SecurityMiddleware",
    "portal.web.middleware.ContentPolicy",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "portal.web.middleware.RateLimitHeaders",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "accounts.sessions.SessionSeen",
    "portal.api.http.denials.PageDenials",
    "django.contrib.messages.middleware.MessageMiddleware",
    "allauth.account.middleware.AccountMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "portal.urls"
ASGI_APPLICATION = "portal.asgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# PostgreSQL and Redis: from the environment, else the embedded servers of the data directory.
EXTERNAL_DATABASE_URL = env.text("DATABASE_URL")
EXTERNAL_OWNER_DATABASE_URL = env.text("EVENKEEL_OWNER_DATABASE_URL")  # portal.supervisor.ownership
EXTERNAL_REDIS_URL = env.text("REDIS_URL")
REDIS_URL = env.redis_url("REDIS_URL", EXTERNAL_REDIS_URL or _layout.redis_url)
DATABASES = {
    "default": {
        **env.database("DATABASE_URL", EXTERNAL_DATABASE_URL or _layout.database_url),
        "ENGINE": "portal.database",
        "CONN_MAX_AGE": 0,  # of a thread, and an ASGI request has a separate one
        "CONN_HEALTH_CHECKS": True,
    },
}
EVENKEEL_DB_POOL = env.integer("EVENKEEL_DB_POOL")
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

CACHES = {
    "default": {
        "BACKEND": "accounts.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "VERSION": 2,  # incremented when cached objects' classes move
        "OPTIONS": {"socket_connect_timeout": 2, "socket_timeout": 5},
    },
}
CHANNEL_LAYERS = {
    "default": {
        "BACKEND": "channels_redis.pubsub.RedisPubSubChannelLayer",
        "CONFIG": {"hosts": [{"address": REDIS_URL}], "prefix": "evenkeel"},
    },
}

CELERY_BROKER_URL = env.broker_url(REDIS_URL)
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BROKER_TRANSPORT_OPTIONS = {"socket_connect_timeout": 2, "socket_timeout": 30, "socket_keepalive": False}
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_TIME_LIMIT = 300
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_WORKER_HIJACK_ROOT_LOGGER = False
CELERY_TIMEZONE = "UTC"
CELERY_IMPORTS = (
    "portal.execution.checks.node_tasks",
    "portal.execution.checks.tasks",
    "portal.execution.commands",
    "portal.execution.handover",
    "portal.execution.material_tasks",
    "portal.execution.observe",
    "portal.execution.prepare",
    "portal.execution.spool_tasks",
    "portal.forecasts.preview_tasks",
    "portal.forecasts.start_tasks",
    "portal.forecasts.what_if_tasks",
    "portal.lab.replays",
    "portal.lab.tasks",
    "portal.live.tasks",
    "portal.notices.tasks",
    "portal.rollouts.tasks",
    "portal.rounds.fairness_tasks",
    "portal.rounds.tasks",
    "portal.rounds.upkeep_tasks",
)
CELERY_TASK_ROUTES = {
    "evenkeel.run_round": {"queue": "rounds"},
    "evenkeel.publish_live": {"queue": "live"},
    # Tasks that wait for processes of a job's account, or read many of its files, have separate workers, so that
    # rounds never wait.
    "evenkeel.send_command": {"queue": "commands"},
    "evenkeel.prepare_run": {"queue": "commands"},
    "evenkeel.warm_up": {"queue": "commands"},
    "evenkeel.hand_over": {"queue": "commands"},
    "evenkeel.reap_orphans": {"queue": "commands"},
    "evenkeel.read_site_shares": {"queue": "commands"},
    "evenkeel.collect_artifacts": {"queue": "commands"},
    "evenkeel.take_spooled": {"queue": "commands"},
    "evenkeel.foresee_starts": {"queue": "forecasts"},
    "evenkeel.run_simulations": {"queue": "lab"},
    "evenkeel.shadow_round": {"queue": "shadow"},
}


def _every(task: str, interval_s: float) -> dict[str, Any]:
    """A tick that was not started within its interval is dropped: the next one does the same."""
    return {"task": task, "schedule": interval_s, "options": {"expires": interval_s}}


CELERY_BEAT_SCHEDULE = {
    "rounds": _every("evenkeel.run_round", EVENKEEL_ROUND_INTERVAL_S),
    "live": _every("evenkeel.publish_live", 5.0),
    "forecasts": _every("evenkeel.foresee_starts", 2.0),
    "start_samples": _every("evenkeel.prune_start_samples", 3_600.0),
    "samples": _every("evenkeel.sample_cluster", 15.0),
    "orphans": _every("evenkeel.reap_orphans", 60.0),
    "handovers": _every("evenkeel.hand_over_all", 30.0),
    "idle": _every("evenkeel.enforce_idle_rules", EVENKEEL_REPORT_INTERVAL_S),
    "site_shares": _every("evenkeel.read_site_shares", 120.0),
    "shares": _every("evenkeel.sample_shares", 900.0),
    "fairness": _every("evenkeel.sample_fairness", 60.0),
    "pruning": _every("evenkeel.prune", 600.0),
    "artifacts": _every("evenkeel.collect_artifacts", 5.0),
    "material": _every("evenkeel.clean_material", 600.0),
    "simulations": _every("evenkeel.run_simulations", 5.0),
    "simulation_results": _every("evenkeel.prune_simulations", 600.0),
    "rollouts": _every("evenkeel.guard_rollouts", 15.0),
    "rollout_records": _every("evenkeel.prune_rollouts", 600.0),
    "notices": _every("evenkeel.send_notices", 2.0),
    "long_waits": _every("evenkeel.tell_long_waits", 30.0),
    "notice_log": _every("evenkeel.prune_notices", 600.0),
    "audit": _every("evenkeel.note_audit_head", 3_600.0),
}

AUTH_USER_MODEL = "accounts.User"
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
# Unix accounts of people, where jobs run under them; docs/executors.md.
EVENKEEL_ACCOUNT_MIN_UID = read_account_min_uid()
# Sign-in by OpenID Connect, if an issuer is configured; docs/people.md.
EVENKEEL_METRICS_TOKEN = env.text("EVENKEEL_METRICS_TOKEN")
EVENKEEL_OIDC_ISSUER = env.web_url("EVENKEEL_OIDC_ISSUER").rstrip("/")
EVENKEEL_OIDC_NAME = env.text("EVENKEEL_OIDC_NAME")
EVENKEEL_OIDC_ACCOUNT_CLAIM = env.text("EVENKEEL_OIDC_ACCOUNT_CLAIM")
EVENKEEL_OIDC_GROUPS_CLAIM = env.text("EVENKEEL_OIDC_GROUPS_CLAIM")
EVENKEEL_OIDC_GROUP_ROLES = env.group_roles("EVENKEEL_OIDC_GROUP_ROLES")
SOCIALACCOUNT_PROVIDERS = {
    "openid_connect": {
        "OAUTH_PKCE_ENABLED": True,
        "APPS": [
            {
                "provider_id": "sso",
                "name": EVENKEEL_OIDC_NAME,
                "client_id": env.text("EVENKEEL_OIDC_CLIENT_ID"),
                "secret": env.text("EVENKEEL_OIDC_CLIENT_SECRET"),
                "settings": {
                    "server_url": EVENKEEL_OIDC_ISSUER,
                    "verified_email": env.flag("EVENKEEL_OIDC_TRUST_EMAILS"),
                },
            }
        ]
        if EVENKEEL_OIDC_ISSUER
        else [],
    },
}
SOCIALACCOUNT_ADAPTER = "accounts.oidc.DirectoryAdapter"
SOCIALACCOUNT_EMAIL_AUTHENTICATION = True  # only by addresses that the provider has verified
SOCIALACCOUNT_EMAIL_AUTHENTICATION_AUTO_CONNECT = True
SOCIALACCOUNT_EMAIL_VERIFICATION = "none"
SOCIALACCOUNT_LOGIN_ON_GET = True  # a link: the policy for pages allows no form to other sites
SOCIALACCOUNT_REQUESTS_TIMEOUT = 10
ACCOUNT_ADAPTER = "accounts.oidc.AccountAdapter"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_USER_MODEL_USERNAME_FIELD = None
ACCOUNT_LOGIN_METHODS = {"email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "password1*"]
ACCOUNT_EMAIL_VERIFICATION = "none"
# Outgoing e-mail, as smtp+tls://user:password@host:port; empty: none is sent.
EVENKEEL_EMAIL_URL = env.text("EVENKEEL_EMAIL_URL")
vars().update(env.email("EVENKEEL_EMAIL_URL", EVENKEEL_EMAIL_URL))
EMAIL_TIMEOUT = 10
# Where webhooks may go besides public addresses; docs/notifications.md.
EVENKEEL_WEBHOOK_NETWORKS = env.networks("EVENKEEL_WEBHOOK_NETWORKS")
DEFAULT_FROM_EMAIL = env.text("EVENKEEL_EMAIL_FROM", EVENKEEL_ADMIN_EMAIL)
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = CSRF_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.flag("EVENKEEL_HTTPS")
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env.flag("EVENKEEL_HTTPS") else None
SECURE_HSTS_SECONDS = env.integer("EVENKEEL_HSTS_S") if SESSION_COOKIE_SECURE else 0
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^api/v1/runs/"]  # from this machine, past the proxy
SILENCED_SYSTEM_CHECKS = [
    "security.W005",
    "security.W021",
]  # other names of the domain are not the portal's to decide on
SECURE_REFERRER_POLICY = "same-origin"
# Everything is served by the portal itself. Mantine and Swagger UI create style elements; scripts are files.
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [SELF],
        "style-src": [SELF, UNSAFE_INLINE],
        "img-src": [SELF, "data:"],
        "font-src": [SELF, "data:"],
        "object-src": [NONE],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    },
}
DATA_UPLOAD_MAX_MEMORY_SIZE = 4 * 1024 * 1024

LANGUAGE_CODE = "en-us"
TIME_ZONE = env.time_zone("EVENKEEL_TIME_ZONE")  # of calendar days: quotas and usage
USE_TZ = True

STATIC_URL = "static/"
FRONTEND_DIST = BASE_DIR / "frontend" / "dist"
STATICFILES_DIRS = [FRONTEND_DIST] if FRONTEND_DIST.is_dir() else []
WHITENOISE_USE_FINDERS = True  # no collectstatic: one step less at the start
WHITENOISE_ALLOW_ALL_ORIGINS = False
WHITENOISE_IMMUTABLE_FILE_TEST = r"^/static/assets/"

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.tokens.TokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": [
        "rest_framework.permissions.IsAuthenticated",
        "portal.api.http.permissions.HasScope",
    ],
    "DEFAULT_THROTTLE_CLASSES": ["portal.api.http.rates.RateThrottle"],
    "DEFAULT_RENDERER_CLASSES": ["rest_framework.renderers.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["portal.api.http.parsing.JsonParser"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "portal.api.http.parsing.AlwaysJson",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "portal.api.http.errors.problem_exception_handler",
    "TEST_REQUEST_DEFAULT_FORMAT": "json",
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Evenkeel",
    "DESCRIPTION": "A portal for a shared GPU cluster.",
    "VERSION": "1",
    "OAS_VERSION": "3.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": "/api/v1/",
    "POSTPROCESSING_HOOKS": [
        "portal.api.http.editing.document_editing",
        "portal.api.deprecated.document_addresses",
        "portal.api.http.rates.document_rates",
        "portal.api.http.examples.add_examples",
    ],
}
UNFOLD = {
    "SITE_TITLE": "Evenkeel",
    "SITE_HEADER": "Evenkeel",
    "SITE_URL": "/",
    "ENVIRONMENT": "portal.readmodels.cluster.isolation.admin_notice",
}

EVENKEEL_LOG_FORMAT = env.choice("EVENKEEL_LOG_FORMAT")
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "text": {"()": "portal.core.job_log.TextLines", "format": "%(asctime)s %(levelname)s %(name)s: %(message)s"},
        "json": {"()": "portal.core.job_log.json_lines"},
    },
    "filters": {"context": {"()": "portal.core.job_log.Context"}},
    "handlers": {
        "console": {"class": "logging.StreamHandler", "formatter": EVENKEEL_LOG_FORMAT, "filters": ["context"]}
    },
    "root": {"handlers": ["console"], "level": env.choice("EVENKEEL_LOG_LEVEL")},
    "loggers": {
        **{
            name: {"level": "WARNING"}
            for name in ("celery.app.trace", "celery.worker.strategy", "celery.beat", "httpx")
        },
        "uvicorn": {"level": "INFO", "handlers": [], "propagate": True},  # it brings its own handler
    },
}
