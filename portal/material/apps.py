from django.apps import AppConfig


class MaterialConfig(AppConfig):
    name = "portal.material"
    label = "material"
    default_auto_field = "django.db.models.BigAutoField"
