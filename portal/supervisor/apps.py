from django.apps import AppConfig


class SupervisorConfig(AppConfig):
    name = "portal.supervisor"
