"""One of everything that an address of the API can name, and everybody who may try it.

A parameter of a path that is missing here fails the generated tests: say what stands for it in `Things.known`, and
what looks like it without being there in `UNKNOWN`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from allauth.usersessions.models import UserSession
from django.db import transaction
from django.http import HttpResponseBase
from django.test import Client
from django.utils import timezone

from accounts.invitations import invite
from accounts.models import ApiToken, Discount, Guarantee, Invitation, Membership, Project, Quota, Rate, Scope, User
from accounts.people import create_service_account
from accounts.services import record_audit
from accounts.tokens import ALL_SCOPES, create_token
from portal.api.http.access import Access
from portal.api.http.examples import METHODS
from portal.api.schema import document
from portal.cluster.policy import set_policy
from portal.core.packed_json import pack
from portal.forecasts.previews import Question, keep_question
from portal.forecasts.what_if import NodeQuestion, keep
from portal.jobs import events
from portal.jobs.models import (
    Accelerator,
    Decision,
    FailingItem,
    FairnessSample,
    Job,
    JobArray,
    JobTemplate,
    ModelType,
    Node,
    NodeWindow,
    Partition,
    Qos,
    SavedView,
)
from portal.lab.models import Simulation, Trial
from portal.lab.replays import ask_replay
from portal.lab.spec import Spec
from portal.material.encryption import encrypt
from portal.material.models import Artifact, Bundle, Environment, Secret
from portal.notices.models import Delivery, Destination
from portal.notices.transport.signing import new_secret
from portal.reporting.run_tokens import run_token
from portal.rollouts.models import Rollout, ShadowDecision
from scheduling.lifecycle import State
from tests.portal.world import World

UNKNOWN = {
    "job": "999999",
    "run": "00000000-0000-7000-8000-000000000000",
    "stream": "project:nothing",
    "name": "nothing",
    "token": "999999",
    "project": "noproj",
    "person": "999999",
    "invitation": "999999",
    "account": "999999",
    "browser": "999999",
    "artifact": "999999",
    "sha256": "0" * 64,
    "digest": "0" * 64,
    "secret": "NOTHING",
    "limit": "999999",
    "level": "nothing",
    "array": "999999",
    "partition": "nothing",
    "window": "999999",
    "view": "999999",
    "template": "999999",
    "preview": "00000000-0000-7000-8000-000000000000",
    "destination": "999999",
    "delivery": "999999",
    "simulation": "00000000-0000-7000-8000-000000000000",
    "rollout": "00000000-0000-7000-8000-000000000000",
    "round": "999999",
    "replay": "00000000-0000-7000-8000-000000000000",
    "what_if": "00000000-0000-7000-8000-000000000000",
}
#: Windows may be planned for so and so long ahead, and not for what is past.
SOON = timezone.now() + timedelta(days=30)
#: Where the document's example is not what somebody who may would send here.
BODIES: dict[str, dict[str, Any]] = {
    "create_project": {"key": "new", "name": "New", "parent": "vision"},
    "create_service_token": {"name": "ci", "scopes": ["admin"], "expires_in_days": 1},
    "resubmit_job": {"name": "again"},
    "set_partition": {"nodes": ["a"]},
    "add_window": {
        "kind": "maintenance",
        "start_at": f"{SOON:%Y-%m-%dT12:00Z}",
        "end_at": f"{SOON:%Y-%m-%dT18:00Z}",
        "nodes": ["a"],
    },
    "add_member": {"email": "outsider@example.org", "role": "member"},
}


@dataclass(frozen=True)
class Operation:
    method: str
    path: str
    spec: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.method} {self.path.removeprefix('/api/v1/')}"

    @property
    def access(self) -> Access:
        assert "x-access" in self.spec, f"{self} declares no access: give its operation(...) access=Access.…"
        return Access(self.spec["x-access"])

    @property
    def scope(self) -> str | None:
        scope: str | None = self.spec["x-scope"]
        return scope

    @property
    def places(self) -> list[str]:
        """Names of the parameters of its path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]

    @property
    def queries(self) -> set[str]:
        return {p["name"] for p in self.spec.get("parameters", []) if p["in"] == "query"}

    def body(self) -> tuple[Any, str]:
        """Its first example, and that one's content type."""
        if self.spec["operationId"] in BODIES:
            return BODIES[self.spec["operationId"]], "application/json"
        content = self.spec.get("requestBody", {}).get("content", {})
        for kind, media in content.items():
            return next(iter(media["examples"].values()))["value"], kind
        return None, "application/json"


OPERATIONS = [
    Operation(method, path, methods[method])
    for path, methods in document()["paths"].items()
    for method in METHODS
    if method in methods
]


@dataclass
class Actor:
    name: str
    user: User | None = None
    token: str | None = None
    token_id: int | None = None
    session: bool = False

    def client(self) -> Client:
        client = Client(raise_request_exception=False)
        if self.session and self.user:
            client.force_login(self.user)
        return client


class Things:
    """The project Vision with one of everything in it, and people around it."""

    def __init__(self) -> None:
        self.world = World()
        self.vision = self.world.project
        self.speech = Project.objects.create(key="speech", name="Speech")
        ModelType.objects.create(name="resnet50", title="ResNet-50", argv=["python"], curves={})
        self.job = self.world.submit(name="secret-name")
        self.world.train(self.job)
        self.run = self.world.run(self.job)
        self.root = User.objects.create_superuser("root@example.org", "x")
        Membership.objects.create(user=self.root, project=self.vision, role="manager")
        self._serial = itertools.count()
        self.robot = create_service_account(actor=self.root, project=self.vision, name="robot", role="member")
        self.invitation = self._invite("guest")
        self.browser = self._browser("b")
        self.bundle, self.environment = self._bundle(1), self._environment(1)
        for bound in (0.1, 0.2):  # so that there is something to undo
            parameters = {"v_bound": bound}
            set_policy(actor=self.root, cluster=self.world.cluster, name="f_scheduling", parameters=parameters)
        self.level, _ = Qos.objects.create(name="high"), Qos.objects.create(name="normal")
        self.window = self._window(1)
        self.partition = Partition.objects.create(cluster=self.world.cluster, name="day", nodes=["a"])
        self.quota = Quota.objects.create(project=self.vision, kind="gpus", limit=64)
        self.array = self._array(1)
        Guarantee.objects.create(project=self.vision, gpus=1)
        self.secret, self.artifact = self._secret(1), self._artifact(1)
        self._rollout()
        self.actors = {actor.name: actor for actor in self._people()}
        self.saved = {user.pk: (self._view(user, "v"), self._template(user, "t")) for user in User.objects.all()}

    @staticmethod
    def _view(user: User, name: str) -> SavedView:
        return SavedView.objects.create(owner=user, name=name)

    @staticmethod
    def _template(user: User, name: str) -> JobTemplate:
        return JobTemplate.objects.create(owner=user, author=user, name=name, file={"total_steps": 1})

    def _simulation(self, user: User, i: int = 0) -> Simulation:
        """One that waits."""
        found = Simulation.objects.filter(created_by=user).first()
        if found is not None and not i:
            return found
        workload = {"kind": "synthetic", "jobs": 1}
        spec = Spec.model_validate({"workload": workload, "policies": [{"name": "fifo_gang"}]}).model_dump(mode="json")
        values = {"cluster": self.world.cluster, "created_by": user, "spec": {**spec, "cluster": "test"}}
        made = Simulation.objects.create(**values)
        said = {"policy": "fifo_gang", "label": "fifo_gang", "seed": 0}
        Trial.objects.create(simulation=made, index=0, **said)
        return made

    def _rollout(self, i: int = 0) -> Rollout:
        """The one in the shadow; `i`: further ones, which have ended."""
        found = Rollout.objects.filter(phase="shadow").first()
        if found is not None and not i:
            return found
        values = {"cluster": self.world.cluster, "policy": "fifo_gang", "label": "fifo_gang", "bounds": {}}
        made = Rollout.objects.create(
            **values, phase="cancelled" if i else "shadow", guard_s=600, least_jobs=1, least_s=0
        )
        self._decision(made, 1)
        return made

    @staticmethod
    def _decision(rollout: Rollout, number: int) -> ShadowDecision:
        figures: dict[str, Any] = {"gpus": 1.0, "holding": 1, "starting": 1, "rescaled": 0, "put_out": 0}
        figures |= {"variance": None, "relative_throughput": None}
        rounds = {"round": number, "at": timezone.now(), "last_round": number, "last_at": timezone.now()}
        values = {"seconds": 0.1, "different": 0, "elsewhere": 0, "live": figures, "candidate": figures}
        packed = pack({"jobs": [], "moves": []})
        return ShadowDecision.objects.create(rollout=rollout, **rounds, **values, packed=packed, size_bytes=1)

    @property
    def round(self) -> Decision:
        return Decision.objects.latest("round")

    def _round(self, i: int) -> Decision:
        """One more of the kind."""
        made = self.round
        made.pk, made.round = None, made.round + 1
        made.save()
        return made

    def _window(self, days: int) -> NodeWindow:
        at = timezone.now() + timedelta(days=days)
        times = {"start_at": at, "end_at": at + timedelta(hours=1)}
        made = NodeWindow.objects.create(cluster=self.world.cluster, kind="reservation", nodes=["a"], **times)
        made.projects.add(self.vision)
        return made

    def _invite(self, name: str) -> Invitation:
        email = f"{name}@example.org"
        return invite(actor=self.root, project=self.vision, email=email, role="member", now=timezone.now())[0]

    def _browser(self, key: str) -> UserSession:
        return UserSession.objects.create(user=self.root, ip="127.0.0.1", session_key=key, user_agent="Firefox")

    def _bundle(self, i: int) -> Bundle:
        sizes = {"size_bytes": 1, "unpacked_bytes": 1, "files": 1}
        return Bundle.objects.create(project=self.vision, sha256=f"{i:064x}", **sizes)

    @staticmethod
    def _failing(i: int) -> FailingItem:
        times = dict.fromkeys(("since", "last_at", "next_attempt_at"), timezone.now())
        return FailingItem.objects.create(loop="limits", key=str(i), name=f"#{i}", error="KeyError: 'nice'", **times)

    def _environment(self, i: int) -> Environment:
        values = {"project": self.vision, "cluster": self.world.cluster, "digest": f"{i:064x}"}
        return Environment.objects.create(requirements="einops", base="b", **values)

    def _array(self, _: int) -> JobArray:
        array = self.world.submit(array="0-1").array
        assert array is not None
        return array

    def _fairness(self, i: int) -> FairnessSample:
        project, at = Project.objects.create(key=f"f{i}", name=f"F{i}"), timezone.now() - timedelta(hours=1)
        whose = {"cluster": self.world.cluster, "project": project}
        return FairnessSample.objects.create(at=at, known_samples=0, holding=0, waiting=1, **whose)

    def _finished(self, i: int) -> None:
        job = self.world.submit()
        project = Project.objects.create(key=f"e{i}", name=f"E{i}")
        Job.objects.filter(pk=job.pk).update(project=project)
        job.runs.update(state=State.FINISHED, ended_at=timezone.now(), slowdown=2.0)

    def _secret(self, i: int) -> Secret:
        return Secret.objects.create(project=self.vision, name=f"S{i}", ciphertext="x")

    def _artifact(self, i: int) -> Artifact:
        over = timezone.now() + timedelta(days=1)
        return Artifact.objects.create(run=self.run, path=f"a{i}", size_bytes=1, sha256=f"{i:064x}", expires_at=over)

    def _people(self) -> list[Actor]:
        admin = self._with_token("admin", self.root)
        people = [Actor("anonymous"), admin, Actor("session", self.root, token_id=admin.token_id, session=True)]
        for role in ("viewer", "member", "manager"):
            user = User.objects.create_user(f"{role}@example.org", "x")
            Membership.objects.create(user=user, project=self.vision, role=role)
            people.append(self._with_token(role, user))
        outsider = User.objects.create_user("outsider@example.org", "x")
        Membership.objects.create(user=outsider, project=self.speech, role="manager")
        people.append(self._with_token("outsider", outsider))
        people.append(self._with_token("service account", self.robot))
        for name, change in (
            ("expired", {"expires_at": timezone.now() - timedelta(seconds=1)}),
            ("revoked", {"revoked_at": timezone.now()}),
        ):
            people.append(self._with_token(name, self.root))
            ApiToken.objects.filter(user=self.root, name=name).update(**change)
        scoped = [self._with_token(f"scope {scope}", self.root, scope) for scope in Scope.values]
        # An administrator and a member whose tokens reach no further than one project.
        scoped.append(self._with_token("bound here", self.root, project=self.vision))
        member = next(actor.user for actor in people if actor.name == "member" and actor.user)
        return [*people, *scoped, self._with_token("bound elsewhere", member, project=self.speech)]

    @staticmethod
    def _with_token(name: str, user: User, *scopes: str, project: Project | None = None) -> Actor:
        token, text = create_token(user=user, name=name, scopes=scopes or ALL_SCOPES, project=project)
        return Actor(name, user, text, token.pk)

    @property
    def growers(self) -> dict[str, Callable[[int], object]]:
        """How the list of each such operation gets so many rows more."""

        def often(make: Callable[[int], object]) -> Callable[[int], object]:
            return lambda n: [make(next(self._serial)) for _ in range(n)]

        def event(_: int) -> object:
            return events.append(kind="notice", text="said", at=timezone.now(), job=self.job, run=self.run)

        def node(i: int) -> object:
            made = Node.objects.create(cluster=self.world.cluster, name=f"n{i}", accelerator_type=f"t{i}")
            return Accelerator.objects.create(node=made, index=0, uuid=f"u{i}", memory_mib=1000)

        def member(i: int) -> object:
            user = User.objects.create_user(f"m{i}@example.org", "x")
            return Membership.objects.create(user=user, project=self.vision, role="viewer")

        def quota(i: int) -> object:
            return Quota.objects.create(project=self.vision, kind="gpus", accelerator_type=f"q{i}", limit=64)

        def budget(i: int) -> object:
            project = Project.objects.create(key=f"b{i}", name="B")
            return Quota.objects.create(project=project, kind="money", period="month", limit=64)

        def rate(i: int) -> object:
            at = timezone.now() + timedelta(days=i + 1)
            return Rate.objects.create(accelerator_type=f"r{i}", price_micro_per_hour=1, valid_from=at)

        def discount(i: int) -> object:
            project = Project.objects.create(key=f"d{i}", name="D")
            return Discount.objects.create(project=project, percent_hundredths=1_000)

        def policy(_: int) -> object:
            return set_policy(actor=self.root, cluster=self.world.cluster, name="f_scheduling", parameters={})

        return {
            "list_failing_items": often(self._failing),
            "list_jobs": often(lambda _: self.world.submit()),
            "list_arrays": often(self._array),
            "list_events": often(event),
            "list_job_events": often(event),
            "list_nodes": often(node),
            "list_accelerator_types": often(node),
            "list_model_types": often(
                lambda i: ModelType.objects.create(name=f"m{i}", title="M", argv=["python"], curves={})
            ),
            "list_policy_changes": often(policy),
            "list_priorities": often(lambda _: self.world.submit()),
            "list_share_history": often(lambda i: Project.objects.create(key=f"h{i}", name=f"H{i}")),
            "list_fairness_history": often(self._fairness),
            "list_ended_slowdown": often(self._finished),
            "list_shares": often(lambda i: Project.objects.create(key=f"s{i}", name=f"S{i}")),
            "list_qos": often(lambda i: Qos.objects.create(name=f"q{i}").projects.add(self.vision)),
            "list_partitions": often(
                lambda i: Partition.objects.create(cluster=self.world.cluster, name=f"p{i}", nodes=["a"]).projects.add(
                    self.vision
                )
            ),
            "list_views": often(lambda i: self._view(self.root, f"v{i}")),
            "list_templates": often(lambda i: self._template(self.root, f"t{i}")),
            "list_windows": often(lambda i: self._window(2 + i)),
            "list_projects": often(lambda i: Project.objects.create(key=f"p{i}", name=f"P{i}")),
            "list_tokens": often(lambda i: create_token(user=self.root, name=f"t{i}")),
            "list_people": often(lambda i: User.objects.create_user(f"u{i}@example.org", "x")),
            "list_members": often(member),
            "list_invitations": often(lambda i: self._invite(f"i{i}")),
            "list_service_accounts": often(
                lambda i: create_service_account(actor=self.root, project=self.vision, name=f"r{i}", role="member")
            ),
            "list_service_tokens": often(lambda i: create_token(user=self.robot, name=f"s{i}")),
            "list_bundles": often(lambda i: self._bundle(100 + i)),
            "list_environments": often(lambda i: self._environment(100 + i)),
            "list_secrets": often(lambda i: self._secret(100 + i)),
            "list_artifacts": often(lambda i: self._artifact(100 + i)),
            "list_limits": often(quota),
            "list_quotas": often(quota),
            "list_project_limits": often(quota),
            "list_project_quotas": often(quota),
            "list_budgets": often(budget),
            "list_guarantees": often(
                lambda i: Guarantee.objects.create(project=Project.objects.create(key=f"g{i}", name="G"), gpus=1)
            ),
            "list_prices": often(rate),
            "list_rates": often(rate),
            "list_discounts": often(discount),
            "list_destinations": often(
                lambda i: Destination.objects.create(user=self.root, name=f"d{i}", **self._webhook)
            ),
            "list_deliveries": often(
                lambda _: Delivery.objects.create(destination=self._destination(self.actors["admin"]), **self._given_up)
            ),
            "list_simulations": often(lambda i: self._simulation(self.root, i + 1)),
            "list_rollouts": often(lambda i: self._rollout(i + 1)),
            "list_shadow_decisions": often(lambda i: self._decision(self._rollout(), i + 2)),
            "list_rounds": often(self._round),
            "list_audit": often(lambda i: record_audit(actor=self.root, action="test", target=str(i))),
        }

    def known(self, actor: Actor, names: Iterable[str]) -> dict[str, str]:
        """What exists, by the name that paths have for it (of these names only); what is one's own is the actor's."""
        mine, user = actor.token_id or self.actors["member"].token_id, actor.user or self.root
        view, template = self.saved[user.pk]
        asker = actor.user.pk if actor.user else 0
        there: dict[str, object] = {
            "job": self.job.number,
            "run": self.run.pk,
            "stream": "project:vision",
            "name": "a",
            "token": mine,
            "project": "vision",
            "person": self.actors["viewer"].user.pk,  # type: ignore[union-attr]
            "invitation": self.invitation.pk,
            "account": self.robot.pk,
            "browser": self.browser.pk,
            "artifact": self.artifact.pk,
            "sha256": self.bundle.sha256,
            "digest": self.environment.digest,
            "secret": self.secret.name,
            "limit": self.quota.pk,
            "level": self.level.name,
            "array": self.array.number,
            "partition": self.partition.name,
            "window": self.window.pk,
            "view": view.pk,
            "template": template.pk,
        }
        made: dict[str, Callable[[], object]] = {
            "simulation": lambda: self._simulation(user).id,
            "rollout": lambda: self._rollout().id,
            "round": lambda: self.round.round,
            "replay": lambda: ask_replay(user=user, decision=self.round, policy=None, parameters=None),
            "what_if": lambda: keep(NodeQuestion(asker, 0, "k1", frozenset())),
            "destination": lambda: self._destination(actor).pk,
            "delivery": lambda: self._delivery(self._destination(actor)).pk,
            "preview": lambda: keep_question(Question(asker, 0, (), False, None, {}, {}, {})),
        }
        return {name: str(made[name]() if name in made else there[name]) for name in names if name in there | made}

    def _destination(self, actor: Actor) -> Destination:
        """One of the actor's own, within the project of their token, that leads nowhere."""
        token = ApiToken.objects.select_related("project").filter(pk=actor.token_id or 0).first()
        project = token.project if token else None
        mine = {"user": actor.user or self.root, "project": project, "name": "d"}
        return Destination.objects.filter(**mine).first() or Destination.objects.create(**mine, **self._webhook)

    def _delivery(self, destination: Destination) -> Delivery:
        return destination.deliveries.last() or Delivery.objects.create(destination=destination, **self._given_up)

    @property
    def _webhook(self) -> dict[str, Any]:
        return {
            "kind": "webhook",
            "address_ciphertext": encrypt("https://127.0.0.1/"),
            "secret_ciphertext": encrypt(new_secret()),
            "events": ["job.failed"],
        }

    @property
    def _given_up(self) -> dict[str, Any]:
        payload = {"type": "job.failed", "data": {"text": "said"}}
        return {"event": "job.failed", "status": "given_up", "payload": payload}

    def send(
        self,
        operation: Operation,
        actor: Actor,
        *,
        places: dict[str, str] | None = None,
        query: str = "",
        change: Callable[[Any], Any] = lambda body: body,
    ) -> HttpResponseBase:
        """The request with the example's body; nothing of it stays."""
        known = self.known(actor, operation.places) | (places or {})
        path = operation.path
        for place in operation.places:
            assert place in known, f"tests/portal/things.py does not know what {{{place}}} of {operation} is"
            path = path.replace(f"{{{place}}}", known[place])
        example, kind = operation.body()
        body = change(example)
        data = body if isinstance(body, (str, bytes)) else json.dumps(body) if body is not None else ""
        headers = {"Authorization": f"Bearer {actor.token}"} if actor.token else {}
        if actor.name == "run":
            headers = {"Authorization": f"Bearer {run_token(self.run.pk, self.run.epoch)}"}
        with transaction.atomic():
            client = actor.client()
            response = client.generic(operation.method.upper(), path + query, data, content_type=kind, headers=headers)
            transaction.set_rollback(True)
        return response
