from django.apps import AppConfig


class RolloutsConfig(AppConfig):
    name = "portal.rollouts"
    label = "rollouts"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from portal.rollouts.shadowing import keep_for_shadow
        from portal.rounds.committed import round_committed

        round_committed.connect(keep_for_shadow, dispatch_uid="rollouts")
